"""Trust: how far each list, and the reranker, is followed for one question (findings: docs/blending.md).

Pure functions on what the question's own pool says; no judgements, no I/O.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from resift.errors import InputError
from resift.validation import check_options, option

CODE_DENSITY = "code_density"
MEAN_WORD_LENGTH = "mean_word_length"
"""Keys of that evidence in the trace."""

_WORD = re.compile(r"\w+")
# Names joined to names, calls, assignments, ends of statements: `a.b`, `f(x`, `p->q`, `a_b`, `f()`, `=`, `;`.
# Marks of sentences, quotes, dates and tables are in talk, lists and records too. ASCII, as programs are.
# Each alternative starts with a rare character and looks back from it: `re` then skips letters quickly.
_MARK = re.compile(
    "|".join(
        rf"{re.escape(mark)}(?<=[A-Za-z0-9_)\]]{re.escape(mark)})(?<!\(\){re.escape(mark)})(?=[A-Za-z_])"
        for mark in (".", "::", "->", "(", "[")
    )
    + r"|\(\)|_(?=[A-Za-z0-9])|==*|;;*"
)
# What prose is wrapped in: tags, addresses, entities, names of people (`@ana_m`) and topics (`#good_day`).
_WRAPPING = re.compile(
    r"</?[A-Za-z][^<>]*>|https?://\S+|&#?\w{1,8};|(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)+|(?<![\w@#])[@#]\w[\w.]*+"
)
_READ = 1000  # characters of a text: enough to tell prose from code
_ENOUGH = 30  # words in all, or nothing can be told

_PLAIN = re.compile(r"[a-z]+")
# ASCII text, lowercase, with a space for each character outside a word, or outside a run of letters.
_WORD_BYTES = bytes(i if chr(i).isalnum() or i == 0x5F else 0x20 for i in range(128)).ljust(256)
_LETTER_BYTES = bytes(ord(chr(i).lower()) if chr(i).isalpha() else 0x20 for i in range(128)).ljust(256)
_USUAL = 5.0  # letters per word of English where nothing is told
# A sixth to a third of the words of English, be it talk or abstracts; a twentieth of those of its neighbours.
_ENGLISH = frozenset(b"a and for i in is it of that the to with you".split())
_SOME = 0.1  # the part of these words from which on a text is English
_SEVERAL = 4  # different ones: `a`, `i` and `in` are words of Italian too, and names in formulas and tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The numbers behind the default order."""

    vectors: float = option(
        "Part of a list found by vectors, beside one found by words.", default=0.55, min=0, max=1
    )
    vectors_in_code: float = option("The same where the texts are no prose.", default=0.9, min=0, max=1)
    followed: float = option("Weight of a reranker where words are plain.", default=0.95, min=0, max=1)
    doubted: float = option("Its weight where they are technical.", default=0.5, min=0, max=1)
    plain: float = option("Letters per word up to which words are plain.", default=4.2, min=0)
    technical: float = option("Letters per word from which on they are technical.", default=6.0, min=0)
    sinking: float = option(
        "How far a hit sinks for weak neighbours where words are technical, as part of how far it rises.",
        default=0.5,
        min=0,
        max=1,
    )
    prose: float = option("Marks of code per word up to which a text is prose.", default=0.15, min=0)
    code: float = option("Marks of code per word from which on it is none.", default=0.22, min=0)
    reach: float = option(
        "Hits further behind the first than this many standard deviations of the fused scores are not read.",
        default=4.0,
        min=0,
    )
    least: int = option("How many are read whatever the scores say.", default=6, min=1)
    most: int = option("How many are read at the most.", default=25, min=1)

    def __post_init__(self) -> None:
        check_options(self)
        if not self.prose < self.code:
            raise InputError(f"Trust prose is {self.prose} and code {self.code}; use 0 ≤ prose < code.")
        if not self.plain < self.technical:
            raise InputError(
                f"Trust plain is {self.plain} and technical {self.technical}; use 0 ≤ plain < technical."
            )
        if not self.least <= self.most:
            raise InputError(f"Trust least is {self.least} and most {self.most}; use 1 ≤ least ≤ most.")

    def prose_part(self, marks: float) -> float:
        """Return how much like prose texts with so many marks of code per word are: 1 is prose, 0 is code."""
        return min(1.0, max(0.0, (self.code - marks) / (self.code - self.prose)))

    def plain_part(self, letters: float) -> float:
        """Return how plain texts of so long words are: 1 is everyday's language, 0 a field's own."""
        return min(1.0, max(0.0, (self.technical - letters) / (self.technical - self.plain)))


