"""Snippets: the part of a text that best matches a query, with the spans of the matching words."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from itertools import accumulate, takewhile
from typing import NamedTuple

from resift.text.analysis import Analyzer
from resift.text.tokenization import is_unspaced, piece_spans

Span = tuple[int, int]

# A period ends a sentence only before whitespace, so 0.5 and notes.md stay whole. Each character can match in
# only one way, so the time is linear for any input.
_SENTENCE = re.compile(r"(?:[^.!?。！？।؟\n]|[.!?](?!\s|$))++[.!?。！？।؟\n]*+\s*+")
_MAX_CHARS = 100_000  # the beginning of a long text is enough for a snippet


class Snippet(NamedTuple):
    """An excerpt of a text on one line, with the spans of the query words and of the best sentence."""

    text: str
    matches: tuple[Span, ...] = ()
    best: Span = (0, 0)

    def highlight(self, before: str = "**", after: str = "**") -> str:
        """Return the text with `before` and `after` around each match."""
        parts, position = [], 0
        for start, end in self.matches:
            parts += [self.text[position:start], before, self.text[start:end], after]
            position = end
        return "".join([*parts, self.text[position:]])

    def marked(self, before: str = "**", after: str = "**") -> str:
        """Return the same as `highlight`; this is its name in Resift 0.2."""
        return self.highlight(before, after)


def snippet(text: str, query: str, *, length: int = 200, analyzer: Analyzer | None = None) -> Snippet:
    """Return the part of a text with the most query words, at most `length` characters; else its beginning."""
    line = " ".join(text[:_MAX_CHARS].split())
    matches, terms = _find_matches(line, query, analyzer or Analyzer())
    sentences = [match.span() for match in _SENTENCE.finditer(line)] or [(0, len(line))]
    index = _best_sentence(sentences, matches, terms)
    best = sentences[index]
    if best[1] - best[0] > length:
        start, end = _crop_sentence(line, best, matches, length)
    else:
        start, end = _add_sentences(line, sentences, index, length)
    before = "… " if start > 0 else ""
    after = " …" if end < len(line) or len(text) > _MAX_CHARS else ""
    visible = line[start:end].rstrip()
    end = start + len(visible)
    shift = len(before) - start
    kept = tuple((first + shift, last + shift) for first, last in matches if first >= start and last <= end)
    sentence = (max(best[0], start) + shift, min(best[1], end) + shift)
    return Snippet(before + visible + after, kept, sentence if kept else (0, 0))


def _find_matches(line: str, query: str, analyzer: Analyzer) -> tuple[list[Span], list[str]]:
    """Return the matching spans and the term of each."""
    languages = analyzer.analyze(line).languages
    wanted = set(analyzer.query_terms(query, languages=languages))
    spans: list[Span] = []
    terms: list[str] = []

    @cache
    def match(piece: str) -> str:
        candidates = analyzer.query_terms(piece, languages=languages)
        return next((term for term in candidates if term in wanted), "")

    for start, end in piece_spans(line):
        piece = line[start:end]
        if is_unspaced(piece):
            _match_run(piece, start, wanted, spans, terms)
        elif term := match(piece):
            spans.append((start, end))
            terms.append(term)
    return spans, terms


def _match_run(run: str, start: int, wanted: set[str], spans: list[Span], terms: list[str]) -> None:
    """Add the character pairs of a run that are in the query; overlapping pairs become one span."""
    size = min(2, len(run))
    for i in range(len(run) - size + 1):
        match = next((term for term in (run[i : i + size], run[i]) if term in wanted), "")
        if not match:
            continue
        span = (start + i, start + i + len(match))
        if spans and spans[-1][1] >= span[0] >= start:
            spans[-1] = (spans[-1][0], max(spans[-1][1], span[1]))
            terms[-1] = f"{terms[-1]}{match[-1]}"
        else:
            spans.append(span)
            terms.append(match)


def _best_sentence(sentences: list[Span], matches: list[Span], terms: list[str]) -> int:
    """Return the index of the sentence with the most distinct and rarest query words."""
    rarity = Counter(terms)
    terms_by_sentence: list[set[str]] = [set() for _ in sentences]
    i = 0
    for (start, _), term in zip(matches, terms, strict=True):
        while i + 1 < len(sentences) and sentences[i][1] <= start:
            i += 1
        terms_by_sentence[i].add(term)
    scores = [sum(1 + 1 / rarity[term] for term in sorted(matched)) for matched in terms_by_sentence]
    return max(range(len(sentences)), key=lambda index: (scores[index], -index))


def _add_sentences(line: str, sentences: list[Span], index: int, length: int) -> Span:
    """Extend the best sentence with complete sentences after it, then before it, as long as they fit."""
    first = last = index
    while last + 1 < len(sentences) and sentences[last + 1][1] - sentences[first][0] <= length:
        last += 1
    while first > 0 and sentences[last][1] - sentences[first - 1][0] <= length:
        first -= 1
    start, end = sentences[first][0], sentences[last][1]
    if last + 1 < len(sentences) and 2 * (end - start) < length:
        # More than half of the length is unused, so add the beginning of the next sentence up to the end of a word.
        end = max(end, line.rfind(" ", end, start + length))
    return start, end


def _crop_sentence(line: str, sentence: Span, matches: list[Span], length: int) -> Span:
    """Crop a long sentence to the part with the most matches, at word boundaries."""
    inside = [span for span in matches if sentence[0] <= span[0] and span[1] <= sentence[1]]
    start, best, after = sentence[0], 0, 0
    for i, (first, _) in enumerate(inside):
        begin = max(sentence[0], first - length // 4)
        while after < len(inside) and inside[after][1] <= begin + length:
            after += 1
        if after - i > best:
            start, best = begin, after - i
    space = line.find(" ", start, start + length // 8) if start > sentence[0] else -1
    start = space + 1 if space >= 0 else start
    end = min(sentence[1], start + length)
    space = line.rfind(" ", start + length // 2, end) if end < sentence[1] else -1
    return start, space if space >= 0 else end


_DIGEST = re.compile(r"[0-9a-f]{8,}")
_PHRASE_END = re.compile(r" \+ |[:;] ")
_DIGEST_SHOWN = 4  # enough hexadecimal digits to distinguish chunks of one file


def display_width(text: str) -> int:
    """Return the number of terminal columns that a text occupies."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich.cells import cell_len  # imported lazily: most commands print only ASCII and do not need rich

    return cell_len(text)


