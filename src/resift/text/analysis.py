"""Turn texts into index terms, and queries into the terms that match them.

    analyzer = Analyzer(language)                      # "auto", a Snowball language, or "none"
    analysis = analyzer.analyze(text)                  # per document: .terms to index, .languages to store
    words = analyzer.query_words(query, languages=…)   # the union of .languages over the indexed documents

The language of a short query is often unclear, so each word is stemmed in each of the `languages` of the index.
Without them, the detected language and the default language of the script are used. Terms contain no whitespace.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

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

_MAX_CACHED_WORDS = 200_000  # per language; a full cache is cleared
_MAX_CACHED_LETTERS = 60  # longer words rarely repeat, and would take a lot of memory
_MAX_UNSTEMMED = 2  # letters; words such as "is" and "as" have no ending
# English uses the original Porter stemmer, as SQLite FTS5 does, with the two rules that Porter added later.
_ADDED_ENDINGS = ("bli", "logi")
_SYLLABLE = re.compile("[aeiouy][^aeiouy]")
_ALGORITHMS = {"english": "porter"}

N = TypeVar("N", float, Array)


class Terms(dict[str, str]):
    """A dict of word -> index term in one language; terms are computed on first use."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._folds_first = language == "english"
        self._stemmer: Any = None
        if language in stemmed_languages():
            self._stemmer = _snowball().Stemmer(_ALGORITHMS.get(language, language), 0)
        self._lock = ForkSafeLock()

    def __missing__(self, word: str) -> str:
        return _cache(self, word, self._term(word))

    def _term(self, word: str) -> str:
        if self._stemmer is None or len(word) <= _MAX_UNSTEMMED:
            return without_accents(word)
        # All stemmers except the English one expect accents.
        spelled = without_accents(word) if self._folds_first else word
        with self._lock:  # Snowball stemmers are not thread-safe
            stem: str = self._stemmer.stemWord(spelled[:100])
        if self._folds_first and stem.endswith(_ADDED_ENDINGS) and _SYLLABLE.search(stem[:-3]):
            stem = stem[:-1]
        return without_accents(stem) or without_accents(word)


class TermsByScript(dict[str, str]):
    """A dict of word -> index term for texts in several scripts, each with its own language."""

    def __init__(self, languages: Mapping[str, str]) -> None:
        super().__init__()
        self._languages = languages

    def __missing__(self, word: str) -> str:
        return _cache(self, word, terms_in(self.language_of(word))[word])

    def language_of(self, word: str) -> str:
        """Return the language in which a word is stemmed."""
        return self._languages.get(script_of(word), "none")


def _cache(terms: dict[str, str], word: str, term: str) -> str:
    if len(terms) >= _MAX_CACHED_WORDS:
        terms.clear()
    if len(word) <= _MAX_CACHED_LETTERS:
        terms[word] = term
    return term


@lru_cache(maxsize=64)
def terms_by_script(languages: tuple[tuple[str, str], ...]) -> TermsByScript:
    """Return the shared dict of terms for these (script, language) pairs."""
    return TermsByScript(dict(languages))


@cache
def terms_in(language: str) -> Terms:
    """Return the shared dict of terms in a language; without a stemmer, words are only folded."""
    return Terms(language)


@cache
def stemmed_languages() -> frozenset[str]:
    """Return the languages with a stemmer."""
    return frozenset(_snowball().algorithms()) - {"porter", "dutch_porter"}


def _snowball() -> ModuleType:
    return importlib.import_module("Stemmer")  # imported lazily: `import resift` must not load other packages


def plural_variants(word: str) -> tuple[str, ...]:
    """Return the word and its English singular and plural forms, which is cheaper than stemming every text."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return (word,)
    singular = _singular(word)
    plurals = [singular + "s", singular + "es"]
    if singular.endswith("y"):
        plurals.append(singular[:-1] + "ies")
    return tuple(dict.fromkeys((word, singular, *plurals)))


def _singular(word: str) -> str:
    """Strip a plural ending, by the rules of Harman's S stemmer (1991)."""
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    if word.endswith("es") and not word.endswith(("aes", "ees", "oes")):
        return word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")):
        return word[:-1]
    return word


