"""The `workload.dataset` of a search space file: where prompts come from and how long they are. Frozen values."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from orchestrator.fields import Frozen, Range, located


class Bell(Frozen):
    """A distribution around `mean` with the standard deviation `std`, both in tokens, within [min, max].

    A draw outside of them is drawn again, since cutting would heap lengths at the ends. That moves the mean where
    [min, max] cuts more off on one side; you are told where it moves by more than 5 %.
    """

    #: Tokens, of the curve before anything is drawn again.
    mean: float = Field(gt=0)
    #: Tokens, likewise.
    std: float = Field(ge=0)
    #: Shorter draws are drawn again.
    min: int = Field(1, ge=1)
    #: Longer draws are drawn again; null: no bound.
    max: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Bell:
        if self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        if self.mean < self.min or (self.max is not None and self.mean > self.max):
            raise ValueError(f"the mean {self.mean:g} is outside of {self.min} to {self.max or 'any'}")
        return self


class Lengths(Frozen):
    """Lengths in tokens: one for all requests, or drawn for each. A bare number in a file is `fixed`."""

    #: What a bare number means.
    fixed: int | None = Field(None, ge=1)
    #: Both ends included.
    uniform: Annotated[tuple[int, int], Range] | None = None
    #: `{mean: 512, std: 64}`.
    normal: Bell | None = None
    #: `mean` and `std` are those of the lengths, not of their logarithms.
    lognormal: Bell | None = None

    @field_validator("uniform")
    @classmethod
    def _ends(cls, ends: tuple[int, int] | None) -> tuple[int, int] | None:
        if ends is not None and not 1 <= ends[0] <= ends[1]:
            raise ValueError(f"no length is from {ends[0]} to {ends[1]}: the lower end is 1 or more, and comes first")
        return ends

    @model_validator(mode="after")
    def _one(self) -> Lengths:
        if sum(getattr(self, name) is not None for name in type(self).model_fields) != 1:
            raise ValueError("lengths are a number, or exactly one of uniform, normal, lognormal")
        return self


def _lengths(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"fixed": value}
    if not isinstance(value, dict | Lengths):
        raise ValueError("lengths are a whole number, or one of {uniform: [64, 512]}, {normal: {mean: 512, std: 64}}")
    return value


TokenLengths = Annotated[Lengths, BeforeValidator(_lengths)]
_INPUT = Lengths(fixed=512)
_OUTPUT = Lengths(fixed=128)


class RandomIds(Frozen):
    """Random token ids, each prompt unique. Exact in length with any model, and meaningless to it."""

    kind: Literal["random_ids"] = "random_ids"
    #: Of each prompt.
    input_tokens: TokenLengths = _INPUT
    #: Of each answer.
    output_tokens: TokenLengths = _OUTPUT
    #: Token ids are drawn from [0, vocab_size); keep it within the model's vocabulary.
    vocab_size: int = Field(10_000, ge=2)
    #: The model was made of random ids (a toy), so that what its drafter accepts on them means something.
    natural: bool = False
    #: Of the draws.
    seed: int = 0


class Text(Frozen):
    """Passages of the corpus that ships with the project, no two of a level with the same beginning."""

    kind: Literal["text"] = "text"
    #: Of each prompt.
    input_tokens: TokenLengths = _INPUT
    #: Of each answer.
    output_tokens: TokenLengths = _OUTPUT
    #: Of the draws.
    seed: int = 0


class SharedPrefix(Frozen):
    """Passages of the corpus in groups: every prompt of a group begins with the group's own prefix."""

    kind: Literal["shared_prefix"] = "shared_prefix"
    #: A level's requests go to the groups in turn.
    groups: int = Field(8, ge=1, le=4096)
    #: The prefix's share of each prompt.
    prefix_ratio: float = Field(0.5, gt=0, lt=1)
    #: Of each prompt, its prefix included.
    input_tokens: TokenLengths = _INPUT
    #: Of each answer.
    output_tokens: TokenLengths = _OUTPUT
    #: Of the draws.
    seed: int = 0

    @model_validator(mode="after")
    def _room(self) -> SharedPrefix:
        if self.input_tokens.fixed == 1:
            raise located(("workload", "dataset", "input_tokens"), "one token cannot be shared and unique: at least 2")
        return self


class ShareGPT(Frozen):
    """The first question of each conversation in a JSON file of ShareGPT's form."""

    kind: Literal["sharegpt"] = "sharegpt"
    #: The file; a relative path means the folder where the sweep is started.
    path: str = Field(min_length=1)
    #: None: as long as the answer in the file, in tokens.
    output_tokens: Annotated[Lengths | None, BeforeValidator(lambda v: None if v is None else _lengths(v))] = None
    #: Longer questions are left out.
    max_input_tokens: int | None = Field(None, ge=1)
    #: Prompts may come again within a level; else a file with too few distinct ones is refused, and a level ends with
    #: the last of them.
    reuse: bool = False
    #: Of the draws.
    seed: int = 0


class JSONL(Frozen):
    """A file with an object a line: `prompt` (text) or `messages` (of a chat), perhaps its own `output_tokens`."""

    kind: Literal["jsonl"] = "jsonl"
    #: The file; a relative path means the folder where the sweep is started.
    path: str = Field(min_length=1)
    #: Of lines that have none of their own.
    output_tokens: TokenLengths = _OUTPUT
    #: Prompts may come again within a level; else a file with too few distinct ones is refused, and a level ends with
    #: the last of them.
    reuse: bool = False
    #: Of the draws.
    seed: int = 0


def _with_kind(value: Any) -> Any:
    return {"kind": "text", **value} if isinstance(value, dict) and "kind" not in value else value


#: `text` where the file does not say.
Dataset = Annotated[
    RandomIds | Text | SharedPrefix | ShareGPT | JSONL, Field(discriminator="kind"), BeforeValidator(_with_kind)
]
