"""Whether a model knows a text, told by its own tokenizer: what it knows it keeps in large pieces.

A tokenizer was learnt from the texts its model was made for. Their words are one or two pieces; words of a
language it never saw fall apart into letters, or become the unknown piece. No list of languages is needed,
and a model that knows more languages passes with more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple
from unicodedata import category

from resift.text.tokenization import is_unspaced, pieces

Encode = Callable[[str], Sequence[int]]

_SAMPLE = 200  # characters; more of a text tells nothing new
_UNKNOWN = 0.1  # share of unknown pieces
_SHARE = 0.4  # of a text's words that must be so; a foreign name in a sentence does not matter
# A tokenizer spells when words have many pieces and pieces few letters. Its own language has one or two
# pieces per word; of its rare words the pieces are still longer than a letter.
_SPELLS = ((3.0, 1.5), (2.0, 1.2))  # more pieces per word than, fewer letters per piece than
_RUN = 4  # characters of an unspaced script that stand for a word
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+")
_HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")


class _Group(NamedTuple):
    """Words that are written alike, and for how many words of a text they count."""

    words: list[str]
    weight: float
    spelled: bool = True  # whether one piece per character is spelling


def is_familiar(text: str, encode: Encode, *, unknown: int | None = None) -> bool:
    """Say whether a tokenizer knows the words of a text; `unknown` is the id of its unknown piece."""
    groups = _groups(text[:_SAMPLE])
    total = sum(group.weight for group in groups)
    foreign = sum(group.weight for group in groups if _is_foreign(group, encode, unknown))
    return total == 0 or foreign < _SHARE * total


def _groups(text: str) -> list[_Group]:
    spaced: list[str] = []
    ideographs: list[str] = []
    runs: list[str] = []
    for piece in pieces(text):
        if any(map(str.isdecimal, piece)):
            continue  # numbers and part numbers are in no language
        if not is_unspaced(piece) or _HANGUL.match(piece):
            spaced.append(piece)
            continue
        ideographs += _HAN.findall(piece)
        runs += [run for run in _HAN.split(piece) if run]
    return [
        _Group(spaced, len(spaced)),
        # One piece per ideograph is how models of Chinese read, too.
        _Group(ideographs, sum(map(len, ideographs)) / 2, spelled=False),
        _Group(runs, sum(map(len, runs)) / _RUN),
    ]


def _is_foreign(group: _Group, encode: Encode, unknown: int | None) -> bool:
    if not group.words:
        return False
    ids = list(encode(" ".join(group.words)))
    if not ids:
        return True
    if unknown is not None and ids.count(unknown) > _UNKNOWN * len(ids):
        return True
    # Marks are part of a letter; many tokenizers drop them.
    letters = sum(not category(sign).startswith("M") for word in group.words for sign in word)
    return group.spelled and any(
        len(ids) > most * group.weight and letters < fewest * len(ids) for most, fewest in _SPELLS
    )