_FORMAT = 1  # increment it when the terms of a text change


class Analysis(NamedTuple):
    """The index terms of a text, in order, and the languages in which they were stemmed."""

    terms: list[str]
    languages: frozenset[str]


@dataclass(frozen=True, slots=True)
class Analyzer:
    """Splits, folds and stems words in any script. `language` is "auto", a Snowball language, or "none"."""

    language: str = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.language, str):
            raise InputError(f"The language is {self.language!r}; pass the name of a language.")
        if self.language not in ("auto", "none") and self.language not in stemmed_languages():
            known = did_you_mean(self.language, stemmed_languages())
            raise InputError(f"Unknown language {self.language!r}. {known} auto detects it, and none does not stem.")

    @property
    def version(self) -> str:
        """Version of the terms, which an index stores to detect changes."""
        if self.language == "none":
            return f"{_FORMAT} none"
        # Snowball changes stems in minor releases but not in patches.
        return f"{_FORMAT} {self.language} snowball {'.'.join(_snowball().version().split('.')[:2])}"

    def terms(self, text: str) -> list[str]:
        """Return the index terms of a text, in order."""
        return self.analyze(text).terms

    def analyze(self, text: str) -> Analysis:
        """Return the index terms of a text and the languages in which they were stemmed."""
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
        # Index each single character once. Its frequency says little, and repeating it would enlarge the index.
        return Analysis([*terms, *single], languages)

    def query_terms(self, text: str, *, languages: Iterable[str] = ()) -> list[str]:
        """Return the terms to search for. Stop words are dropped unless the query has no other words."""
        return [term for spellings in self.query_words(text, languages=languages) for term in spellings]

    def query_words(self, text: str, *, languages: Iterable[str] = ()) -> list[tuple[str, ...]]:
        """Return the words of the query, each as a tuple of its distinct terms in `languages`.

        A ranking should count the terms of one word as one term. Otherwise a rare stem looks like a rare word.
        """
        is_ascii = text.isascii()  # in ASCII text, every piece is a word in Latin letters
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
        """Return script -> stemming language for the words of a text."""
        if self.language == "auto":
            return {**SCRIPT_DEFAULTS, **{script: result.language for script, result in detect(cut).items()}}
        return {} if self.language == "none" else {script_of_language(self.language): self.language}

    def _query_languages(self, script: str, detected: dict[str, Detected], indexed: tuple[str, ...]) -> list[str]:
        """Return the languages in which query words of this script are stemmed."""
        if self.language != "auto":
            return [self._languages([]).get(script, "none")]
        default = SCRIPT_DEFAULTS[script]
        same_script = [language for language in indexed if script_of_language(language) == script]
        own = detected.get(script)
        if own is None or not (own.sure or not same_script):
            return same_script or [default]
        # Texts that were too short for detection were indexed with the default language.
        return [own.language, *([default] if default in (same_script or [default]) else [])]


class BM25(NamedTuple):
    """The two parameters of BM25. The defaults are meant for a complete collection."""

    k1: float = 0.9
    b: float = 0.4

    def validate(self) -> BM25:
        """Return self; raise InputError for values outside the range of the formula."""
        if not (0 <= self.k1 < math.inf and 0 <= self.b <= 1):
            raise InputError(f"k1 is {self.k1} and b is {self.b}; k1 must be ≥ 0 and b from 0 to 1.")
        return self

    def weight(self, tf: N, length: N, *, idf: float, mean_length: float) -> N:
        """Return the contribution of one term to a document's score. Arguments are numbers or arrays."""
        return idf * tf * (self.k1 + 1.0) / (tf + self.k1 * (1.0 - self.b + self.b * length / mean_length))


POOL = BM25(k1=1.5, b=0.75)


def idf(documents: int, with_term: int) -> float:
    """Return the inverse document frequency. It is always positive, so that matching more words never hurts."""
    return math.log(1.0 + (documents - with_term + 0.5) / (with_term + 0.5))
