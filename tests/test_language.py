"""Guard rails for plain English in code, tests and documentation (STYLE: write plain technical English).

A package is checked as soon as it is in CLEAN; add a package here when its prose has been rewritten. Names
and texts that the project promises to keep are in ALLOWED_NAMES and ALLOWED_TEXTS.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

CLEAN = [
    "src/resift",
    "tests/_internal",
    "tests/agent",
    "tests/batch",
    "tests/cli",
    "tests/config",
    "tests/demo",
    "tests/evaluation",
    "tests/explain",
    "tests/ingest",
    "tests/integrations",
    "tests/ranking/fusion",
    "tests/ranking/gate",
    "tests/rerankers",
    "tests/resilience",
    "tests/telemetry",
    "tests/test_bad_calls.py",
    "tests/test_entry_points.py",
    "tests/test_exports.py",
    "tests/test_forking.py",
    "tests/test_language.py",
    "tests/test_plugins.py",
    "tests/test_validation.py",
    "tests/testing",
    "tests/text",
]
"""Files and folders that are checked."""

CLEAN_PAGES: list[str] = []
"""Markdown pages that are checked for long lines and banned words."""

MAX_LINE = 160
"""Characters of a line of prose in Markdown; tables and code may be longer."""

BANNED = {
    "anew": "again",
    "beside": "next to",
    "besides": "in addition",
    "told": "given, known or reported",
    "of one's own": "custom",
    "from which on": "from … upward",
    "also where": "even if",
    "so many": "this many",
    "is none": "name what it is",
    "how far": "the quantity itself",
    "carrier": "model package",
    "own forward pass": "native engine",
    "learnt": "learned or trained",
    "whole number": "integer",
    "nobody judged": "unscored",
    "unjudged": "unscored",
    "as it was": "unchanged",
    "whoever": "callers or users",
    "lest": "so that … not",
    "thereby": "this way",
    "hence": "so",
    "shall": "must or will",
}
"""Word or phrase -> what to write instead."""

PARTICIPLES = frozenset({
    "asked", "begun", "checked", "chosen", "closed", "drawn", "filled", "found", "given", "held", "joined",
    "judged", "kept", "known", "listed", "made", "met", "named", "noted", "opened", "painted", "said",
    "searched", "seen", "shown", "taken", "told", "tried", "weighed", "written",
})  # fmt: skip
"""Function names that describe a state instead of an action; write verb + object."""

BRITISH = re.compile(
    r"(?:normali|optimi|tokeni|seriali|quanti|summari|organi|recogni|initiali)s(?:e|ing|ation)"
    r"|colour|behaviour|neighbour|favour|honour|judgement|centre\b|catalogue",
    re.IGNORECASE,
)
"""British spellings; identifiers and prose are American."""

ALLOWED_NAMES: frozenset[str] = frozenset({"named", "searched"})  # public since 0.2
ALLOWED_TEXTS = frozenset(
    {
        "neighbours",  # a part of the blend in traces of 0.2
        "resift.retrieval.neighbours",  # modules of 0.2
        "resift.shape.neighbours",
        "normalise",  # a misspelled option in tests
        "optimise",
        "optimize optimise",  # an action of `resift store` in 0.2
        "Optimises",
        "judgements",  # an option of the server in 0.2
        "--judgments --judgements FOLDER",
        "unjudged",  # queries without relevance judgments
    }
)

_BANNED = re.compile(rf"\b(?:{'|'.join(map(re.escape, BANNED))})\b", re.IGNORECASE)
_PARTICIPLE = re.compile(rf"\bdef\s+_*(?:{'|'.join(sorted(PARTICIPLES))})_*\b")


def python_files() -> list[Path]:
    files: list[Path] = []
    for entry in CLEAN:
        path = ROOT / entry
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return files


def texts_and_names(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, text, whether it is a name) for comments, strings and names."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string, False
        elif token.type == tokenize.NAME:
            yield token.start[0], token.string, True


def find_problems(source: str) -> list[str]:
    """Return the banned words, British spellings and participle names of a Python file, with their lines."""
    problems = []
    lines = source.splitlines()
    # Splitting a file into tokens takes longer than all searches in its text.
    has_words = _BANNED.search(source) or BRITISH.search(source)
    for line, text, is_name in texts_and_names(source) if has_words else ():
        if text.strip("\"'") in ALLOWED_TEXTS:
            continue
        if not is_name:
            problems += [f"{line}: {match[0]!r} → {BANNED[match[0].lower()]}" for match in _BANNED.finditer(text)]
        problems += [f"{line}: {match[0]!r} is British spelling" for match in BRITISH.finditer(text)]
    for node in ast.walk(ast.parse(source)) if _PARTICIPLE.search(source) else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = node.name.strip("_")
            if "OLD NAME" in lines[node.lineno - 1]:
                continue
            if name in PARTICIPLES and name not in ALLOWED_NAMES:
                problems.append(f"{node.lineno}: the function {node.name} needs a verb and an object")
    return problems


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_python_files_are_in_plain_english(path: Path):
    if path == Path(__file__):
        return  # it lists the banned words
    assert find_problems(path.read_text(encoding="utf-8")) == []


def prose_lines(page: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a Markdown page outside of code blocks and tables."""
    in_code = False
    for number, line in enumerate(page.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith(("|", "<", "    ")):
            yield number, line


@pytest.mark.parametrize("name", CLEAN_PAGES)
def test_markdown_pages_have_short_lines_and_plain_words(name: str):
    lines = list(prose_lines((ROOT / name).read_text(encoding="utf-8")))
    assert [number for number, line in lines if len(line) > MAX_LINE] == []
    assert [f"{number}: {match[0]}" for number, line in lines for match in _BANNED.finditer(line)] == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("# begin anew\n", "anew"),
        ('"""What was told."""\n', "told"),
        ("def _found(): ...\n", "_found"),
        ("async def checked(): ...\n", "checked"),
        ("normalise = 1\nneighbour = 2\n", "neighbour"),
    ],
)
def test_the_checks_find_problems(source: str, problem: str):
    assert problem in "; ".join(find_problems(source))


@pytest.mark.parametrize("source", ["# again\n", "def load_index(): ...\n", "normalize = 'neighbours'\n"])
def test_plain_english_passes(source: str):
    assert find_problems(source) == []
