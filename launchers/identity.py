"""Who a server is, so that no other one is ever measured: a name and a key that differ from start to start."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus

import requests


@dataclass(frozen=True)
class Identity:
    """What one server alone answers to."""

    #: Its served-model-name.
    model: str
    #: A secret.
    api_key: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """What every request to it carries."""
        return {"Authorization": f"Bearer {self.api_key}"}

    def stranger(self, url: str, timeout_s: float) -> str | None:
        """Why the server that answers at `url` is not this one; None when it is.

        Raises requests.RequestException where nothing answers.
        """
        with requests.Session() as session:
            session.trust_env = False

            def ask(headers: dict[str, str]) -> requests.Response:
                return session.get(f"{url}/model_info", headers=headers, timeout=timeout_s)

            # Asked first, so that the key is not shown to a server that wants none.
            if ask({}).status_code != HTTPStatus.UNAUTHORIZED:
                return "it answers without the key that ours asks for"
            told = ask(self.headers)
        if told.status_code != HTTPStatus.OK:
            return f"it refuses the key of ours (status {told.status_code})"
        name = _served_name(told)
        return None if name == self.model else f"it serves {name!r}, and ours {self.model!r}"


def _served_name(answer: requests.Response) -> object:
    try:
        told = answer.json()
    except ValueError:
        return None
    return told.get("served_model_name") if isinstance(told, dict) else None
