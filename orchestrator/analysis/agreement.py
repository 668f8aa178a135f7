"""Is the output still right? How much of a server's greedy output is the baseline's, token by token. Pure.

Greedy output is not the same under every right setting: kernels and batch sizes round differently, and where two
tokens are nearly alike the texts part, for good, since each continues its own text. So equal tokens are counted up
to the first difference only, what follows being chance, and the yardstick is the baseline's agreement with itself
in another batch size: all prompts at once against one after the other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.rows import StartInfo

#: Token ids of the answers, in the order of PROMPTS.
Outputs = Sequence[Sequence[int]]

_THRESHOLDS = ("speculative-accept-threshold-single", "speculative-accept-threshold-acc")

#: Open-ended, of different kinds of text; a model's answer to none of them ends early.
PROMPTS = (
    "The lighthouse keeper wrote in his diary that evening:",
    "To bake bread without an oven, first",
    "def median(values):\n    ",
    "The three most common causes of a slow computer network are",
    "Paris is the capital of France. Canberra is the capital of",
    "1, 1, 2, 3, 5, 8, 13,",
    "Sehr geehrte Damen und Herren, hiermit möchte ich",
    "In 1969 the first people walked on the Moon. The mission",
    "SELECT name, count(*) FROM orders",
    "A triangle has sides of 3, 4 and 5 metres. Its area is",
    "Dear customer, thank you for your letter. We",
    "The difference between weather and climate is that",
)
#: Output tokens of each answer, the end of the text ignored.
OUTPUT_TOKENS = 40

#: A setting is only called wrong when it agrees less than the baseline with itself by this much ...
MATERIAL = 0.2
#: ... and by this many standard errors: with a dozen prompts a fork or two are chance.
STANDARD_ERRORS = 3.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """Share of the reference's tokens that an output repeats before it parts from it, over all prompts."""

    share: float
    #: Of the mean over prompts.
    standard_error: float

    def differs_from(self, own: Agreement) -> bool:
        """Whether this is too little for an output that is right; `own` is the reference's with itself.

        Broken output parts within a few tokens of every prompt and is far beyond both limits. Where the
        reference hardly agrees with itself, nothing is.
        """
        error = math.hypot(self.standard_error, own.standard_error)
        return self.share < own.share - max(MATERIAL, STANDARD_ERRORS * error)


def agreement(outputs: Outputs, reference: Outputs) -> Agreement | None:
    """Mean over the prompts of (tokens equal from the start / tokens of the reference).

    None where there is nothing to compare: no prompt, another number of them, an empty reference.
    """
    if len(outputs) != len(reference) or not all(reference):
        return None
    shares = [_equal_from_start(mine, theirs) / len(theirs) for mine, theirs in zip(outputs, reference, strict=True)]
    if not shares:
        return None
    mean = math.fsum(shares) / len(shares)
    squares = math.fsum((share - mean) ** 2 for share in shares)
    error = math.sqrt(squares / (len(shares) - 1) / len(shares)) if len(shares) > 1 else 0.0
    return Agreement(mean, error)


def lossy_thresholds(flags: Mapping[str, Any]) -> bool:
    """Whether drafted tokens may be accepted that the model would not have drawn.

    Greedy requests are verified by the best token alone, whatever the thresholds (0.5.23,
    speculative/eagle_utils.py): the prompts cannot show it, and at temperature 0 it does not happen.
    """
    return flags.get("speculative-algorithm") is not None and any(
        isinstance(value := flags.get(name), int | float) and value < 1 for name in _THRESHOLDS
    )


def judged(start: StartInfo, baseline: StartInfo | None, *, lossy: bool = False) -> StartInfo:
    """The start with its output compared with the baseline's; the baseline's own is compared with itself.

    `lossy`: the output is known to be another than the model's, however the comparison turns out.
    """
    start = _compared(start, baseline)
    return dataclasses.replace(start, output_differs=True) if lossy else start


def _compared(start: StartInfo, baseline: StartInfo | None) -> StartInfo:
    if baseline is None or start.outputs is None or baseline.outputs is None or baseline.outputs_alone is None:
        return start
    own = agreement(baseline.outputs_alone, baseline.outputs)
    found = agreement(start.outputs, baseline.outputs)
    if own is None or found is None:
        return start
    return dataclasses.replace(
        start,
        output_agreement=found.share,
        output_self_agreement=own.share,
        output_differs=found.differs_from(own),
    )


def _equal_from_start(mine: Sequence[int], theirs: Sequence[int]) -> int:
    count = 0
    for a, b in zip(mine, theirs, strict=False):
        if a != b:
            break
        count += 1
    return count
