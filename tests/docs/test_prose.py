"""Pages are written in short sentences, to the reader, and without walls of numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_language import BANNED

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OTHERS = ("reference/", "benchmarks.md")
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted(DOCS.rglob("*.md")) if not page.relative_to(DOCS).as_posix().startswith(OTHERS)),
]
MAX_LINE = 160
PRIVATE = re.compile(r"memosa|costar|stargraph|sponsor_background|exit_strategy", re.IGNORECASE)
"""Words of the projects that Resift grew out of; they belong in the reference only."""


def prose(text: str) -> str:
    """Return the sentences of a page: no code, tables, headings, pictures or addresses."""
    text = re.sub(r"(?ms)^```.*?^```$", "", text)
    text = re.sub(r"(?s)<!--.*?-->", "", text)
    lines = ["" if re.match(r"\s*(#|\||<|!\[|---)", line) else line for line in text.splitlines()]
    lines = [re.sub(r"^\s*(?:[-*+]|\d+\.)\s+", "\n", line) for line in lines]
    text = re.sub(r"`[^`]*`", "code", "\n".join(lines))
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[*_]{1,3}", "", text)


def sentences(text: str) -> list[list[str]]:
    """Return the words of each sentence with at least three words."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", prose(text))]
    parts = [part for flat in paragraphs for part in re.split(r"(?<=[.!?:])\s+(?=[A-Z\"'(])", flat)]
    words = [re.findall(r"[A-Za-z0-9'’\-./%×+;]+", part) for part in parts]
    return [each for each in words if len(each) > 2]


def test_sentences_are_short_and_speak_to_the_reader():
    """Limits over all pages: long sentences, semicolons, numbers, and how often the reader is addressed."""
    found = [each for page in PAGES for each in sentences(page.read_text(encoding="utf-8"))]
    words = [word for each in found for word in each]
    per_thousand = 1000 / len(words)
    assert sum(len(each) > 30 for each in found) <= 0.04 * len(found)
    assert sum(";" in word for word in words) * per_thousand <= 2
    assert sum(bool(re.search(r"\d", word)) for word in words) * per_thousand <= 15
    assert sum(word.lower() in ("you", "your", "yours") for word in words) * per_thousand >= 12


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_short_lines_and_plain_words(page):
    text = page.read_text(encoding="utf-8")
    skipped = ("|", "```", "<", "!", "    ")
    assert [line for line in text.splitlines() if len(line) > MAX_LINE and not line.startswith(skipped)] == []
    banned = re.compile(rf"\b({'|'.join(map(re.escape, BANNED))})\b", re.IGNORECASE)
    assert banned.findall(prose(text)) == []
    assert PRIVATE.findall(text) == []
