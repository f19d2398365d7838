"""Split text into sentences and words, and fold words for matching; scripts without spaces by characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from resift.errors import InputError

# Scripts without spaces between words (Hangul attaches endings): pairs of characters work better.
_UNSPACED = (
    "\u0e00-\u0e4e\u0e50-\u0e59\u0e80-\u0ecf\u0ed0-\u0eff"  # Thai, Lao
    # Myanmar, Khmer; Hangul letters, Kana, Han, Hangul syllables
    "\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17d7\u17dc\u17dd\u17e0-\u17e9\ua9e0-\ua9fe\uaa60-\uaa7f"
    "\u1100-\u11ff\u3005-\u3007\u3040-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Combining marks; Python's \w does not contain them and would split words.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"
    "\u0711\u0730-\u074a\u07a6-\u07b0\u07eb-\u07f3\u0816-\u0819\u081b-\u0823\u0825-\u0827\u0829-\u082d"
    "\u0898-\u089f\u08ca-\u08e1\u08e3-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0981-\u0983"
    "\u09bc\u09be-\u09cd\u09d7\u09e2\u09e3\u09fe\u0a01-\u0a03\u0a3c-\u0a51\u0a70\u0a71\u0a75\u0a81-\u0a83"
    "\u0abc\u0abe-\u0acd\u0ae2\u0ae3\u0afa-\u0aff\u0b01-\u0b03\u0b3c\u0b3e-\u0b57\u0b62\u0b63\u0b82"
    "\u0bbe-\u0bcd\u0bd7\u0c00-\u0c04\u0c3c\u0c3e-\u0c56\u0c62\u0c63\u0c81-\u0c83\u0cbc\u0cbe-\u0cd6"
    "\u0ce2\u0ce3\u0cf3\u0d00-\u0d03\u0d3b\u0d3c\u0d3e-\u0d4d\u0d57\u0d62\u0d63\u0d81-\u0d83\u0dca-\u0ddf"
    "\u0df2\u0df3\u0f18\u0f19\u0f35\u0f37\u0f39\u0f3e\u0f3f\u0f71-\u0f84\u0f86\u0f87\u0f8d-\u0fbc\u0fc6"
    "\u135d-\u135f\u1712-\u1715\u1732-\u1734\u1752\u1753\u180b-\u180d\u18a9\u1a17-\u1a1b\u1ab0-\u1ace"
    "\u1b00-\u1b04\u1b34-\u1b44\u1b6b-\u1b73\u1b80-\u1b82\u1ba1-\u1bad\u1be6-\u1bf3\u1c24-\u1c37\u1dc0-\u1dff"
    "\u20d0-\u20f0\ua802\ua806\ua80b\ua823-\ua827\ua880\ua881\ua8b4-\ua8c5\uabe3-\uabed\ufe00-\ufe0f\ufe20-\ufe2f"
)
_PIECE = re.compile(rf"[{_UNSPACED}]+|(?:[^\W_{_UNSPACED}]|[{_MARKS}])+")
_UNSPACED_CHARACTER = re.compile(rf"[{_UNSPACED}]")
# Han and Hangul: a single character is often a word (水, 물).
_WORD_CHARACTER = re.compile("[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")

# Lowercase letters, digits, and a space for everything else: three times faster than a regex.
_ASCII_FOLD = bytes(ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else ord(" ") for byte in range(256))
# Soft hyphens and joiners inside words are invisible.
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
# Letters of some alphabets, and how people without that key type them.
_LATIN_LETTERS = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i", "ħ": "h"}
)
FIRST_UNSPACED = "\u0e00"
"""All scripts without spaces are above this character."""

_MAX_TERM = 100  # characters; anything longer is data, not a word


def words(text: str) -> list[str]:
    """Return the folded words in order: NFKC, casefold, no accents; character pairs for unspaced scripts."""
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
    """Return the number of shared words / number of all words; 0 for two empty texts."""
    shared = len(left & right)
    return shared / (len(left) + len(right) - shared) if shared else 0.0


def pieces(text: str) -> list[str]:
    """Return lowercase words and unspaced runs in order, with their accents."""
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
    """Whether a piece is a run of a script without spaces."""
    return piece[0] >= FIRST_UNSPACED and _UNSPACED_CHARACTER.match(piece) is not None


def pairs(run: str) -> list[str]:
    """Return the overlapping pairs of a run; a run of one character is that character."""
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def word_characters(run: str) -> list[str]:
    """Return the characters of a run that may be words by themselves (Han and Hangul)."""
    return _WORD_CHARACTER.findall(run)


def without_accents(word: str) -> str:
    """Remove accents of Latin and Greek letters and ё, and vowel signs of Arabic and Hebrew.

    Marks that make a different letter stay: й is not и, and Indic vowel signs are vowels.
    """
    if word.isascii():
        return word[:_MAX_TERM]
    # Longer words are not cached: they do not repeat, and would take much memory.
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

MIN_WRAP_WIDTH = 40
"""Lines of a narrower paragraph are verse, an address or a list, unless the next line starts in lowercase."""
MIN_NARROW_WIDTH = 28
MIN_UNSPACED_WIDTH = 16
MAX_VERSE_WIDTH = 60


def sentences(text: str) -> list[str]:
    """Return the sentences of at least two words, each on one line without list and quote marks."""
    lines = (one_line(text[start:end]) for start, end in sentence_spans(text))
    return [sentence for sentence in lines if len(words(sentence)) > 1]


def sentence_spans(text: str, *, lowercase_starts: bool = False) -> list[Span]:
    """Return (start, end) of each sentence, in characters, without the white space around it.

    With `lowercase_starts` a sentence may begin with a lowercase letter, as in typed queries.
    """
    spans: list[Span] = []
    ends = _ANY_END if lowercase_starts else _END
    for start, end in _units(text):
        first = start
        for stop in ends.finditer(text, start, end):
            # Only the last characters: searching all of them at each stop would be quadratic.
            head = text[max(first, stop.start() - _LONGEST_ABBREVIATION) : stop.start()]
            if not _ABBREVIATION.search(head):
                spans.append((first, stop.end()))
                first = stop.end()
        spans.append((first, end))
    trimmed = []
    for start, end in spans:
        sentence = text[start:end]
        if stripped := sentence.strip():
            first = start + len(sentence) - len(sentence.lstrip())
            trimmed.append((first, first + len(stripped)))
    return trimmed


def one_line(sentence: str) -> str:
    """Return a sentence on one line, without list marker and hyphenation."""
    lines = [_QUOTE.sub("", line, count=1).strip() for line in sentence.split("\n")]
    lines[0] = _HEADING_MARK.sub("", _ITEM.sub("", lines[0], count=1), count=1)
    joined = lines[0]
    for line in lines[1:]:
        hyphenated = joined[-1:] == "-" and joined[-2:-1].isalpha() and line[:1].islower()
        unspaced = bool(joined) and bool(line) and is_unspaced(joined[-1]) and is_unspaced(line[0])
        joined += line if hyphenated or unspaced else f" {line}"
    return " ".join(joined.split())


def _units(text: str) -> Iterator[Span]:
    """Yield the spans in which sentences are searched: wrapped lines joined, others separately."""
    paragraph: list[Span] = []
    in_code = False
    position = 0
    for line in text.splitlines(keepends=True):
        span = (position, position + len(line))
        position += len(line)
        fence = _FENCE.match(line)
        if fence or in_code:
            yield from _paragraph_units(text, paragraph)
            paragraph = []
            in_code = in_code != bool(fence)
            yield span
        elif not line.strip() or _HEADING.match(line) or _RULE.match(line) or _ROW.match(line):
            yield from _paragraph_units(text, paragraph)
            paragraph = []
            yield span
        else:
            if _ITEM.match(line):
                yield from _paragraph_units(text, paragraph)
                paragraph = []
            paragraph.append(span)
    yield from _paragraph_units(text, paragraph)


def _paragraph_units(text: str, lines: list[Span]) -> Iterator[Span]:
    """Join the lines of a paragraph or list item that ended because the next word did not fit."""
    if not lines:
        return
    raw = [text[start:end].rstrip("\r\n") for start, end in lines]
    bare = [_QUOTE.sub("", line, count=1).strip() for line in raw]
    width = max(map(len, bare))
    # Three or more short lines that all start with a capital letter are verse or an address.
    verse = len(bare) > 2 and width < MAX_VERSE_WIDTH and all(line[:1].isupper() for line in bare)
    prose = bool(_PROSE_END.search(bare[-1]))
    start = lines[0][0]
    for i in range(len(lines) - 1):
        # In prose a line that starts in lowercase continues a sentence, however narrow the lines are.
        continues = prose and bare[i] and bare[i + 1][:1].islower()
        wrapped = continues or _is_wrapped(bare[i], bare[i + 1], width, verse=verse)
        if _HARD_BREAK.search(raw[i]) or not wrapped:
            yield start, lines[i][1]
            start = lines[i + 1][0]
    yield start, lines[-1][1]


def _is_wrapped(line: str, following: str, width: int, *, verse: bool) -> bool:
    """Whether a line ends only because the next word did not fit."""
    if not line or not following:
        return False
    if is_unspaced(line[-1]) or is_unspaced(following[0]):
        return width >= MIN_UNSPACED_WIDTH and len(line) >= width - 4
    first_word = following.split(maxsplit=1)[0]
    needed = len(line) + 1 + len(first_word)
    if following[0].islower():
        # Editors wrap a little earlier around links and long words.
        return needed > 0.8 * width and width >= MIN_NARROW_WIDTH
    return needed > width and width >= MIN_WRAP_WIDTH and not (verse and following[0].isupper())
