"""Split text into sentences and words, and fold words for matching.

In scripts without spaces, pairs of characters take the place of words.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources

from resift.errors import InputError

TABLES = tomllib.loads(resources.files("resift.text").joinpath("scripts.toml").read_text(encoding="utf-8"))
_UNSPACED, _MARKS = TABLES["characters"]["unspaced"], TABLES["characters"]["marks"]
_PIECE = re.compile(rf"[{_UNSPACED}]+|(?:[^\W_{_UNSPACED}]|[{_MARKS}])+")
_UNSPACED_CHARACTER = re.compile(rf"[{_UNSPACED}]")
_WORD_CHARACTER = re.compile(f"[{TABLES['characters']['words']}]")

# Maps ASCII bytes to lowercase letters, digits, or a space. This is three times as fast as a regex.
_ASCII_FOLD = bytes(ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else ord(" ") for byte in range(256))
# Soft hyphens and joiners, which are invisible inside words.
_INVISIBLE = {0x00AD: None, 0x200D: None, 0x2060: None, 0xFEFF: None}
# Vowel signs and letter forms that Arabic, Persian and Hebrew writers omit or interchange.
_SEMITIC = {
    **dict.fromkeys([*range(0x0610, 0x061B), *range(0x064B, 0x0660), 0x0640, 0x0670]),
    **dict.fromkeys([*range(0x06D6, 0x06DD), *range(0x06DF, 0x06E5), *range(0x0591, 0x05C8)]),
    **dict.fromkeys(map(ord, "أإآٱ"), "ا"),
    ord("ی"): "ي",
    ord("ى"): "ي",
    ord("ک"): "ك",
}
# Letters of some Latin alphabets, and what people type if their keyboard lacks them.
_LATIN_LETTERS = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i", "ħ": "h"}
)
FIRST_UNSPACED = "\u0e00"  # all scripts without spaces start at this character or later

_MAX_TERM = 100  # characters; a longer string is data, not a word


def words(text: str) -> list[str]:
    """Return the words of a text, folded and without accents; scripts without spaces yield character pairs."""
    if not isinstance(text, str):
        raise InputError(f"words: text is a {type(text).__name__}; pass a string.")
    if text.isascii():
        return ascii_pieces(text)
    folded: list[str] = []
    for piece in pieces(text):
        if is_unspaced(piece):
            folded += pairs(piece)
        else:
            folded.append(without_accents(piece))
    return folded


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Return the Jaccard similarity: shared words / all words; 0 for two empty texts."""
    shared = len(left & right)
    return shared / (len(left) + len(right) - shared) if shared else 0.0


def pieces(text: str) -> list[str]:
    """Return the words and unspaced runs of a text in order, in lowercase and with their accents."""
    if text.isascii():
        return ascii_pieces(text)
    folded = unicodedata.normalize("NFKC", text.translate(_INVISIBLE)).casefold()
    return _PIECE.findall(unicodedata.normalize("NFC", folded))


