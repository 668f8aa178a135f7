"""The `workload:` of a search space file: what is asked of every server. Frozen values."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from orchestrator.datasets import Dataset, RandomIds, Text
from orchestrator.fields import Frozen, as_tuple, located
from orchestrator.offered_load import Load

Users = Annotated[int, Field(ge=1, le=1024)]


class Level(Frozen):
    """How long one level is measured.

    Closed loop: `requests_per_user` x concurrency requests and `min_s` seconds at least, then until the 95 % interval
    of the throughput is within +- `half_width` of it (None: not a request more), or `max_requests_per_user` or `max_s`
    ends it. Before, and not counted, `warmup_requests_per_user`, then until the rates of two successive windows differ
    by no more than `warmup_tolerance` (None: not a request more), for `max_s` at most.

    Open loop: `min_requests`, `min_s` and (unless `half_width` is null) ten times what an answer takes at least, none
    sent after `max_s`; before, as long as `warmup_requests_per_user` answers take, and (unless `warmup_tolerance` is
    null) five times as long as the latest take.
    """

    #: At least so many of each user of a closed loop.
    requests_per_user: int = Field(3, ge=1)
    #: At least so long.
    min_s: float = Field(5.0, ge=0)
    #: At most so long, and the warm-up too.
    max_s: float = Field(120.0, gt=0)
    #: Of the throughput, relative: what the 95 % interval is to come within; null: no request more than the least.
    half_width: float | None = Field(0.02, gt=0, lt=1)
    #: At most so many of each user; null: no bound.
    max_requests_per_user: int | None = Field(None, ge=1)
    #: At least so many of an open loop.
    min_requests: int = Field(100, ge=1)
    #: Before the window opens, not counted.
    warmup_requests_per_user: int = Field(1, ge=0)
    #: By how much the rates of two windows of the warm-up may differ, relative; null: it ends with its requests.
    warmup_tolerance: float | None = Field(0.1, gt=0, lt=1)
    #: Beyond these the load generator, not the server, is what was measured, and the level is invalid. It reads
    #: answers in one thread: close to a whole core it is the one who is waited for.
    max_client_cpu: float = Field(0.9, gt=0)
    #: Of its event loop, by which its stamps are late too: one in a hundred later than this shows in every percentile.
    max_client_lag_ms: float = Field(50.0, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Level:
        if self.min_s > self.max_s:
            raise ValueError(f"min_s {self.min_s} is above max_s {self.max_s}")
        most = self.max_requests_per_user
        if most is not None and most < self.requests_per_user:
            raise ValueError(f"requests_per_user {self.requests_per_user} is above max_requests_per_user {most}")
        return self


class Arrivals(Frozen):
    """When the requests of an open loop come: `gamma` with a shape of `burstiness`, of which `poisson` is that of 1.

    Up to `max_in_flight` are open at once; a request beyond waits. Where one in a hundred leaves later than
    `max_lag_ms` after its turn the level is invalid: by default 10 ms, less than any first token takes, or a tenth of
    the mean gap where that is more, which bends the arrivals less than their own chance does.
    """

    #: `poisson` is a gamma with a burstiness of 1.
    kind: Literal["poisson", "constant", "gamma"] = "poisson"
    #: Shape of the gamma: below 1 burstier than Poisson, above 1 more even.
    burstiness: float = Field(1.0, gt=0)
    #: So many are open at once; a request beyond waits.
    max_in_flight: int = Field(1024, ge=1)
    #: How late one in a hundred may leave; null: 10 ms, or a tenth of the mean gap where that is more.
    max_lag_ms: float | None = Field(None, gt=0)
    #: Of the draws.
    seed: int = 0

    @model_validator(mode="after")
    def _known(self) -> Arrivals:
        if self.kind != "gamma" and self.burstiness != 1.0:
            raise ValueError(f"burstiness {self.burstiness} goes with kind gamma; {self.kind} has none")
        return self

    def lag_limit_ms(self, request_rate: float) -> float:
        """How late a request may leave at so many per second."""
        return self.max_lag_ms or max(10.0, 0.1 * 1000 / request_rate)


class Slo(Frozen):
    """Bounds that a request is to meet, all of them, to count in goodput. Milliseconds."""

    #: Of the time to the first token.
    ttft_ms: float | None = Field(None, gt=0)
    #: Of the time per token after the first.
    tpot_ms: float | None = Field(None, gt=0)
    #: Of the whole request.
    e2e_ms: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _some(self) -> Slo:
        if self.ttft_ms is self.tpot_ms is self.e2e_ms is None:
            raise ValueError("there is no bound: give ttft_ms, tpot_ms or e2e_ms, or leave slo out")
        return self


class Sampling(Frozen):
    """Sampling parameters, sent with every request: none is left to the model's own defaults.

    Names and limits are SGLang's (0.5.23, sampling_params.py).
    """

    #: 0 is greedy.
    temperature: float = Field(0.0, ge=0)
    #: The likeliest tokens that have this share together.
    top_p: float = Field(1.0, gt=0, le=1)
    #: The most likely tokens that are drawn from; -1: all.
    top_k: int = Field(-1, ge=-1)
    #: Tokens at least this likely, relative to the likeliest.
    min_p: float = Field(0.0, ge=0, le=1)
    #: Above 1 disfavours what was said.
    repetition_penalty: float = Field(1.0, gt=0, le=2)
    #: Of the draws; SGLang heeds it with `enable-deterministic-inference` only.
    seed: int | None = None
    #: Texts that end an answer.
    stop: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(as_tuple)] = ()
    #: Tokens that end an answer, where `ignore_eos` is false.
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
    """What is asked of every server: the requests and the ladder of loads, measured in one start."""

    #: /v1/completions, /v1/chat/completions, or SGLang's own /generate.
    api: Api = "completion"
    #: What is asked.
    dataset: Dataset = Text()
    #: Levels of a closed loop, by users.
    concurrency: Annotated[tuple[Users, ...], BeforeValidator(as_tuple)] = (
        1,
        8,
        32,
        128,
    )
    #: Levels of an open loop, by requests per second.
    request_rate: Annotated[tuple[float, ...], BeforeValidator(as_tuple)] = ()
    #: When the requests of an open loop come.
    arrivals: Arrivals = Arrivals()
    #: What a request is to meet to count in goodput.
    slo: Slo | None = None
    #: How long each level is measured.
    level: Level = Level()
    #: Sent whole with every request.
    sampling: Sampling = Sampling()
    #: A request that takes longer counts as failed.
    request_timeout_s: float = Field(600.0, gt=0)

    @field_validator("concurrency")
    @classmethod
    def _ladder(cls, ladder: tuple[int, ...]) -> tuple[int, ...]:
        if list(ladder) != sorted(set(ladder)):
            raise ValueError("the ladder goes up, each concurrency once: [1, 8, 32]")
        return ladder

    @field_validator("request_rate")
    @classmethod
    def _rates(cls, ladder: tuple[float, ...]) -> tuple[float, ...]:
        for rate in ladder:
            Load(request_rate=rate)
        if list(ladder) != sorted(set(ladder)):
            raise ValueError("the ladder goes up, each rate once: [0.5, 2, 8]")
        return ladder

    @model_validator(mode="after")
    def _some_level(self) -> Workload:
        if not self.ladder:
            raise ValueError("there is no level: give concurrency or request_rate")
        return self

    @model_validator(mode="after")
    def _sendable(self) -> Workload:
        if self.api == "chat" and isinstance(self.dataset, RandomIds):
            raise located(
                ("workload", "dataset", "kind"), "a chat is text, and random_ids are none: take `text`, or another api"
            )
        return self

    @property
    def ladder(self) -> tuple[Load, ...]:
        """The levels of a trial, in the order in which they are measured."""
        return (*map(Load, self.concurrency), *(Load(request_rate=float(rate)) for rate in self.request_rate))
