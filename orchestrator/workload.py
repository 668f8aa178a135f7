"""The `workload:` of a search space file: what is asked of every server. Frozen values."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from orchestrator.datasets import Dataset, RandomIds, Text
from orchestrator.fields import Frozen, as_tuple, located


class Level(Frozen):
    """How long one concurrency is measured.

    Closed loop: `requests_per_user` x concurrency requests, more until `min_s` seconds are over,
    none started after `max_s`. `warmup_requests_per_user` come before and are not counted.
    """

    requests_per_user: int = Field(3, ge=1)
    min_s: float = Field(5.0, ge=0)
    max_s: float = Field(120.0, gt=0)
    warmup_requests_per_user: int = Field(1, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Level:
        if self.min_s > self.max_s:
            raise ValueError(f"min_s {self.min_s} is above max_s {self.max_s}")
        return self


class Sampling(Frozen):
    """Sampling parameters, sent with every request: none is left to the model's own defaults.

    Names and limits are SGLang's (0.5.23, sampling_params.py).
    """

    temperature: float = Field(0.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    #: The most likely tokens that are drawn from; -1: all.
    top_k: int = Field(-1, ge=-1)
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0, le=2)
    #: Of the draws; SGLang heeds it with `enable-deterministic-inference` only.
    seed: int | None = None
    #: Texts that end an answer.
    stop: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(as_tuple)] = ()
    stop_token_ids: Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(as_tuple)] = ()
    #: Answers are as long as asked, whatever the model has to say.
    ignore_eos: bool = True

    @model_validator(mode="after")
    def _acting(self) -> Sampling:
        if self.top_k == 0:
            raise located(("workload", "sampling", "top_k"), "none is left to draw from: -1 for all, or 1 and more")
        if self.ignore_eos and self.stop_token_ids:
            raise located(
                ("workload", "sampling", "stop_token_ids"),
                "SGLang heeds none of them while ignore_eos is true: set that to false, or leave them out",
            )
        return self

    @property
    def exact(self) -> bool:
        """Whether every answer is as long as asked."""
        return self.ignore_eos and not self.stop


Api = Literal["completion", "chat", "native"]


class Workload(Frozen):
    """What is asked of every server: the requests and the ladder of concurrencies, measured in one start."""

    #: /v1/completions, /v1/chat/completions, or SGLang's own /generate.
    api: Api = "completion"
    dataset: Dataset = Text()
    concurrency: Annotated[tuple[Annotated[int, Field(ge=1, le=512)], ...], BeforeValidator(as_tuple)] = Field(
        (1, 8, 32, 128), min_length=1
    )
    level: Level = Level()
    sampling: Sampling = Sampling()
    #: A request that takes longer counts as failed.
    request_timeout_s: float = Field(600.0, gt=0)

    @field_validator("concurrency")
    @classmethod
    def _ladder(cls, ladder: tuple[int, ...]) -> tuple[int, ...]:
        if list(ladder) != sorted(set(ladder)):
            raise ValueError("the ladder goes up, each concurrency once: [1, 8, 32]")
        return ladder

    @model_validator(mode="after")
    def _sendable(self) -> Workload:
        if self.api == "chat" and isinstance(self.dataset, RandomIds):
            raise located(
                ("workload", "dataset", "kind"), "a chat is text, and random_ids are none: take `text`, or another api"
            )
        return self
