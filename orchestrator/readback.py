"""Looking at a running server: what it says of itself, and its answers to the prompts that every start is asked."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

import requests

from launchers.base import ServerHandle
from launchers.local_server import server_info
from launchers.sglang.readback import ReadBack, read_back
from orchestrator.analysis.agreement import OUTPUT_TOKENS, PROMPTS

_POLL_S = 0.2
#: What may move a measurement without being among the arguments.
_VARIABLE = re.compile(r"NCCL_|CUDA_|SGLANG_|OMP_|MKL_|TORCH_|PYTORCH_|TRTLLM_|FLASHINFER_")

Tokens = tuple[tuple[int, ...], ...]


def look_at(server: ServerHandle) -> ReadBack:
    """What the server says now, by /server_info and its log; empty where neither can be had."""
    return read_back(server_info(server.url, server.api_key), log_text(server))


def log_text(server: ServerHandle, since: int = 0) -> str:
    """The server's log from this byte on."""
    with contextlib.suppress(OSError), server.log.open("rb") as log:
        log.seek(since)
        return log.read().decode(errors="replace")
    return ""


def log_size(server: ServerHandle) -> int:
    """Bytes of the log so far."""
    with contextlib.suppress(OSError):
        return server.log.stat().st_size
    return 0


def environment_of(server: ServerHandle, asked: Iterable[str]) -> dict[str, str]:
    """The variables worth keeping of those that the server's processes were started with."""
    wanted = set(asked)
    found = server.environment()
    return {name: value for name, value in sorted(found.items()) if name in wanted or _VARIABLE.match(name)}


def ask_prompts(
    server: ServerHandle,
    *,
    at_once: bool,
    timeout_s: float,
    should_stop: Callable[[], bool],
    prompts: Sequence[str] = PROMPTS,
) -> Tokens | None:
    """The server's greedy answers as token ids, asked all at once or one after the other; `timeout_s` is for each.

    None where one failed, or `should_stop` (polled five times a second) said so meanwhile: what is in flight is
    then left to end with the server.
    """
    pool = ThreadPoolExecutor(len(prompts) if at_once else 1, thread_name_prefix="prompts")
    try:
        answers = [pool.submit(_answer, server, prompt, timeout_s) for prompt in prompts]
        pending: set[Future[tuple[int, ...]]] = set(answers)
        while pending:
            if should_stop():
                return None
            done, pending = wait(pending, _POLL_S, FIRST_EXCEPTION)
            if any(answer.exception() is not None for answer in done):
                return None
        return tuple(answer.result() for answer in answers)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _answer(server: ServerHandle, prompt: str, timeout_s: float) -> tuple[int, ...]:
    """Token ids of one greedy answer. Raises where there is none."""
    body = {
        "text": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": OUTPUT_TOKENS, "ignore_eos": True},
    }
    with _session(server) as session:
        answer = session.post(f"{server.url}/generate", json=body, timeout=timeout_s)
        answer.raise_for_status()
        ids = answer.json()["output_ids"]
    if not ids or not all(isinstance(token, int) for token in ids):
        raise ValueError(f"no token ids in the answer to {prompt!r}")
    return tuple(ids)


def _session(server: ServerHandle) -> requests.Session:
    session = requests.Session()
    # No proxies and no .netrc: the server is on this node, and its key is given or there is none.
    session.trust_env = False
    if server.api_key is not None:
        session.headers["Authorization"] = f"Bearer {server.api_key}"
    return session
