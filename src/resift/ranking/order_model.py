"""The fitted model of the default order: the weights of the lists and of the reranker for a query.

`default_order.json` contains its coefficients and the collections that they were fitted on. A weight is a base
plus a few terms, each linear in one fact about the candidates of the query. The facts need no judgments and no
model call. docs/how-it-works.md explains them.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import NamedTuple

from resift.errors import InputError
from resift.ranking.evidence import correlation, mean_and_deviation
from resift.text.languages import detect, script_shares, scripts_of_languages
from resift.types import Languages

CODE_DENSITY, MEAN_WORD_LENGTH, OTHER_LANGUAGE = "code_density", "mean_word_length", "other_language"
CHUNK_SHARE = "chunk_share"
CODE_AGREEMENT, CODE_CONFIDENCE = "code_agreement", "code_confidence"
SCORER_AGREEMENT, SCORER_FIT = "scorer_agreement", "scorer_fit"
"""Facts that determine the weights; those about texts and lists are in `StageRecord.evidence`."""

SCRIPT = "script "  # prefix of facts about the share of letters in a script, such as "script cyrillic"

MIN_DEPTH, MAX_DEPTH = 6, 25  # minimum and maximum rerank depth

DEPTH_CUTOFF_SIGMA = 4.0
"""Hits that are this many standard deviations of the fused scores behind the first hit are not reranked."""

MAX_PROSE_DENSITY, MIN_CODE_DENSITY = 0.11, 0.165
"""Signs of code per word: at most the first number in prose, at least the second number in code."""

MAX_CHUNK_VARIATION, MIN_FUNCTION_VARIATION = 0.25, 0.35
"""Standard deviation of the lengths of code texts relative to their mean: at most the first number for chunks of
source files, which a splitter makes about equally long, and at least the second number for functions."""

MIN_CHUNKS = 6
"""Minimum number of texts from which chunks are recognized; a few functions may have similar lengths by chance."""

USUAL_AGREEMENT = 0.1  # correlation of keyword and vector search on code at which their weights are unchanged

MIN_SCORES = 6  # minimum number of reranked hits from which the agreement of the reranker is computed

FULL_AGREEMENT = 0.3
"""Minimum correlation with the first stage at which a reranker has its full weight. The cross-encoder has 0.56 to
0.95 on average, depending on the collection, and random scores have 0 ± 0.25 (benchmarks/train_order.py)."""

FULL_AGREEMENT_ON_FUNCTIONS = 0.5
"""The same among functions, where vector search decides, so that a reranker that contradicts it is often wrong."""

MIN_REASON = 0.1  # minimum change of a weight for which a fact is shown as the reason

_FACT_NAMES = {
    CODE_DENSITY: "code density", MEAN_WORD_LENGTH: "mean word length", OTHER_LANGUAGE: "another language",
    CODE_AGREEMENT: "agreement of the lists on code", CODE_CONFIDENCE: "confidence in the best hit",
    CHUNK_SHARE: "chunk share",
}  # fmt: skip

MAX_CHARACTERS = 450  # per text; enough to distinguish prose from code, and one language from another
MIN_WORDS = 30  # in all texts together; fewer words are not enough to distinguish prose from code
_MIN_LETTERS = 4  # minimum number of letters to determine the script of a query
_CODE_SIGNS = ("_", "=", ";", "{", "}", "()", "::", "->")
# Markup around prose: tags, URLs and email addresses, entities, mentions (`@ana_m`), hashtags (`#good_day`), rulers.
_MARKUP = re.compile(
    r"</?[A-Za-z][^<>]*>|https?://\S+|&#?\w{1,8};|(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)+"
    r"|(?<![\w@#])[@#]\w[\w.]*+|={4,}|_{4,}"
)
_MARKUP_SIGNS = ("<", "&", "@", "#", "://", "====", "____")
_ENGLISH = frozenset(b"a and for i in is it of that the to with you".split())
_MIN_ENGLISH_SHARE = 0.1  # of the words; it is a sixth to a third in English, a twentieth in related languages
_MIN_ENGLISH_WORDS = 4  # different words; `a`, `i` and `in` are also Italian words and names in formulas
# Translation table to lower-case ASCII, with a space for each character that is not a letter.
_LETTERS = bytes(ord(chr(i).lower()) if chr(i).isalpha() else 0x20 for i in range(128)).ljust(256)


class Term(NamedTuple):
    """One term of a weight: coefficient × (value − center) / scale, with the value clamped to a range."""

    fact: str
    coefficient: float
    center: float
    scale: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight between 0 and 1: the sum of a base and some terms."""

    base: float
    terms: tuple[Term, ...] = ()

    def __call__(self, facts: Mapping[str, float], shift: float = 0.0) -> float:
        """Return the weight for these facts."""
        total = math.fsum([self.base, shift, *[value for _, value in self.contributions(facts)]])
        return min(1.0, max(0.0, total))

    def contributions(self, facts: Mapping[str, float]) -> list[tuple[str, float]]:
        """Return the value of each term whose fact is known."""
        return [
            (fact, coefficient * (min(high, max(low, facts[fact])) - center) / scale)
            for fact, coefficient, center, scale, low, high in self.terms
            if math.isfinite(facts.get(fact, math.nan))
        ]


