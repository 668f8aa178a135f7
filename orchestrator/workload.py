"""The `workload:` of a search space file: what is asked of every server. Frozen values."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from orchestrator.fields import Frozen, as_tuple
from orchestrator.offered_load import Load


class SyntheticDataset(Frozen):
    """Seeded prompts of random token ids: `input_tokens` in, at most `output_tokens` out, each one unique."""

    kind: Literal["synthetic"] = "synthetic"
    input_tokens: int = Field(512, ge=1)
    output_tokens: int = Field(128, ge=1)
    #: Token ids are drawn from [0, vocab_size); keep it within the model's vocabulary.
    vocab_size: int = Field(10_000, ge=2)
    seed: int = 0


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
    """Sampling parameters sent with every request."""

    temperature: float = Field(0.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    ignore_eos: bool = True


class Workload(Frozen):
    """What is asked of every server: the requests and the ladder of concurrencies, measured in one start."""

    api: Literal["openai", "native"] = "openai"
    dataset: SyntheticDataset = SyntheticDataset()
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

    @property
    def ladder(self) -> tuple[Load, ...]:
        """The levels of a trial, in the order in which they are measured."""
        return tuple(map(Load, self.concurrency))
