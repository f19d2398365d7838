"""Hits as cards for a terminal: where it is from, the words that matched, its score, what moved it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from resift.cli.render import bar, paint, width
from resift.explain.escaping import cells, clip, clip_phrase, short_id

if TYPE_CHECKING:
    from resift.text.snippets import Snippet
    from resift.types import Hit, Ranking

_BAR = 8
_MARGIN = "   "


def cards(
    ranking: Ranking, query: str, *, scores: Sequence[float | None], full: bool = False, bars: bool = True
) -> list[str]:
    """Return the lines of a ranking, a card per hit with an empty line between.

    Bars go from 0 to 1; scores on any other scale are shown without (`bars=False`).
    """
    from resift.explain.flow import flow_of
    from resift.explain.moves import move_of

    flow = flow_of(ranking, query=query)
    moved = {path.id: move_of(path, flow) for path in flow.kept}
    lines: list[str] = []
    for rank, (hit, score) in enumerate(zip(ranking, scores, strict=True), start=1):
        move = moved.get(hit.id)
        lines += [
            _head(rank, hit, score, bars=bars),
            *_place(hit),
            *_text(hit, query, full=full),
            *([_dim(clip_phrase(f"{move.sign} {move.reason}", width() - len(_MARGIN)))] if move else []),
            "",
        ]
    return lines[:-1]


def title_of(hit: Hit) -> str:
    """Return what a person calls the place of a hit: title › heading, else its file, else its id."""
    title, heading = (str(hit.metadata.get(key) or "").strip() for key in ("title", "heading"))
    path = str(hit.metadata.get("path") or "")
    return " › ".join(part for part in (title, heading) if part) or path.rpartition("/")[2] or hit.id


def _head(rank: int, hit: Hit, score: float | None, *, bars: bool) -> str:
    number = "–" if score is None else f"{score:.2f}" if bars else f"{score:.3g}"
    size = _BAR if bars and width() >= 60 else 0
    tail = f"{bar(score or 0.0, 1.0, size)} {number:>7}" if size else f"{number:>7}"
    name = short_id(title_of(hit), width() - len(_MARGIN) - cells(tail) - 1)
    gap = " " * max(1, width() - len(_MARGIN) - cells(name) - cells(tail))
    return f"{rank:>2} {paint(name, 'bold')}{gap}{paint(tail, 'cyan')}"


def _place(hit: Hit) -> list[str]:
    """Return the line with path, page and source of a hit, where the title did not already say it."""
    facts = []
    path = str(hit.metadata.get("path") or "")
    if path:
        facts.append(short_id(path, width() - len(_MARGIN) - 12))
    for key, label in (("page", "p. "), ("slide", "slide "), ("sheet", "sheet "), ("line", "line ")):
        if hit.metadata.get(key) is not None:
            facts.append(f"{label}{hit.metadata[key]}")
    if not path and title_of(hit) != hit.id:
        facts.append(hit.id)
    return [_dim("  ".join(facts))] if facts and facts != [title_of(hit)] else []


def _dim(text: str) -> str:
    return _MARGIN + paint(clip(text, width() - len(_MARGIN)), "dim")


def _text(hit: Hit, query: str, *, full: bool) -> list[str]:
    from resift.text.snippets import snippet

    columns = width() - len(_MARGIN)
    body = _without_heading(hit)
    if not full:
        return [
            _MARGIN + line
            for line in _painted(snippet(body, query, length=2 * columns - 8), columns, lines=2)
        ]
    found = snippet(body, query, length=len(body) + 1)
    return [_MARGIN + line for line in _painted(found, columns, lines=None)]


def _without_heading(hit: Hit) -> str:
    """Return the text without the heading that indexing puts before each chunk: the card shows it above."""
    for key in ("heading", "title"):
        head = str(hit.metadata.get(key) or "")
        if head and hit.text.startswith(head) and hit.text[len(head) :].strip():
            return hit.text[len(head) :].lstrip()
    return hit.text


def _painted(found: Snippet, columns: int, *, lines: int | None) -> list[str]:
    """Wrap a snippet by terminal columns: matches bold, all but the best sentence dim."""
    styles = ["dim" if found.matches else ""] * len(found.text)
    for span, style in [(found.best, ""), *((match, "bold") for match in found.matches)]:
        styles[slice(*span)] = [style] * (span[1] - span[0])
    rows: list[str] = []
    at = 0
    while at < len(found.text) and (lines is None or len(rows) < lines):
        end = _line_end(found.text, at, columns - (1 if lines is not None and len(rows) == lines - 1 else 0))
        row = _runs(found.text[at:end], styles[at:end])
        last = lines is not None and len(rows) == lines - 1 and end < len(found.text)
        rows.append(row.rstrip() + ("…" if last else ""))
        at = end
        while at < len(found.text) and found.text[at] == " ":
            at += 1
    return rows


def _line_end(text: str, start: int, columns: int) -> int:
    """Return where a line that begins here must end: behind the last word that fits."""
    used, space = 0, -1
    for at in range(start, len(text)):
        used += cells(text[at])
        if used > columns:
            return space if space > start else max(at, start + 1)
        if text[at] == " ":
            space = at
    return len(text)


def _runs(text: str, styles: Sequence[str]) -> str:
    from itertools import groupby

    parts = []
    for style, run in groupby(zip(text, styles, strict=True), key=lambda pair: pair[1]):
        plain = "".join(char if char.isprintable() else " " for char, _ in run)
        parts.append(paint(plain, *{"bold": ("bold", "yellow"), "dim": ("dim",)}.get(style, ())))
    return "".join(parts)
