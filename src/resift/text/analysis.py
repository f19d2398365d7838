"""Analyze texts into index terms, and queries into the terms that match them.

A store uses it like this:

    analyzer = Analyzer(language)                      # "auto", a Snowball language, or "none"
    analysis = analyzer.analyze(text)                  # per document: .terms to index, .languages to remember
    words = analyzer.query_words(query, languages=…)   # the union of .languages over the indexed documents

The language of a short query is often unclear, so `languages` lists the stemmers of the index, and each word
is stemmed by each of them. Without it, the detected language and the default of the script are used.
`query_terms` returns the same as one list, for engines with their own ranking. Terms contain no white space.
A store saves `analyzer.version`: terms of another version differ.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from types import ModuleType
from typing import NamedTuple, Protocol, TypeVar

from resift._internal.arrays import Array
from resift._internal.forking import ForkSafeLock
from resift.errors import InputError, did_you_mean
from resift.text.languages import SCRIPT_DEFAULTS, Detected, detect, script_of, script_of_language, stop_words
from resift.text.tokenization import (
    FIRST_UNSPACED,
    ascii_pieces,
    is_unspaced,
    pairs,
    pieces,
    without_accents,
    word_characters,
)

_MAX_CACHED_WORDS = 200_000  # per language; then the cache is cleared
_MAX_CACHED_LETTERS = 60  # longer words do not repeat, and would take much memory
_MAX_UNSTEMMED = 2  # letters; "is" and "as" have no ending
# English uses the first Porter stemmer, as SQLite's index does, with the two rules that Porter added later.
_ADDED_ENDINGS = ("bli", "logi")
_SYLLABLE = re.compile("[aeiouy][^aeiouy]")
_ALGORITHMS = {"english": "porter"}

N = TypeVar("N", float, Array)


class _Stemmer(Protocol):
    """A stemmer of Snowball."""

    def stemWord(self, word: str, /) -> str: ...  # noqa: N802 - its name there


class Terms(dict[str, str]):
    """Word -> index term of one language, computed on first use."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._folds_first = language == "english"
        self._stemmer: _Stemmer | None = None
        if language in stemmed_languages():
            self._stemmer = _snowball().Stemmer(_ALGORITHMS.get(language, language), 0)
        self._lock = ForkSafeLock()

    def __missing__(self, word: str) -> str:
        return _cache(self, word, self._term(word))

    def _term(self, word: str) -> str:
        if self._stemmer is None or len(word) <= _MAX_UNSTEMMED:
            return without_accents(word)
        # All stemmers but the English one expect accents.
        spelled = without_accents(word) if self._folds_first else word
        with self._lock:  # Snowball's objects are not thread-safe
            stem = self._stemmer.stemWord(spelled[:100])
        if self._folds_first and stem.endswith(_ADDED_ENDINGS) and _SYLLABLE.search(stem[:-3]):
            stem = stem[:-1]
        return without_accents(stem) or without_accents(word)


class TermsByScript(dict[str, str]):
    """Word -> index term for texts of several scripts, each with its language."""

    def __init__(self, languages: Mapping[str, str]) -> None:
        super().__init__()
        self._languages = languages

    def __missing__(self, word: str) -> str:
        return _cache(self, word, terms_in(self.language_of(word))[word])

    def language_of(self, word: str) -> str:
        """Return the language by which a word is stemmed."""
        return self._languages.get(script_of(word), "none")


def _cache(terms: dict[str, str], word: str, term: str) -> str:
    if len(terms) >= _MAX_CACHED_WORDS:
        terms.clear()
    if len(word) <= _MAX_CACHED_LETTERS:
        terms[word] = term
    return term


@lru_cache(maxsize=64)
def terms_by_script(languages: tuple[tuple[str, str], ...]) -> TermsByScript:
    """Return the terms for (script, language) pairs."""
    return TermsByScript(dict(languages))


@cache
def terms_in(language: str) -> Terms:
    """Return the terms of a language; words of a language without a stemmer are only folded."""
    return Terms(language)


@cache
def stemmed_languages() -> frozenset[str]:
    """Return the languages with a stemmer."""
    return frozenset(_snowball().algorithms()) - {"porter", "dutch_porter"}


def check_language(language: str) -> None:
    """Raise InputError for a language that is not "auto", "none" or one of Snowball's."""
    if language in ("auto", "none"):
        return
    if not isinstance(language, str):
        raise InputError(f"The language is {language!r}; pass its name.")
    if language not in stemmed_languages():
        known = did_you_mean(language, stemmed_languages())
        raise InputError(f"Unknown language {language!r}. {known} auto detects it, and none does not stem.")


def _snowball() -> ModuleType:
    return importlib.import_module("Stemmer")  # not at the top: `import resift` loads no other package


def plural_variants(word: str) -> tuple[str, ...]:
    """Return the word with its English singular and plural spellings.

    Adding variants to the few words of a query is cheaper than stemming every word of every text.
    """
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return (word,)
    singular = _singular(word)
    plurals = [singular + "s", singular + "es"]
    if singular.endswith("y"):
        plurals.append(singular[:-1] + "ies")
    return tuple(dict.fromkeys((word, singular, *plurals)))


def _singular(word: str) -> str:
    """Strip a plural ending (the rules of Harman's S stemmer, 1991)."""
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    if word.endswith("es") and not word.endswith(("aes", "ees", "oes")):
        return word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")):
        return word[:-1]
    return word


_FORMAT = 1  # raise it when the terms of a text change


