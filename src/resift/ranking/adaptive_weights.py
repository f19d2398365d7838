"""Adaptive weights: how much each list and the reranker count for one query (findings: docs/how-it-works.md).

Pure functions of the texts and scores of the query's own candidates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from resift.errors import InputError
from resift.validation import accept_aliases, check_options, option

CODE_DENSITY = "code_density"
MEAN_WORD_LENGTH = "mean_word_length"
"""Keys of that evidence in the trace."""

_WORD = re.compile(r"\w+")
# Signs of code: `a.b`, `f(x`, `p->q`, `a_b`, `f()`, `=`, `;`. Punctuation of sentences, quotes, dates and
# tables does not count. ASCII, as programs are.
# Each alternative starts with a rare character and looks back from it: `re` then skips letters quickly.
_MARK = re.compile(
    "|".join(
        rf"{re.escape(mark)}(?<=[A-Za-z0-9_)\]]{re.escape(mark)})(?<!\(\){re.escape(mark)})(?=[A-Za-z_])"
        for mark in (".", "::", "->", "(", "[")
    )
    + r"|\(\)|_(?=[A-Za-z0-9])|==*|;;*"
)
# Markup around prose: tags, addresses, entities, names of people (`@ana_m`) and topics (`#good_day`).
_MARKUP = re.compile(
    r"</?[A-Za-z][^<>]*>|https?://\S+|&#?\w{1,8};|(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)+|(?<![\w@#])[@#]\w[\w.]*+"
)
_MAX_CHARACTERS = 1000  # of each text: enough to tell prose from code
_MIN_WORDS = 30  # in all texts together

_PLAIN = re.compile(r"[a-z]+")
# ASCII text, lowercase, with a space for each character outside a word, or outside a run of letters.
_WORD_BYTES = bytes(i if chr(i).isalnum() or i == 0x5F else 0x20 for i in range(128)).ljust(256)
_LETTER_BYTES = bytes(ord(chr(i).lower()) if chr(i).isalpha() else 0x20 for i in range(128)).ljust(256)
_USUAL_WORD_LENGTH = 5.0
# A sixth to a third of the words of any English text, and a twentieth in related languages.
_ENGLISH = frozenset(b"a and for i in is it of that the to with you".split())
_MIN_ENGLISH_SHARE = 0.1
_MIN_ENGLISH_WORDS = 4  # different ones: `a`, `i` and `in` are also Italian words and names in formulas


@accept_aliases
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveWeights:
    """The numbers behind the default order: weights of lists and reranker, and the rerank depth."""

    dense_weight: float = option(
        "Weight of vector search next to keyword search.", default=0.55, min=0, max=1, aliases=["vectors"]
    )
    dense_weight_in_code: float = option(
        "The same for texts that are code.", default=0.9, min=0, max=1, aliases=["vectors_in_code"]
    )
    max_reranker_weight: float = option(
        "Weight of the reranker for texts of short words.", default=0.95, min=0, max=1, aliases=["followed"]
    )
    min_reranker_weight: float = option(
        "Weight of the reranker for texts of long words.", default=0.5, min=0, max=1, aliases=["doubted"]
    )
    short_word_length: float = option(
        "Mean word length up to which the language is plain.", default=4.2, min=0, aliases=["plain"]
    )
    long_word_length: float = option(
        "Mean word length from which the language is technical.", default=6.0, min=0, aliases=["technical"]
    )
    neighbor_demotion: float = option(
        "How far weak neighbors demote a hit in technical texts, as a share of how far strong ones lift it.",
        default=0.5,
        min=0,
        max=1,
        aliases=["sinking"],
    )
    max_prose_code_density: float = option(
        "Code density up to which a text is prose.", default=0.15, min=0, aliases=["prose"]
    )
    min_code_density: float = option(
        "Code density from which a text is code.", default=0.22, min=0, aliases=["code"]
    )
    depth_cutoff_sigma: float = option(
        "Hits this many standard deviations of the fused scores behind the first are not reranked.",
        default=4.0,
        min=0,
        aliases=["reach"],
    )
    min_depth: int = option("Smallest rerank depth.", default=6, min=1, aliases=["least"])
    max_depth: int = option("Largest rerank depth.", default=25, min=1, aliases=["most"])

    def __post_init__(self) -> None:
        check_options(self)
        self._check_order("max_prose_code_density", "min_code_density")
        self._check_order("short_word_length", "long_word_length")
        if self.min_depth > self.max_depth:
            raise InputError(
                f"AdaptiveWeights min_depth is {self.min_depth} and max_depth {self.max_depth}; "
                "use min_depth ≤ max_depth."
            )

    def _check_order(self, lower: str, upper: str) -> None:
        low, high = getattr(self, lower), getattr(self, upper)
        if not low < high:
            raise InputError(f"AdaptiveWeights {lower} is {low} and {upper} {high}; use {lower} < {upper}.")

    def prose_weight(self, code_density: float) -> float:
        """Return 1 for texts with the code density of prose, 0 for code, and values between for mixtures."""
        low, high = self.max_prose_code_density, self.min_code_density
        return min(1.0, max(0.0, (high - code_density) / (high - low)))

    def plain_language_weight(self, mean_word_length: float) -> float:
        """Return 1 for texts of short, everyday words and 0 for technical language."""
        low, high = self.short_word_length, self.long_word_length
        return min(1.0, max(0.0, (high - mean_word_length) / (high - low)))


Trust = AdaptiveWeights  # OLD NAME: remove


def text_evidence(texts: Collection[str]) -> tuple[float, float | None]:
    """Return `code_density` and `mean_word_length` of the texts in one pass."""
    words = lowercase_words = marks = 0
    letters: list[bytes] = []
    for text in texts:
        start = text[:_MAX_CHARACTERS]
        # Every kind of markup contains one of these characters, most prose none, and the pattern is slow.
        if "<" in start or "&" in start or "@" in start or "#" in start or "://" in start:
            start = _MARKUP.sub(" ", start)
        marks += len(_MARK.findall(start))
        if start.isascii():
            encoded = start.encode()
            count = lowercase_count = len(encoded.translate(_WORD_BYTES).split())
            letters += encoded.translate(_LETTER_BYTES).split()
        else:
            # Lowercase can split a word: "İ" becomes "i" and a combining dot.
            lowercase = start.lower()
            count, lowercase_count = len(_WORD.findall(start)), len(_WORD.findall(lowercase))
            letters += [word.encode() for word in _PLAIN.findall(lowercase)]
        words += count
        lowercase_words += lowercase_count
    density = marks / words if words >= _MIN_WORDS else 0.0
    if lowercase_words < _MIN_WORDS:
        return density, None
    english = list(filter(_ENGLISH.__contains__, letters))
    is_english = len(english) >= _MIN_ENGLISH_SHARE * len(letters) and len(set(english)) >= _MIN_ENGLISH_WORDS
    if len(letters) < _MIN_WORDS or not is_english:
        return density, 0.0
    return density, sum(map(len, letters)) / len(letters)


def code_density(texts: Collection[str]) -> float:
    """Return the signs of code per word: about 0.01 in prose, 0.3 in code; 0 for less than 30 words."""
    return text_evidence(texts)[0]


def mean_word_length(texts: Collection[str]) -> float | None:
    """Return the mean word length of English texts: about 4 in talk, 5 in news, 5.7 in medical abstracts.

    0 for other languages, None for less than 30 words.
    """
    return text_evidence(texts)[1]


marks_per_word, letters_per_word = code_density, mean_word_length  # OLD NAMES: remove


def list_weights(
    retrieval_modes: Sequence[str],
    rules: AdaptiveWeights,
    *,
    code_density: float = 0.0,
    marks: float | None = None,  # OLD NAME: remove
) -> list[float]:
    """Return the weight of each list by its retrieval mode; they add up to 1.

    Queries seldom share words with code, so vector search counts for more there. Other modes than "lexical"
    and "dense" count like the mean of the two.
    """
    prose = rules.prose_weight(code_density if marks is None else marks)
    dense = rules.dense_weight * prose + rules.dense_weight_in_code * (1 - prose)
    by_mode = {"dense": dense, "lexical": 1 - dense, "vector": dense, "doc": 1 - dense}
    weights = [by_mode.get(mode, 0.5) for mode in retrieval_modes]
    total = math.fsum(weights)
    # If all weights are 0, the lists count the same.
    return [weight / total if total else 1 / len(weights) for weight in weights]


def reranker_weight(
    rules: AdaptiveWeights,
    *,
    code_density: float,
    mean_word_length: float | None,
    english_only: bool = False,
) -> float:
    """Return the weight of the reranker: high for plain language, low for technical language, 0 for code.

    Rerankers are trained on everyday queries, while the lists handle technical terms well. Texts in other
    languages (mean word length 0) count as technical for a reranker that was trained on English only.
    """
    if mean_word_length == 0 and english_only:
        mean_word_length = rules.long_word_length
    plain = rules.plain_language_weight(mean_word_length or _USUAL_WORD_LENGTH)
    low, high = rules.min_reranker_weight, rules.max_reranker_weight
    return rules.prose_weight(code_density) * (low + (high - low) * plain)


def demotion_factor(rules: AdaptiveWeights, *, mean_word_length: float | None) -> float:
    """Return how far weak neighbors demote a hit, as a share of how far strong ones lift it.

    A technical query has many answers that resemble each other, so an isolated hit is rarely one of them.
    A query in plain language often has a single answer, which may well be isolated.
    """
    if not mean_word_length:
        return 0.0
    return rules.neighbor_demotion * (1 - rules.plain_language_weight(mean_word_length))


def rerank_depth(scores: Sequence[float], rules: AdaptiveWeights, *, code_density: float) -> int:
    """Return how many of the fused hits, best first, are worth reranking; 0 for code.

    Hits far behind the first would hardly reach the top, so a confident first stage needs little reranking.
    """
    if not scores or not rules.prose_weight(code_density):
        return 0
    mean = math.fsum(scores) / len(scores)
    deviation = math.sqrt(math.fsum([(score - mean) ** 2 for score in scores]) / len(scores))
    threshold = scores[0] - rules.depth_cutoff_sigma * deviation
    near = sum(score >= threshold for score in scores[: rules.max_depth])
    return min(len(scores), max(rules.min_depth, near))


def describe_weights(
    weights: Mapping[str, float],
    rules: AdaptiveWeights,
    *,
    code_density: float = 0.0,
    marks: float | None = None,  # OLD NAME: remove
) -> str:
    """Return the weights as text, with the reason unless the texts are plain prose."""
    density = code_density if marks is None else marks
    text = ", ".join(f"{name} weight {weight:.2g}" for name, weight in weights.items())
    prose = rules.prose_weight(density)
    if prose == 1:
        return text
    return f"{text}: {density:.2g} signs of code per word, {'code' if prose == 0 else 'mixed with code'}"


weights_in_words, reading_depth = describe_weights, rerank_depth  # OLD NAMES: remove