@dataclass(frozen=True, slots=True)
class OrderModel:
    """The model of the default order, as read from `default_order.json`.

    `dense_shift` and `reranker_shift` are added to the weights of vector search and of the reranker. `resift
    tune` learns them from judged queries on a collection.
    """

    dense: Weight
    reranker: Weight
    demotion: Weight
    neighbors: float
    trained: Mapping[str, object] = field(default_factory=dict, compare=False)
    dense_shift: float = 0.0
    reranker_shift: float = 0.0

    def shifted(self, dense: float = 0.0, reranker: float = 0.0) -> OrderModel:
        """Return the model with these shifts of its weights."""
        for name, value in (("dense_shift", dense), ("reranker_shift", reranker)):
            if not -1 <= value <= 1:
                raise InputError(f"{name} is {value}; use a number from -1 to 1.")
        return replace(self, dense_shift=dense, reranker_shift=reranker)

    def list_weights(
        self,
        retrieval_modes: Sequence[str],
        facts: Mapping[str, float],
        *,
        fits: Sequence[float] = (),
        dense_weight: float | None = None,
    ) -> list[float]:
        """Return the weight of each list according to its retrieval mode and language fit; they add up to 1.

        `dense_weight` replaces the fitted weight. Modes other than "lexical" and "dense" get the mean of the
        two weights. If no list fits, all lists get the same weight.
        """
        dense = self.dense(facts, self.dense_shift) if dense_weight is None else dense_weight
        by_mode = {"dense": dense, "lexical": 1 - dense}
        fits = fits or [1.0] * len(retrieval_modes)
        weights = [by_mode.get(mode, 0.5) * fit for mode, fit in zip(retrieval_modes, fits, strict=True)]
        total = math.fsum(weights)
        return [weight / total if total else 1 / len(weights) for weight in weights]

    def reranker_weight(self, facts: Mapping[str, float], languages: Languages = "any") -> tuple[float, str]:
        """Return the weight of a reranker that was trained on these languages, and the main reason.

        The weight is 0 for a script that the reranker was not trained on, and for scores that do not agree
        with the first stage at all.
        """
        fit = language_fit(languages, facts)
        if not fit:
            return 0.0, "it was not trained on this script"
        other = facts.get(OTHER_LANGUAGE, 0.0) if languages == ("en",) else 0.0
        known = {**facts, OTHER_LANGUAGE: other}
        weight = fit * self.reranker(known, self.reranker_shift)
        values = [(abs(value), fact, value) for fact, value in self.reranker.contributions(known)]
        size, fact, value = max(values, default=(0.0, "", 0.0))
        reason = ""
        if size >= MIN_REASON:
            reason = f"{'more' if value > 0 else 'less'} because of {_FACT_NAMES[fact]} {known[fact]:.2g}"
        scorer_fit = facts.get(SCORER_FIT, 1.0)
        if scorer_fit < 1:
            reason = f"less because of low agreement with the first stage: {facts[SCORER_AGREEMENT]:.2f}"
        return weight * scorer_fit, reason


