"""Sentence boundaries in plain text and Markdown of any script.

Lines that were wrapped at a fixed width are joined. Headings, list items, table rows, code lines and short
lines (verse, addresses) are separate units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from resift.text.tokenization import is_unspaced, words

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
    start = lines[0][0]
    for i in range(len(lines) - 1):
        if _HARD_BREAK.search(raw[i]) or not _is_wrapped(bare[i], bare[i + 1], width, verse=verse):
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
