"""A snippet: the part of a text that answers a question best, and the words that match. Knows no terminal."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from resift.text.analysis import Analyzer
from resift.text.tokenization import is_unspaced, piece_spans

Span = tuple[int, int]

# A full stop ends a sentence only before a space: 0.5 and notes.md go on. Each character has one way to
# match, so the time is linear on any input.
_SENTENCE = re.compile(r"(?:[^.!?。！？।؟\n]|[.!?](?!\s|$))++[.!?。！？।؟\n]*+\s*+")
_MOST_TEXT = 100_000  # characters that are looked at: a snippet of a book need not read all of it


class Snippet(NamedTuple):
    """One line of a text; `matches` are the spans of words asked for, `best` that of the best sentence."""

    text: str
    matches: tuple[Span, ...] = ()
    best: Span = (0, 0)

    def marked(self, before: str = "**", after: str = "**") -> str:
        """Return the line with these marks around the matches."""
        parts, at = [], 0
        for start, end in self.matches:
            parts += [self.text[at:start], before, self.text[start:end], after]
            at = end
        return "".join([*parts, self.text[at:]])


def snippet(text: str, query: str, *, length: int = 200, analyzer: Analyzer | None = None) -> Snippet:
    """Return the part of a text, at most `length` characters, that has most of the query's words.

    Words match as word search matches them: folded, by their stems, by pairs of characters where nobody
    writes spaces. Without a match it is the beginning.
    """
    line = " ".join(text[:_MOST_TEXT].split())
    matches, terms = _matches(line, query, analyzer or Analyzer())
    sentences = [match.span() for match in _SENTENCE.finditer(line)] or [(0, len(line))]
    at = _best(sentences, matches, terms)
    best = sentences[at]
    too_long = best[1] - best[0] > length
    start, end = _around(line, best, matches, length) if too_long else _grown(line, sentences, at, length)
    before = "… " if start > 0 else ""
    after = " …" if end < len(line) or len(text) > _MOST_TEXT else ""
    shown = line[start:end].rstrip()
    end = start + len(shown)
    shift = len(before) - start
    kept = tuple((one + shift, other + shift) for one, other in matches if one >= start and other <= end)
    sentence = (max(best[0], start) + shift, min(best[1], end) + shift)
    return Snippet(before + shown + after, kept, sentence if kept else (0, 0))


def _matches(line: str, query: str, analyzer: Analyzer) -> tuple[list[Span], list[str]]:
    """Return the spans that match, and beside each the term it matches."""
    languages = analyzer.analyze(line).languages
    wanted = set(analyzer.query_terms(query, languages=languages))
    known: dict[str, str] = {}
    spans: list[Span] = []
    terms: list[str] = []
    for start, end in piece_spans(line):
        piece = line[start:end]
        if is_unspaced(piece):
            _match_run(piece, start, wanted, spans, terms)
            continue
        if piece not in known:
            found = analyzer.query_terms(piece, languages=languages)
            known[piece] = next((term for term in found if term in wanted), "")
        if known[piece]:
            spans.append((start, end))
            terms.append(known[piece])
    return spans, terms


def _match_run(run: str, start: int, wanted: set[str], spans: list[Span], terms: list[str]) -> None:
    """Mark the pairs of a run that were asked for; overlapping ones become one span."""
    size = min(2, len(run))
    for at in range(len(run) - size + 1):
        found = next((term for term in (run[at : at + size], run[at]) if term in wanted), "")
        if not found:
            continue
        span = (start + at, start + at + len(found))
        if spans and spans[-1][1] >= span[0] >= start:
            spans[-1] = (spans[-1][0], max(spans[-1][1], span[1]))
            terms[-1] = f"{terms[-1]}{found[-1]}"
        else:
            spans.append(span)
            terms.append(found)


def _best(sentences: list[Span], matches: list[Span], terms: list[str]) -> int:
    """Return the place of the sentence with the most different and rarest words asked for."""
    rarity = Counter(terms)
    found: list[set[str]] = [set() for _ in sentences]
    at = 0
    for (start, _), term in zip(matches, terms, strict=True):
        while at + 1 < len(sentences) and sentences[at][1] <= start:
            at += 1
        found[at].add(term)
    worth = [sum(1 + 1 / rarity[term] for term in sorted(held)) for held in found]
    return max(range(len(sentences)), key=lambda place: (worth[place], -place))


def _grown(line: str, sentences: list[Span], at: int, length: int) -> Span:
    """Take whole sentences behind the best one, then before it, while they fit."""
    first = last = at
    while last + 1 < len(sentences) and sentences[last + 1][1] - sentences[first][0] <= length:
        last += 1
    while first > 0 and sentences[last][1] - sentences[first - 1][0] <= length:
        first -= 1
    start, end = sentences[first][0], sentences[last][1]
    if last + 1 < len(sentences) and 2 * (end - start) < length:
        # Half of the room is empty: the beginning of the next sentence, to the end of a word, fills it.
        end = max(end, line.rfind(" ", end, start + length))
    return start, end


def _around(line: str, sentence: Span, matches: list[Span], length: int) -> Span:
    """Cut a long sentence to the stretch with the most matches, between two words."""
    inside = [span for span in matches if sentence[0] <= span[0] and span[1] <= sentence[1]]
    start, most, behind = sentence[0], 0, 0
    for place, (first, _) in enumerate(inside):
        begin = max(sentence[0], first - length // 4)
        while behind < len(inside) and inside[behind][1] <= begin + length:
            behind += 1
        if behind - place > most:
            start, most = begin, behind - place
    space = line.find(" ", start, start + length // 8) if start > sentence[0] else -1
    start = space + 1 if space >= 0 else start
    end = min(sentence[1], start + length)
    space = line.rfind(" ", start + length // 2, end) if end < sentence[1] else -1
    return start, space if space >= 0 else end
