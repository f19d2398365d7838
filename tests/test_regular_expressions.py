"""No regular expression of the project takes long on a megabyte of hostile text."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import random
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from re import _parser

import pytest

import resift

BUDGET_S = 0.5  # for a megabyte
SIZES = (200, 3_000)  # characters; what is not linear shows it here, and still ends
FLOOR_S = 0.005  # a tick of the clock and of a busy machine
ATOMS = (
    *"a \n\t=#-*[](<>\"'`~\\.0é水{|/:$_",
    *("9.", "a ", "= ", "a=", "\n ", "\n=", "\\u", "[a", "[[", "](", "<a", "<a ", "\n---\n", "a\n", "[1]"),
    *("1>", "{}", "Dr. ", "a.b", "```", "<think>", "}{", "a@", "://", '\\"', "1.", "\r\n"),
)
HEADS = ("", "---\n", "# a", "==", "[", '"', "```\n", "<think>", "://", "a.")
TAILS = ("", "!", "b")
# Asked at one place after the other, each time where the last match ended: never searched for.
SCANNERS = {"resift.stores.graph.cypher_tokens._TOKEN"}
MODULES = re.compile(r"\b(?:re|regex|fnmatch)\b")
METHODS = {"sub", "match", "fullmatch", "search", "findall", "finditer", "split", "subn"}


def compiled() -> Iterator[tuple[str, re.Pattern]]:
    """Yield every pattern that a module holds."""
    for found in pkgutil.walk_packages(resift.__path__, "resift."):
        if found.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(found.name)
        except ImportError:  # an extra that is not installed
            continue
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                yield f"{found.name}.{name}", value


@cache
def nodes() -> list[tuple[Path, ast.Call | ast.Import | ast.ImportFrom]]:
    """Return every call of `re.…` in the project and every import in a file that names `re` or the like."""
    found = []
    for file in sorted(Path(resift.__file__).parent.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if MODULES.search(source) else ():
            if isinstance(node, ast.Call):
                if not (isinstance(node.func, ast.Attribute) and node.args):
                    continue
                if isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
                    found.append((file, node))
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                found.append((file, node))
    return found


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield every call of `re.…` in the project, with its place."""
    for file, node in nodes():
        if isinstance(node, ast.Call):
            yield f"{file.name}:{node.lineno}", node


def inline() -> Iterator[tuple[str, re.Pattern]]:
    """Yield every pattern that stands in a call such as `re.sub("…", …)`."""
    for place, node in calls():
        if node.func.attr in METHODS:
            assert isinstance(node.args[0], ast.Constant), f"{place}: name the pattern"
            yield place, re.compile(node.args[0].value, re.MULTILINE)


@cache
def patterns() -> dict[str, re.Pattern]:
    """Return every pattern of the project by its place; this imports every module of it."""
    return {**dict(compiled()), **dict(inline())}


def seconds(name: str, text: str) -> float:
    pattern = patterns()[name]
    given = text.encode() if isinstance(pattern.pattern, bytes) else text
    started = time.process_time()
    if name in SCANNERS:
        # As the lexer does, but stepping in C: what is timed is the pattern.
        deque(iter(pattern.scanner(given).match, None), maxlen=0)
    else:
        for _ in pattern.finditer(given):
            pass
        pattern.fullmatch(given)
    return time.process_time() - started


RECIPES = [
    *(("", atom, "") for atom in ATOMS),
    *((head, atom, tail) for head in HEADS for atom in (" ", "a", "=", "\n", "a ") for tail in TAILS),
]


def own_letters(parsed: Iterable) -> Iterator[str]:
    """Yield the characters that a pattern names: what it stumbles over is made of them."""
    for op, value in parsed:
        if op in (_parser.LITERAL, _parser.NOT_LITERAL):
            yield chr(value)
        elif op is _parser.RANGE:
            yield chr(value[0])
        elif op is _parser.IN:
            yield from own_letters(value)
        elif op in (_parser.MAX_REPEAT, _parser.MIN_REPEAT, _parser.POSSESSIVE_REPEAT):
            yield from own_letters(value[2])
        elif op is _parser.SUBPATTERN:
            yield from own_letters(value[3])
        elif op is _parser.BRANCH:
            yield from (letter for branch in value[1] for letter in own_letters(branch))
        elif op in (_parser.ASSERT, _parser.ASSERT_NOT):
            yield from own_letters(value[1])
        elif op is _parser.ATOMIC_GROUP:
            yield from own_letters(value)


def own_recipes(name: str) -> list[tuple[str, str, str]]:
    """Return random texts out of the pattern's own letters, the same in every run."""
    pattern = patterns()[name]
    letters = sorted({*own_letters(_parser.parse(pattern.pattern, pattern.flags)), *" a1\n"})
    # A letter that cannot be encoded is a way to write a class of them, not a text.
    letters = [letter for letter in letters if not "\ud800" <= letter <= "\udfff"]
    draw = random.Random(name)

    def some(most: int, least: int = 0) -> str:
        return "".join(draw.choices(letters, k=draw.randint(least, most)))

    return [(some(3), some(3, 1), some(2)) for _ in range(60)]


def hostile(recipe: tuple[str, str, str], size: int) -> str:
    head, atom, tail = recipe
    return head + atom * (size // len(atom)) + tail


@pytest.mark.hardening  # measures time, which a busy machine spoils
def test_time_grows_with_the_text_and_no_faster():
    assert [slow for name in sorted(patterns()) if (slow := find_slow_text(name))] == []


def find_slow_text(name: str) -> str | None:
    """Time a pattern on many small hostile texts, then on a megabyte of the one that took longest."""
    worst = RECIPES[0]
    for size in SIZES:
        share = max(FLOOR_S, 2 * BUDGET_S * size / 1_000_000)
        took = []
        for recipe in [*RECIPES, *own_recipes(name)]:
            text = hostile(recipe, size)
            spent = seconds(name, text)
            # Four looks, for the machine may be busy: what is quadratic fails all of them.
            if spent > share:
                spent = min(spent, *(seconds(name, text) for _ in range(3)))
            if spent > share:
                return f"{name}: {spent:.3f} s for {size} characters like {text[:20]!r}"
            took.append((spent, recipe))
        worst = max(took)[1]
    large = hostile(worst, 1_000_000)
    linear = any(seconds(name, large) <= BUDGET_S for _ in range(4))
    return None if linear else f"{name}: over {BUDGET_S} s for a megabyte like {large[:20]!r}"


def test_every_pattern_is_timed():
    """No pattern hides in a function, a table or another spelling of `re`, where nobody collects it."""
    timed = {pattern.pattern for pattern in patterns().values()}
    held = {name.rpartition(".")[0].rpartition(".")[2] for name in patterns()}
    for place, node in calls():
        # The patterns of ignore files are translated at run time; tests/ingest times those.
        if node.func.attr == "compile" and not place.startswith("walking.py"):
            first = node.args[0]
            known = first.value in timed if isinstance(first, ast.Constant) else place.split(".py")[0] in held
            assert known, f"{place}: give the pattern a name at the top of its module"
    for file, node in nodes():
        if isinstance(node, ast.ImportFrom):
            assert node.module not in ("re", "regex"), f"{file.name}: write `re.` before its functions"
        if isinstance(node, ast.Import):
            spelt = {(name.name, name.asname) for name in node.names}
            assert not any(name in ("regex", "fnmatch") for name, _ in spelt), file.name
            assert not any(name == "re" and other for name, other in spelt), file.name
