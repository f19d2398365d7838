"""Words of a text in any script: folded for matching, never for showing."""

from __future__ import annotations

import re
import unicodedata

# No spaces between words (in Hangul: endings glued on), so pairs of characters serve better.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
# In spaced scripts a word may hold combining marks (Devanagari vowels are marks, not letters).
_MARKS = "\u0900-\u0dff\u0591-\u05c7\u064b-\u065f\u0670"
# Letters in lower case, digits as they are, all else a space: three times faster than a pattern.
_ASCII_FOLD = bytes(
    ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else ord(" ") for byte in range(256)
)
_PIECE = re.compile(rf"[{_UNSPACED}]+|(?:[^\W_{_UNSPACED}]|[{_MARKS}])+")
_FIRST_UNSPACED = re.compile(rf"[{_UNSPACED}]")
# Accents of Latin, Greek and Cyrillic letters; marks of other scripts carry meaning and stay.
_ACCENT = re.compile("[\u0300-\u036f]")


def words(text: str) -> list[str]:
    """Return the folded words in order: NFKC, casefold, no accents; character pairs where nobody spaces."""
    if text.isascii():
        return text.encode("ascii").translate(_ASCII_FOLD).decode("ascii").split()
    folded = unicodedata.normalize("NFKC", text).casefold()
    bare = _ACCENT.sub("", unicodedata.normalize("NFD", folded))
    found: list[str] = []
    for piece in _PIECE.findall(unicodedata.normalize("NFC", bare)):
        if len(piece) > 1 and _FIRST_UNSPACED.match(piece):
            found += [piece[at : at + 2] for at in range(len(piece) - 1)]
        else:
            found.append(piece)
    return found


def variants(word: str) -> tuple[str, ...]:
    """Return the word with its English singular and plural spellings.

    Widening the few words of a query costs nothing; stemming every word of every text would.
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