def one_line(text: str) -> str:
    """Return the text on one line, without control, tab, direction and newline characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def clip(text: str, width: int) -> str:
    """Return the text on one line, shortened with … to at most `width` columns."""
    line = one_line(text)
    return line if display_width(line) <= width else _head(line, width - 1) + "…"


def clip_phrase(text: str, width: int) -> str:
    """Return a text on one line, shortened with … after a complete phrase if possible, else after a word."""
    line = one_line(text)
    if display_width(line) <= width:
        return line
    ends = [end.start() for end in _PHRASE_END.finditer(_head(line, width - 1))]
    return f"{line[: ends[-1]]} …" if ends else clip_words(line, width)


def clip_words(text: str, width: int) -> str:
    """Return the text on one line, shortened with … after a complete word if it has spaces."""
    clipped = clip(text, width)
    words = clipped.rpartition(" ")[0] if clipped.endswith("…") else ""
    return f"{words} …" if 2 * display_width(words) > width else clipped


def short_id(id: str, width: int) -> str:
    """Shorten an id: `handbook/rooms/library.md#ab1c178bc6e6` becomes `…/library.md#ab1c`."""
    line = one_line(id)
    if display_width(line) <= width:
        return line
    path, mark, digest = line.rpartition("#")
    if mark and _DIGEST.fullmatch(digest):
        line = f"{path}#{digest[:_DIGEST_SHOWN]}"
    folders, slash, name = line.rpartition("/")
    while display_width(line) > width and slash:
        _, slash, folders = folders.partition("/")
        line = f"…/{folders}/{name}" if slash else f"…/{name}"
    if display_width(line) <= width:
        return line
    # The name itself is too long. Keep its end, which distinguishes pages and chunks, and its beginning.
    tail = _head(line[::-1], min(width // 2, 9))[::-1]
    return f"{_head(line, width - 1 - display_width(tail))}…{tail}"


def _head(text: str, width: int) -> str:
    """Return the longest beginning of a text that fits into `width` columns."""
    used = accumulate(map(display_width, text))
    return text[: sum(1 for _ in takewhile(lambda total: total <= width, used))]
