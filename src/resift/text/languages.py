"""Which language a text is in: its scripts first, then the small words of the languages of that script."""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from collections.abc import Collection
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

LATIN, CYRILLIC, ARABIC, HEBREW, DEVANAGARI = "latin", "cyrillic", "arabic", "hebrew", "devanagari"
GREEK, ARMENIAN, TAMIL, OTHER = "greek", "armenian", "tamil", "other"

SCRIPT_DEFAULTS = {
    LATIN: "english",
    CYRILLIC: "russian",
    ARABIC: "arabic",
    HEBREW: "hebrew",
    DEVANAGARI: "hindi",
    GREEK: "greek",
    ARMENIAN: "armenian",
    TAMIL: "tamil",
    OTHER: "none",
}
"""What a script is taken for when no small word tells."""

# What an English query leaves out: the list that Lucene has used since its first version.
_ENGLISH_STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these "
    "they this to was will with"
)
# First code point of each block and the script from there on.
_BLOCKS = (
    (0x0000, LATIN),
    (0x0370, GREEK),
    (0x0400, CYRILLIC),
    (0x0530, ARMENIAN),
    (0x0590, HEBREW),
    (0x0600, ARABIC),
    (0x0700, OTHER),
    (0x0750, ARABIC),
    (0x0780, OTHER),
    (0x08A0, ARABIC),
    (0x0900, DEVANAGARI),
    (0x0980, OTHER),
    (0x0B80, TAMIL),
    (0x0C00, OTHER),
    (0x1C80, CYRILLIC),
    (0x1C90, OTHER),
    (0x1E00, LATIN),
    (0x1F00, GREEK),
    (0x2000, OTHER),
    (0x2C60, LATIN),
    (0x2C80, OTHER),
    (0x2DE0, CYRILLIC),
    (0x2E00, OTHER),
    (0xA640, CYRILLIC),
    (0xA6A0, OTHER),
    (0xA720, LATIN),
    (0xA800, OTHER),
)
_SHORT = 20  # words


def script_of(word: str) -> str:
    """Return the script of a word's first letter."""
    return _script_of_letter(word[0])


@lru_cache(maxsize=4096)
def _script_of_letter(letter: str) -> str:
    return _BLOCKS[bisect_right(_BLOCKS, ord(letter), key=lambda block: block[0]) - 1][1]


@cache
def function_words() -> dict[str, dict[str, str]]:
    """Return script -> language -> its small words."""
    data = resources.files("resift.text").joinpath("function_words.toml").read_text(encoding="utf-8")
    return tomllib.loads(data)


@cache
def script_of_language(language: str) -> str:
    """Return the script a language is written in."""
    for script, languages in function_words().items():
        if language in languages:
            return script
    by_default = {name: script for script, name in SCRIPT_DEFAULTS.items()}
    return by_default.get(language, LATIN)


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the words that a query in this language can do without."""
    if language == "english":
        return frozenset(_ENGLISH_STOP_WORDS.split())
    return frozenset(function_words().get(script_of_language(language), {}).get(language, "").split())


class Detected(NamedTuple):
    """The language of a text's words in one script, and whether its own small words say so."""

    language: str
    sure: bool


def detect(words: Collection[str], among: Collection[str] = ()) -> dict[str, Detected]:
    """Return script -> language by the small words among these; deterministic.

    A script whose small words tell nothing is left out. `among` limits the languages that may be found.
    Words are in lower case with their accents on.
    """
    table = _table()
    scores: dict[str, float] = {}
    hits: dict[str, int] = {}
    spelled: set[str] = set()  # languages with more than single letters to show: U.S. is not Croatian
    for word in table.keys() & set(words):
        for language, weight in table[word]:
            scores[language] = scores.get(language, 0.0) + weight
            hits[language] = hits.get(language, 0) + 1
            if len(word) > 1:
                spelled.add(language)
    # One word that few languages share tells enough about a short text.
    needed = 1 if len(words) <= _SHORT else 2
    found = {}
    for script, languages in function_words().items():
        allowed = [
            name
            for name in languages
            if name in spelled and hits[name] >= needed and (not among or name in among)
        ]
        if allowed:
            # The first of equals: the default of the script, then the larger languages.
            order = sorted(
                allowed, key=lambda name: (-round(scores[name], 9), name != SCRIPT_DEFAULTS[script])
            )
            found[script] = Detected(order[0], hits[order[0]] >= 2)
    return found


@cache
def _table() -> dict[str, tuple[tuple[str, float], ...]]:
    """Return small word -> its languages, each with the share of the word's evidence that is its own."""
    owners: dict[str, list[str]] = {}
    for languages in function_words().values():
        for language, listed in languages.items():
            for word in dict.fromkeys(listed.split()):
                owners.setdefault(word, []).append(language)
    return {word: tuple((name, 1.0 / len(names)) for name in names) for word, names in owners.items()}
