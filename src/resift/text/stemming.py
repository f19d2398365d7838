"""Words to index terms: Snowball stems (Porter, 1980 and 2001), each computed once and kept."""

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

_KEPT = 200_000  # words per language; beyond that a text is data and the cache starts anew
_LONGEST_KEPT = (
    60  # letters; what is longer is no word that comes again, and a cache of many takes much memory
)
_SHORTEST = 2  # letters that are left as they are; "is" and "as" have no ending to lose
# English keeps the first Porter stemmer: it is what SQLite's index has always used, and what was measured.
# With the two rules that Porter added later ("-bli", "-logi"), as SQLite has them.
_REVISED = ("bli", "logi")
_SYLLABLE = re.compile("[aeiouy][^aeiouy]")
_ALGORITHMS = {"english": "porter"}


class Terms(dict[str, str]):
    """Word -> index term of one language; grows as words are met."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._folds_first = language == "english"
        self._stemmer = _stemmer(language)
        self._lock = ForkSafeLock()

    def __missing__(self, word: str) -> str:
        return _kept(self, word, self._term(word))

    def _term(self, word: str) -> str:
        if self._stemmer is None or len(word) <= _SHORTEST:
            return without_accents(word)
        # Accents are part of spelling for every stemmer but the English one.
        spelled = without_accents(word) if self._folds_first else word
        with self._lock:  # Snowball's objects are not made for threads
            stem: str = self._stemmer.stemWord(spelled[:100])
        if self._folds_first and stem.endswith(_REVISED) and _SYLLABLE.search(stem[:-3]):
            stem = stem[:-1]
        return without_accents(stem) or without_accents(word)


class TermsByScript(dict[str, str]):
    """Word -> index term in texts of several scripts, each in its language."""

    def __init__(self, languages: Mapping[str, str]) -> None:
        super().__init__()
        self._languages = languages

    def __missing__(self, word: str) -> str:
        return _kept(self, word, terms_in(self.language_of(word))[word])

    def language_of(self, word: str) -> str:
        """Return the language whose stem a word gets."""
        return self._languages.get(script_of(word), "none")


def _kept(terms: dict[str, str], word: str, term: str) -> str:
    if len(terms) >= _KEPT:
        terms.clear()
    if len(word) <= _LONGEST_KEPT:
        terms[word] = term
    return term


@lru_cache(maxsize=64)
def terms_by_script(languages: tuple[tuple[str, str], ...]) -> TermsByScript:
    """Return the terms for (script, language) pairs."""
    return TermsByScript(dict(languages))


@cache
def terms_in(language: str) -> Terms:
    """Return the terms of a language; one that has no stemmer is only folded."""
    return Terms(language)


@cache
def stemmed_languages() -> frozenset[str]:
    """Return the languages that can be asked for by name."""
    return frozenset(_snowball().algorithms()) - {"porter", "dutch_porter"}


@cache
def stemmer_version() -> str:
    """Return which stems these are: Snowball changes them between its releases, not between patches."""
    return ".".join(_snowball().version().split(".")[:2])


def check_language(language: str) -> None:
    """Raise InputError for a language that is neither "auto", "none" nor one of Snowball's."""
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
