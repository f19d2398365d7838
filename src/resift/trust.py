"""Trust: how far each list, and the reranker, is followed for one question (findings: docs/blending.md).

Pure functions on what the question's own pool says; no judgements, no I/O.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from resift.errors import InputError
from resift.options import check_values, option

MARKS = "marks per word"
"""The name of that evidence in the trace."""

_WORD = re.compile(r"\w+")
# ASCII only: the full stops of scripts without spaces say nothing about code. Not "_", which joins words.
_MARK = re.compile(r"[!-/:-@\[-^`{-~]")
_READ = 1000  # characters of a text: enough to tell prose from code
_ENOUGH = 30  # words in all, or nothing can be told


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The numbers behind the default order."""

    vectors: float = option(
        "Part of a list found by vectors, beside one found by words.", default=0.55, least=0, most=1
    )
    vectors_in_code: float = option("The same where the texts are no prose.", default=0.9, least=0, most=1)
    unsure: float = option("Weight of a reranker to which all is alike.", default=0.75, least=0, most=1)
    sure: float = option("Its weight when one hit takes all.", default=0.87, least=0, most=1)
    prose: float = option("Marks per word up to which a text is prose.", default=0.45, least=0)
    code: float = option("Marks per word from which on it is none.", default=0.7, least=0)
    reach: float = option(
        "Hits further behind the first than this many standard deviations of the fused scores are not read.",
        default=4.0,
        least=0,
    )
    least: int = option("How many are read whatever the scores say.", default=6, least=1)
    most: int = option("How many are read at the most.", default=25, least=1)

    def __post_init__(self) -> None:
        check_values(self)
        if not self.prose < self.code:
            raise InputError(f"Trust prose is {self.prose} and code {self.code}; use 0 ≤ prose < code.")
        if not self.least <= self.most:
            raise InputError(f"Trust least is {self.least} and most {self.most}; use 1 ≤ least ≤ most.")

    def prose_part(self, marks: float) -> float:
        """Return how much like prose texts with so many marks per word are: 1 is prose, 0 is code."""
        return min(1.0, max(0.0, (self.code - marks) / (self.code - self.prose)))


def marks_per_word(texts: Collection[str]) -> float:
    """Return how many punctuation marks the texts have per word: about 0.2 in prose, 0.9 in code.

    0 where there is too little text to tell.
    """
    begun = [text[:_READ] for text in texts]
    words = sum(len(_WORD.findall(text)) for text in begun)
    return sum(len(_MARK.findall(text)) for text in begun) / words if words >= _ENOUGH else 0.0


def list_weights(searched: Sequence[str], rules: Trust, *, marks: float) -> list[float]:
    """Return the weight of each list by how it was found ("doc", "vector", …); they add up to 1.

    Words of a question are seldom those of code, so there vectors count for more. Lists of any other kind
    count like the mean of the two.
    """
    prose = rules.prose_part(marks)
    vectors = rules.vectors * prose + rules.vectors_in_code * (1 - prose)
    by_kind = {"vector": vectors, "doc": 1 - vectors}
    shares = [by_kind.get(kind, 0.5) for kind in searched]
    whole = math.fsum(shares)
    # Only lists that count for nothing: then each counts like the others.
    return [share / whole if whole else 1 / len(shares) for share in shares]


def reranker_weight(logits: Sequence[float], rules: Trust, *, marks: float) -> float:
    """Return how much the reranker counts: more where one hit stands out for it, less where texts are code.

    It stands out by its share of exp(logit) over all that was read, squared: half a share is no certainty.
    """
    best = max(logits)
    share = 1 / math.fsum(math.exp(value - best) for value in logits)
    return rules.prose_part(marks) * (rules.unsure + (rules.sure - rules.unsure) * share**2)


def reading_depth(scores: Sequence[float], rules: Trust, *, marks: float) -> int:
    """Return how many of the fused hits, best first, are worth reading; 0 where the texts are code.

    What stands far behind the first would hardly come forward: a sure first stage needs little reading.
    """
    if not scores or not rules.prose_part(marks):
        return 0
    mean = math.fsum(scores) / len(scores)
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
    near = sum(score >= scores[0] - rules.reach * deviation for score in scores[: rules.most])
    return min(len(scores), max(rules.least, near))


def weights_in_words(weights: Mapping[str, float], rules: Trust, *, marks: float) -> str:
    """Return the weights in words, and why where it is worth saying."""
    counted = ", ".join(f"{name} counted {weight:.2g}" for name, weight in weights.items())
    prose = rules.prose_part(marks)
    if prose == 1:
        return counted
    return f"{counted}: {marks:.2g} marks per word, {'no prose' if prose == 0 else 'hardly prose'}"