def piece_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans of words and unspaced runs in the original text."""
    return [match.span() for match in _PIECE.finditer(text)]


def ascii_pieces(text: str) -> list[str]:
    """Return the lowercase words of an ASCII text."""
    return text.encode("ascii").translate(_ASCII_FOLD).decode("ascii").split()


def is_unspaced(piece: str) -> bool:
    """Return whether a piece is a run in a script without spaces."""
    return piece[0] >= FIRST_UNSPACED and _UNSPACED_CHARACTER.match(piece) is not None


def pairs(run: str) -> list[str]:
    """Return the overlapping character pairs of a run, or the character itself if there is only one."""
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def word_characters(run: str) -> list[str]:
    """Return the characters of a run that may be words on their own (Han and Hangul)."""
    return _WORD_CHARACTER.findall(run)


def without_accents(word: str) -> str:
    """Remove accents of Latin and Greek letters and of ё, and vowel signs of Arabic and Hebrew; й is not и."""
    if word.isascii():
        return word[:_MAX_TERM]
    # Longer words are not cached, because they rarely repeat and would take a lot of memory.
    return _fold(word) if len(word) <= _MAX_TERM else _fold.__wrapped__(word)


@lru_cache(maxsize=65_536)
def _fold(word: str) -> str:
    letters = []
    for letter in unicodedata.normalize("NFC", word.translate(_SEMITIC)):
        decomposed = unicodedata.normalize("NFD", letter)
        folds = decomposed < "\u0400" or letter in "ёѐѝ"
        letters.append(decomposed[0] if folds else letter)
    folded = "".join(letter for letter in letters if not "\u0300" <= letter <= "\u036f") or word
    return folded.translate(_LATIN_LETTERS)[:_MAX_TERM]


Span = tuple[int, int]

_END = re.compile(
    r"(?<=[.!?…])[\"'»”’)\]*_]*\s+(?=[\"'“‘«(\[*_]*[^\Wa-z_])"  # a stop, a space, and no lowercase letter
    r"|(?<=[。！？।؟])[\"'」』”’)]*\s*"
)
_ANY_END = re.compile(r"(?<=[.!?…])[\"'»”’)\]*_]*\s+|(?<=[。！？।؟])[\"'」』”’)]*\s*")
_ABBREVIATION = re.compile(
    r"(?:\b(?:[A-Z]|Dr|Mr|Mrs|Ms|St|Mt|No|vs|etc|approx|ca|cf|e\.g|i\.e|Fig|Jr|Sr|Prof|Capt|Lt))\.$"
)
_LONGEST_ABBREVIATION = 8
_FENCE = re.compile(r"^\s*(```|~~~)")
_HEADING = re.compile(r"\s{0,3}(?:#{1,6}\s|={2,6}[^=])")
_HEADING_MARK = re.compile(r"^#{1,6}\s+")
_RULE = re.compile(r"^\s*(?:[-=*_~+|:]\s*){3,}$")
_ITEM = re.compile(r"^\s*(?:[-*+•–]|\(?(?:\d{1,3}|[a-z])[.)])\s+")
_QUOTE = re.compile(r"^\s*>+\s?")
_ROW = re.compile(r"^(?:\s*\||.*?(?:\t|\s\|\s))")
_HARD_BREAK = re.compile(r"(?:(?<! ) {2,}|\\)$")
_PROSE_END = re.compile(r"[.!?…][\"'»”’)\]*_]*$")

# A narrower paragraph is verse, an address or a list, so its lines are joined only before a lowercase letter.
_MIN_WRAP_WIDTH = 40
_MIN_NARROW_WIDTH, _MIN_UNSPACED_WIDTH, _MAX_VERSE_WIDTH = 28, 16, 60


def sentences(text: str) -> list[str]:
    """Return the sentences with at least two words, each on one line without list and quote markers."""
    lines = (one_line(text[start:end]) for start, end in sentence_spans(text))
    return [sentence for sentence in lines if len(words(sentence)) > 1]


def sentence_spans(text: str, *, lowercase_starts: bool = False) -> list[Span]:
    """Return the span of each sentence, which may begin with a lowercase letter if `lowercase_starts` is set."""
    spans: list[Span] = []
    ends = _ANY_END if lowercase_starts else _END
    for start, end in _units(text):
        first = start
        for stop in ends.finditer(text, start, end):
            # Search only the last characters. Searching from the start at each stop would be quadratic.
            head = text[max(first, stop.start() - _LONGEST_ABBREVIATION) : stop.start()]
            if not _ABBREVIATION.search(head):
                spans.append((first, stop.end()))
                first = stop.end()
        spans.append((first, end))
    trimmed = ((end - len(text[start:end].lstrip()), start + len(text[start:end].rstrip())) for start, end in spans)
    return [(start, end) for start, end in trimmed if start < end]


def one_line(sentence: str) -> str:
    """Return a sentence on one line, without its list marker and hyphenation."""
    lines = [_QUOTE.sub("", line, count=1).strip() for line in sentence.split("\n")]
    lines[0] = _HEADING_MARK.sub("", _ITEM.sub("", lines[0], count=1), count=1)
    joined = lines[0]
    for line in lines[1:]:
        hyphenated = joined[-1:] == "-" and joined[-2:-1].isalpha() and line[:1].islower()
        unspaced = bool(joined) and bool(line) and is_unspaced(joined[-1]) and is_unspaced(line[0])
        joined += line if hyphenated or unspaced else f" {line}"
    return " ".join(joined.split())


def _units(text: str) -> Iterator[Span]:
    """Yield the spans to split into sentences: wrapped lines are joined, other lines are separate."""
    paragraph: list[Span] = []
    in_code = False
    position = 0
    for line in text.splitlines(keepends=True):
        span = (position, position + len(line))
        position += len(line)
        fence = _FENCE.match(line)
        is_separate = in_code or fence or not line.strip() or any(kind.match(line) for kind in (_HEADING, _RULE, _ROW))
        in_code = in_code != bool(fence)
        if is_separate or _ITEM.match(line):
            yield from _paragraph_units(text, paragraph)
            paragraph = []
        if is_separate:
            yield span
        else:
            paragraph.append(span)
    yield from _paragraph_units(text, paragraph)


def _paragraph_units(text: str, lines: list[Span]) -> Iterator[Span]:
    """Join the lines of a paragraph or list item that were wrapped because the next word did not fit."""
    if not lines:
        return
    raw = [text[start:end].rstrip("\r\n") for start, end in lines]
    bare = [_QUOTE.sub("", line, count=1).strip() for line in raw]
    width = max(map(len, bare))
    # Three or more short lines that all start with a capital letter are verse or an address.
    verse = len(bare) > 2 and width < _MAX_VERSE_WIDTH and all(line[:1].isupper() for line in bare)
    prose = bool(_PROSE_END.search(bare[-1]))
    start = lines[0][0]
    for i in range(len(lines) - 1):
        # In prose, a line that starts in lowercase continues the sentence, however narrow the lines are.
        continues = prose and bare[i] and bare[i + 1][:1].islower()
        wrapped = continues or _is_wrapped(bare[i], bare[i + 1], width, verse=verse)
        if _HARD_BREAK.search(raw[i]) or not wrapped:
            yield start, lines[i][1]
            start = lines[i + 1][0]
    yield start, lines[-1][1]


def _is_wrapped(line: str, following: str, width: int, *, verse: bool) -> bool:
    """Return whether a line ends only because the next word did not fit."""
    if not line or not following:
        return False
    if is_unspaced(line[-1]) or is_unspaced(following[0]):
        return width >= _MIN_UNSPACED_WIDTH and len(line) >= width - 4
    first_word = following.split(maxsplit=1)[0]
    needed = len(line) + 1 + len(first_word)
    if following[0].islower():
        # Editors wrap a little earlier around links and long words.
        return needed > 0.8 * width and width >= _MIN_NARROW_WIDTH
    return needed > width and width >= _MIN_WRAP_WIDTH and not (verse and following[0].isupper())