def text_evidence(texts: Collection[str]) -> tuple[float, float | None]:
    """Return `marks_per_word` and `letters_per_word` of the texts, reading each text once."""
    words = lowercase_words = marks = 0
    plain: list[bytes] = []
    for text in texts:
        start = _unwrapped(text)
        marks += len(_MARK.findall(start))
        if start.isascii():
            encoded = start.encode()
            count = lowercase_count = len(encoded.translate(_WORD_BYTES).split())
            plain += encoded.translate(_LETTER_BYTES).split()
        else:
            # Lowercase can split a word: "İ" becomes "i" and a combining dot.
            lowercase = start.lower()
            count, lowercase_count = len(_WORD.findall(start)), len(_WORD.findall(lowercase))
            plain += [word.encode() for word in _PLAIN.findall(lowercase)]
        words += count
        lowercase_words += lowercase_count
    return (marks / words if words >= _ENOUGH else 0.0), _mean_length(plain, lowercase_words)


def _mean_length(plain: Sequence[bytes], words: int) -> float | None:
    if words < _ENOUGH:
        return None
    small = [word for word in plain if word in _ENGLISH]
    if len(plain) < _ENOUGH or len(small) < _SOME * len(plain) or len(set(small)) < _SEVERAL:
        return 0.0
    return sum(map(len, plain)) / len(plain)


def marks_per_word(texts: Collection[str]) -> float:
    """Return how many marks of code the texts have per word: about 0.01 in prose, 0.3 in code.

    0 where there is too little text to tell.
    """
    return text_evidence(texts)[0]


def letters_per_word(texts: Collection[str]) -> float | None:
    """Return how long the words of English texts are: about 4 in talk, 5 in news, 5.7 in medical abstracts.

    0 where the words are not English: their length tells nothing. None where there is too little text.
    """
    return text_evidence(texts)[1]


def _unwrapped(text: str) -> str:
    """Return the beginning of a text without what it is wrapped in."""
    start = text[:_READ]
    # Each kind of wrapping has one of these; prose has none of them, and the expression is slow.
    if "<" in start or "&" in start or "@" in start or "#" in start or "://" in start:
        return _WRAPPING.sub(" ", start)
    return start


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


def reranker_weight(
    rules: Trust, *, marks: float, letters: float | None, english_only: bool = False
) -> float:
    """Return how much a reranker counts: the more, the plainer the words of the texts; not at all in code.

    Rerankers learn from questions of everyday. Long words are a field's own, which the lists know as well:
    words find them, and vectors what is near. Words of other languages (0 letters) are as far from everyday
    for a reranker that learnt from English only.
    """
    if letters == 0 and english_only:
        letters = rules.technical
    plain = rules.plain_part(letters or _USUAL)
    return rules.prose_part(marks) * (rules.doubted + (rules.followed - rules.doubted) * plain)


def sinking_part(rules: Trust, *, letters: float | None) -> float:
    """Return how far a hit sinks for weak neighbours, as part of how far it rises for strong ones.

    In a field's literature a question has many answers, and they are alike: what stands among strangers is
    rarely one. Where words are plain there is often one answer, and it may well stand alone.
    """
    return rules.sinking * (1 - rules.plain_part(letters)) if letters else 0.0


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
    return f"{counted}: {marks:.2g} marks of code per word, {'no prose' if prose == 0 else 'hardly prose'}"
