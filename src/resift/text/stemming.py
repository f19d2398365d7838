"""Stem words to index terms (Snowball; Porter, 1980 and 2001), with a cache per language."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

from resift._internal.forking import ForkSafeLock
from resift.errors import InputError
from resift.text.languages import script_of
from resift.text.tokenization import without_accents

_MAX_CACHED_WORDS = 200_000  # per language; then the cache is cleared
_MAX_CACHED_LETTERS = 60  # longer words do not repeat, and would take much memory
_MAX_UNSTEMMED = 2  # letters; "is" and "as" have no ending
# English uses the first Porter stemmer, as SQLite's index does, with the two rules that Porter added later.
_ADDED_ENDINGS = ("bli", "logi")
_SYLLABLE = re.compile("[aeiouy][^aeiouy]")
_ALGORITHMS = {"english": "porter"}


class Terms(dict[str, str]):
    """Word -> index term of one language, computed on first use."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._folds_first = language == "english"
        self._stemmer = _stemmer(language)
        self._lock = ForkSafeLock()

    def __missing__(self, word: str) -> str:
        return _cache(self, word, self._term(word))

    def _term(self, word: str) -> str:
        if self._stemmer is None or len(word) <= _MAX_UNSTEMMED:
            return without_accents(word)
        # All stemmers but the English one expect accents.
        spelled = without_accents(word) if self._folds_first else word
        with self._lock:  # Snowball's objects are not thread-safe
            stem: str = self._stemmer.stemWord(spelled[:100])
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


@cache
def stemmer_version() -> str:
    """Return the version of the stems, which Snowball changes in minor releases but not in patches."""
    return ".".join(_snowball().version().split(".")[:2])


def check_language(language: str) -> None:
    """Raise InputError for a language that is not "auto", "none" or one of Snowball's."""
    if language in ("auto", "none"):
        return
    if not isinstance(language, str):
        raise InputError(f"The language is {language!r}; pass its name.")
    known = stemmed_languages()
    if language not in known:
        close = difflib.get_close_matches(language, known, n=1, cutoff=0.7)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        names = ", ".join(sorted(known))
        raise InputError(f"Unknown language {language!r}. {hint}Known: auto, none, {names}.")


def _stemmer(language: str) -> Any:
    if language not in stemmed_languages():
        return None
    return _snowball().Stemmer(_ALGORITHMS.get(language, language), 0)


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