@cache
def default_model() -> OrderModel:
    """Return the model that ships with this version."""
    text = resources.files("resift.ranking").joinpath("default_order.json").read_text(encoding="utf-8")
    return read_model(json.loads(text))


def read_model(data: Mapping[str, object]) -> OrderModel:
    """Return the model for plain data in the format of `default_order.json`."""

    def weight(name: str) -> Weight:
        row: Mapping[str, object] = data[name]  # type: ignore[assignment]
        terms = [Term(fact, *numbers) for fact, numbers in row.get("terms", {}).items()]  # type: ignore[attr-defined]
        return Weight(float(row["base"]), tuple(terms))  # type: ignore[arg-type]

    return OrderModel(
        weight("dense"),
        weight("reranker"),
        weight("demotion"),
        float(data["neighbors"]),  # type: ignore[arg-type]
        data.get("trained", {}),  # type: ignore[arg-type]
    )


def rerank_depth(scores: Sequence[float], *, max_depth: int = MAX_DEPTH) -> int:
    """Return the number of top fused hits that are worth reranking; `scores` are the fused scores, best first.

    Hits far behind the first hit are unlikely to reach the top, so a confident first stage needs little reranking.
    """
    if not scores:
        return 0
    mean = math.fsum(scores) / len(scores)
    deviation = math.hypot(*[score - mean for score in scores]) / math.sqrt(len(scores))
    threshold = scores[0] - DEPTH_CUTOFF_SIGMA * deviation
    near = sum(score >= threshold for score in scores[:max_depth])
    return min(len(scores), max_depth, max(MIN_DEPTH, near))


def list_facts(lexical: Sequence[float], dense: Sequence[float], facts: Mapping[str, float]) -> dict[str, float]:
    """Return the agreement of keyword and vector search on code: the correlation of their z-scores over the pool.

    It is relative to a usual correlation of 0.1: vectors that do not agree at all do not capture the meaning of
    the code. It is scaled down for texts between prose and code, and for chunks of source files, where the
    agreement is not informative. `facts` are those of `text_facts`.
    """
    function_share = _function_share(facts)
    if not function_share:
        return {}
    return {CODE_AGREEMENT: function_share * (correlation(lexical, dense) - USUAL_AGREEMENT)}


