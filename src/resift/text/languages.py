"""Detect the language of a text by its scripts and function words, and check whether a tokenizer supports it."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import cache, lru_cache
from importlib import resources
from itertools import chain
from typing import NamedTuple
from unicodedata import category

from resift.text.tokenization import TABLES, is_unspaced, pieces

SCRIPT_DEFAULTS: dict[str, str] = TABLES["default_languages"]
"""Default language of each script, used if function words do not decide."""

_STARTS = [int(start, 16) for start in TABLES["blocks"]]
_SCRIPTS = list(TABLES["blocks"].values())
_SAMPLE_LETTERS = 200  # enough to determine the scripts of a text
_SHORT_TEXT = 20  # words


def script_of(word: str) -> str:
    """Return the script of a word's first letter, or "other" for scripts without function words."""
    script = _script_of_letter(word[0])
    return script if script in SCRIPT_DEFAULTS else "other"


@lru_cache(maxsize=4096)
def _script_of_letter(letter: str) -> str:
    return str(_SCRIPTS[bisect_right(_STARTS, ord(letter)) - 1])


def script_shares(texts: Sequence[str]) -> dict[str, float]:
    """Return the share of letters in each script, from the beginnings of the texts."""
    if all(map(str.isascii, texts)):  # the usual case: one script, so there is nothing to count
        return {"latin": 1.0} if any(map(str.strip, texts)) else {}
    counts: Counter[str] = Counter()
    for text in texts:
        if text.isascii():
            counts["latin"] += sum(map(len, text.split()))
        else:
            counts.update(_script_of_letter(letter) for letter in text[:_SAMPLE_LETTERS] if letter.isalpha())
    total = counts.total()
    return {script: count / total for script, count in sorted(counts.items()) if count}


@lru_cache(maxsize=64)
def scripts_of_languages(codes: tuple[str, ...]) -> set[str]:
    """Return the scripts of the languages with these codes, such as "ja"."""
    return set().union(*(TABLES["language_scripts"].get(code, ["latin"]) for code in codes))


@cache
def function_words() -> dict[str, dict[str, str]]:
    """Return script -> language -> function words."""
    data = resources.files("resift.text").joinpath("function_words.toml").read_text(encoding="utf-8")
    return tomllib.loads(data)


@cache
def script_of_language(language: str) -> str:
    """Return the script in which a language is written."""
    by_default = (script for script, name in SCRIPT_DEFAULTS.items() if name == language)
    by_words = (script for script, languages in function_words().items() if language in languages)
    return next(chain(by_words, by_default), "latin")


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language, which queries can do without."""
    words = function_words().get(script_of_language(language), {}).get(language, "")
    return frozenset(TABLES["stop_words"].get(language, words).split())


class Detected(NamedTuple):
    """The language of a text's words in one script, and whether two or more function words confirm it."""

    language: str
    sure: bool


def detect(words: Collection[str], among: Collection[str] = ()) -> dict[str, Detected]:
    """Return script -> language, by the function words among `words`, which are lowercase and keep their accents."""
    table = _table()
    scores: defaultdict[str, float] = defaultdict(float)
    hits: Counter[str] = Counter()
    spelled: set[str] = set()  # languages with a match of two or more letters, so that U.S. is not Croatian
    for word in table.keys() & set(words):
        for language, weight in table[word]:
            scores[language] += weight
            hits[language] += 1
            if len(word) > 1:
                spelled.add(language)
    # In a short text, a single function word is enough.
    needed = 1 if len(words) <= _SHORT_TEXT else 2
    detected = {}
    for script, languages in function_words().items():
        allowed = [name for name in languages if name in spelled and hits[name] >= needed and name in (among or [name])]
        if allowed:
            # Ties go to the default language of the script, then to the first in function_words.toml.
            order = sorted(allowed, key=lambda name: (-round(scores[name], 9), name != SCRIPT_DEFAULTS[script]))
            detected[script] = Detected(order[0], hits[order[0]] >= 2)
    return detected


@cache
def _table() -> dict[str, tuple[tuple[str, float], ...]]:
    """Return function word -> its languages, each with the weight 1 / number of languages."""
    owners: dict[str, list[str]] = {}
    for languages in function_words().values():
        for language, words in languages.items():
            for word in dict.fromkeys(words.split()):
                owners.setdefault(word, []).append(language)
    return {word: tuple((name, 1.0 / len(names)) for name in names) for word, names in owners.items()}


Encode = Callable[[str], Sequence[int]]

# A tokenizer splits words of the languages that it was trained on into one or two pieces. Words of other
# languages become single letters or the unknown piece. So no list of languages is needed.
_SAMPLE_CHARS = 200
_MAX_UNKNOWN = 0.1  # share of unknown pieces
_MAX_UNSUPPORTED = 0.4  # share of a text's words; allows for foreign names in a sentence
_SPELLED_OUT = ((3.0, 1.5), (2.0, 1.2))  # (x, y): more than x pieces per word and fewer than y letters per piece
_CHARS_PER_WORD = 4  # estimate for scripts without spaces
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+")
_HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")


def is_supported(text: str, encode: Encode, *, unknown: int | None = None) -> bool:
    """Return whether a tokenizer was trained on the language of a text; `unknown` is the id of its unknown piece."""
    # Numbers do not depend on the language.
    words = [piece for piece in pieces(text[:_SAMPLE_CHARS]) if not any(map(str.isdecimal, piece))]
    spaced = [piece for piece in words if not is_unspaced(piece) or _HANGUL.match(piece)]
    unspaced = [piece for piece in words if is_unspaced(piece) and not _HANGUL.match(piece)]
    ideographs = [run for piece in unspaced for run in _HAN.findall(piece)]
    runs = [run for piece in unspaced for run in _HAN.split(piece) if run]
    # Estimate the number of words in each group.
    groups = [
        (spaced, float(len(spaced))),
        (ideographs, sum(map(len, ideographs)) / 2),
        (runs, sum(map(len, runs)) / _CHARS_PER_WORD),
    ]
    # Models trained on Chinese also use one piece per ideograph, so ideographs may be single letters.
    unsupported = sum(
        count
        for group, count in groups
        if _is_unsupported(group, count, encode, unknown, spells=group is not ideographs)
    )
    total = sum(count for _, count in groups)
    return total == 0 or unsupported < _MAX_UNSUPPORTED * total


def _is_unsupported(words: list[str], count: float, encode: Encode, unknown: int | None, *, spells: bool) -> bool:
    """Return whether many pieces of these words are unknown or, with `spells`, single letters."""
    if not words:
        return False
    ids = list(encode(" ".join(words)))
    if not ids or (unknown is not None and ids.count(unknown) > _MAX_UNKNOWN * len(ids)):
        return True
    # Many tokenizers drop combining marks.
    letters = sum(not category(char).startswith("M") for word in words for char in word)
    return spells and any(
        len(ids) > pieces_per_word * count and letters < letters_per_piece * len(ids)
        for pieces_per_word, letters_per_piece in _SPELLED_OUT
    )