class Analysis(NamedTuple):
    """The index terms of a text in order, and the languages by which they were stemmed."""

    terms: list[str]
    languages: frozenset[str]


@dataclass(frozen=True, slots=True)
class Analyzer:
    """Splits, folds and stems words of any script; the same for documents and queries.

    `language` is "auto" (detected per text, by default English), a Snowball language for all texts, or "none"
    for no stemming.
    """

    language: str = "auto"

    def __post_init__(self) -> None:
        check_language(self.language)

    @property
    def version(self) -> str:
        """The version of the terms, which an index saves to detect changes."""
        if self.language == "none":
            return f"{_FORMAT} none"
        # Snowball changes stems in minor releases but not in patches.
        return f"{_FORMAT} {self.language} snowball {'.'.join(_snowball().version().split('.')[:2])}"

    def terms(self, text: str) -> list[str]:
        """Return the index terms of a text in order."""
        return self.analyze(text).terms

    def analyze(self, text: str) -> Analysis:
        """Return the index terms of a text and the languages by which they were stemmed."""
        if text.isascii():
            cut = ascii_pieces(text)
            language = self._languages(cut).get("latin", "none")
            return Analysis(list(map(terms_in(language).__getitem__, cut)), frozenset([language] if cut else []))
        cut = pieces(text)
        chosen = terms_by_script(tuple(self._languages(cut).items()))
        languages = frozenset(chosen.language_of(letter) for letter in {piece[0] for piece in cut})
        if not cut or max(cut) < FIRST_UNSPACED:  # strings compare by their first character
            return Analysis(list(map(chosen.__getitem__, cut)), languages)
        terms: list[str] = []
        single: dict[str, None] = {}
        for piece in cut:
            if is_unspaced(piece):
                terms += pairs(piece)
                if len(piece) > 1:
                    single.update(dict.fromkeys(word_characters(piece)))
            else:
                terms.append(chosen[piece])
        # Single characters once each: their frequency says little, and would make the index large.
        return Analysis([*terms, *single], languages)

    def query_terms(self, text: str, *, languages: Iterable[str] = ()) -> list[str]:
        """Return the terms to search, without stop words unless there are no other words."""
        return [term for spellings in self.query_words(text, languages=languages) for term in spellings]

    def query_words(self, text: str, *, languages: Iterable[str] = ()) -> list[tuple[str, ...]]:
        """Return the words of the query, each as the different terms that `languages` make of it.

        A ranking should count the terms of one word as one term: the sum of their occurrences, and the
        documents with any of them. Otherwise a stem of a rare language looks like a rare word.
        """
        is_ascii = text.isascii()  # then every piece is a word in Latin letters
        cut = ascii_pieces(text) if is_ascii else pieces(text)
        indexed = tuple(sorted(set(languages)))
        named = () if self.language in ("auto", "none") else (self.language,)
        detected = detect(cut, named or indexed)
        by_script = {**SCRIPT_DEFAULTS, **{script: result.language for script, result in detected.items()}}
        scripts = ["latin"] * len(cut) if is_ascii else [script_of(piece) for piece in cut]
        words = list(zip(cut, scripts, strict=True))
        content_words = [(piece, script) for piece, script in words if piece not in stop_words(by_script[script])]
        stems_by_script = {script: self._query_languages(script, detected, indexed) for script in set(scripts)}
        query_words: list[tuple[str, ...]] = []
        for piece, script in content_words or words:
            if not is_ascii and is_unspaced(piece):
                query_words += [(pair,) for pair in pairs(piece)]
            else:
                stems = stems_by_script[script]
                query_words.append(tuple(dict.fromkeys(terms_in(name)[piece] for name in stems)))
        return query_words

    def _languages(self, cut: list[str]) -> dict[str, str]:
        """Return script -> language for the words of a text."""
        if self.language == "auto":
            return {**SCRIPT_DEFAULTS, **{script: result.language for script, result in detect(cut).items()}}
        return {} if self.language == "none" else {script_of_language(self.language): self.language}

    def _query_languages(self, script: str, detected: dict[str, Detected], indexed: tuple[str, ...]) -> list[str]:
        """Return the languages by which the query's words of this script are stemmed."""
        if self.language != "auto":
            return [self._languages([]).get(script, "none")]
        default = SCRIPT_DEFAULTS[script]
        same_script = [language for language in indexed if script_of_language(language) == script]
        own = detected.get(script)
        if own is None or not (own.sure or not same_script):
            return same_script or [default]
        # Texts too short for detection were indexed under the default.
        return [own.language, *([default] if default in (same_script or [default]) else [])]


class BM25(NamedTuple):
    """The two parameters of the formula; the defaults are for a complete collection."""

    k1: float = 0.9
    b: float = 0.4

    def validate(self) -> BM25:
        """Return self; raise InputError for values outside the range of the formula."""
        if not (0 <= self.k1 < math.inf and 0 <= self.b <= 1):
            raise InputError(f"k1 is {self.k1} and b is {self.b}; k1 must be ≥ 0 and b from 0 to 1.")
        return self

    def weight(self, tf: N, length: N, *, idf: float, mean_length: float) -> N:
        """Return what one term adds to a document's score; takes numbers or arrays."""
        return idf * tf * (self.k1 + 1.0) / (tf + self.k1 * (1.0 - self.b + self.b * length / mean_length))


POOL = BM25(k1=1.5, b=0.75)


def idf(documents: int, with_term: int) -> float:
    """Return the inverse document frequency; always positive, so that more matching words never hurt."""
    return math.log(1.0 + (documents - with_term + 0.5) / (with_term + 0.5))