def scorer_facts(
    logits: Sequence[float], first_stage: Sequence[float], facts: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Return the agreement of a reranker with the first stage, and its confidence among functions.

    The agreement is the rank correlation; the factor that follows from it is from 0 to 1. Scores without
    information do not correlate with the first stage. Ranks do not depend on the scale of the scores, and a
    reranker that promotes one hit from the end of the list still agrees on the others. With fewer than 6 hits,
    there is no agreement.

    The confidence is the share of the best hit in the sum of exp(logit). It is scaled down for texts between
    prose and code, and for chunks of source files. `facts` are those of `text_facts`.
    """
    found: dict[str, float] = {}
    # No call for prose, where the share is 0.
    function_share = _function_share(facts) if facts and facts.get(CODE_DENSITY, 0.0) > MAX_PROSE_DENSITY else 0.0
    if function_share and logits:
        best = max(logits)
        found[CODE_CONFIDENCE] = function_share / math.fsum([math.exp(value - best) for value in logits])
    if len(logits) < MIN_SCORES:
        return found
    columns = []
    for values in (logits, first_stage):
        ordered = sorted(values)  # equal values get the mean of their ranks
        columns.append([(bisect_left(ordered, value) + bisect_right(ordered, value)) / 2 for value in values])
    agreement = correlation(*columns)
    full = FULL_AGREEMENT + function_share * (FULL_AGREEMENT_ON_FUNCTIONS - FULL_AGREEMENT)
    return {**found, SCORER_AGREEMENT: agreement, SCORER_FIT: min(1.0, max(0.0, agreement / full))}


def text_facts(texts: Sequence[str], query: str = "") -> dict[str, float]:
    """Return facts about the texts of a pool: code density, word length, language and scripts.

    With fewer than 30 words, there is no code density and no word length. The share of a script is the smaller
    of its shares in the texts and in the query. Code whose texts are about equally long has a chunk share: 1 for
    chunks of source files, and less for texts between chunks and functions or between code and prose.
    """
    starts = [text[:MAX_CHARACTERS] for text in texts]
    shares = script_shares(starts)
    if sum(map(str.isalpha, query)) >= _MIN_LETTERS:
        in_query = script_shares([query])
        shares = {name: min(shares.get(name, 0.0), in_query[name]) for name in in_query} if shares else in_query
    facts = {f"{SCRIPT}{name}": share for name, share in shares.items()}
    plain = joined = "\n".join(starts)  # one pass over the joined texts takes a third of the time of separate passes
    signs = [sign for sign in _MARKUP_SIGNS if sign in joined]
    if signs:  # the pattern is slow, and most prose has no markup
        plain = "\n".join([_MARKUP.sub(" ", s) if any(sign in s for sign in signs) else s for s in starts])
    count = len(plain.split())
    letters = plain.encode("ascii", "replace").translate(_LETTERS)
    words = letters.split()
    if count >= MIN_WORDS:
        facts[CODE_DENSITY] = density = sum(map(plain.count, _CODE_SIGNS)) / count
        if density > MAX_PROSE_DENSITY and len(texts) >= MIN_CHUNKS:
            mean, deviation = mean_and_deviation([len(text) for text in texts])
            above = (deviation / mean - MAX_CHUNK_VARIATION) / (MIN_FUNCTION_VARIATION - MAX_CHUNK_VARIATION)
            if above < 1:
                facts[CHUNK_SHARE] = _code_share(density) * (1 - max(0.0, above))
    if len(words) >= MIN_WORDS:
        english = list(filter(_ENGLISH.__contains__, words))
        if len(english) >= _MIN_ENGLISH_SHARE * len(words) and len(set(english)) >= _MIN_ENGLISH_WORDS:
            facts[MEAN_WORD_LENGTH] = (len(letters) - letters.count(b" ")) / len(words)
        else:
            detected = detect(set(joined.lower().split()))
            latin = detected.get("latin")
            facts[OTHER_LANGUAGE] = float(latin is not None and latin.sure and latin.language != "english")
    return facts


def language_fit(languages: Languages, facts: Mapping[str, float]) -> float:
    """Return the fit of a model from 0 to 1, by the share of letters in scripts of its languages.

    It is 1 from a share of 80 % upward, and 0 up to a share of 50 %.
    """
    shares = {name.removeprefix(SCRIPT): share for name, share in facts.items() if name.startswith(SCRIPT)}
    if languages == "any" or not shares:
        return 1.0
    known = math.fsum(shares.get(script, 0.0) for script in scripts_of_languages(languages))
    return min(1.0, max(0.0, (known - 0.5) / 0.3))


def _function_share(facts: Mapping[str, float]) -> float:
    """Return how much the texts are functions: code, but not chunks of source files."""
    density = facts.get(CODE_DENSITY, 0.0)
    return max(0.0, _code_share(density) - facts.get(CHUNK_SHARE, 0.0)) if density > MAX_PROSE_DENSITY else 0.0


def _code_share(density: float) -> float:
    """Return 0 for the code density of prose, 1 for that of code, and a linear value in between."""
    return min(1.0, max(0.0, (density - MAX_PROSE_DENSITY) / (MIN_CODE_DENSITY - MAX_PROSE_DENSITY)))
