"""No regular expression of the project takes long on a megabyte of hostile text."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

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
SCANNERS = {"resift.stores.cypher_guard.lexer._TOKEN"}
METHODS = {"sub", "match", "fullmatch", "search", "findall", "finditer", "split"}


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


def inline() -> Iterator[tuple[str, re.Pattern]]:
    """Yield every pattern that stands in a call such as `re.sub("…", …)`."""
    for file in sorted(Path(resift.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            owner, first = node.func.value, node.args[0]
            if isinstance(owner, ast.Name) and owner.id == "re" and node.func.attr in METHODS:
                assert isinstance(first, ast.Constant), f"{file.name}:{node.lineno}: name the pattern"
                yield f"{file.name}:{node.lineno}", re.compile(first.value, re.MULTILINE)


ALL = {**dict(compiled()), **dict(inline())}


def seconds(name: str, text: str) -> float:
    pattern = ALL[name]
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


def hostile(recipe: tuple[str, str, str], size: int) -> str:
    head, atom, tail = recipe
    return head + atom * (size // len(atom)) + tail


@pytest.mark.parametrize("name", sorted(ALL))
def test_time_grows_with_the_text_and_no_faster(name):
    """Each pattern on many small hostile texts, then on a megabyte of what took longest."""
    worst = RECIPES[0]
    for size in SIZES:
        share = max(FLOOR_S, 2 * BUDGET_S * size / 1_000_000)
        took = []
        for recipe in RECIPES:
            text = hostile(recipe, size)
            spent = seconds(name, text)
            # Four looks, for the machine may be busy: what is quadratic fails all of them.
            if spent > share:
                spent = min(spent, *(seconds(name, text) for _ in range(3)))
            assert spent <= share, f"{name}: {spent:.3f} s for {size} characters like {text[:20]!r}"
            took.append((spent, recipe))
        worst = max(took)[1]
    large = hostile(worst, 1_000_000)
    assert any(seconds(name, large) <= BUDGET_S for _ in range(4)), f"{name}: {large[:20]!r}"
