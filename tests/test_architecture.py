"""The rooms, the arrows between them, what the package exports and what its import costs."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import resift

SOURCE = Path(resift.__file__).parent
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

# A room may import rooms of lower levels and its own. Files beside __init__ are named by their stem.
LEVELS = [
    {"errors"},
    {"_internal", "validation"},
    {"text"},
    {"deadline", "events", "native", "types"},
    {"external"},
    {"protocols", "plugins"},
    {"ranking", "resilience", "telemetry"},
    {"models"},
    {"rerankers", "stores"},
    {"reranking", "ingest", "pipeline"},
    {"config", "explain"},
    {"agent", "evaluation"},
    {"index"},
    {"testing", "demo"},
    {"server"},
    {"integrations", "batch"},
    {"cli"},
]
# The arrows that point up, and why. Each is an import that everybody can see, made when it is used.
EXCEPTIONS = {
    ("resift.types.ranking", "explain"): "Ranking.why and Ranking.explain tell of the value when asked",
    ("resift.types.ranking", "ranking"): "Ranking.context makes a prompt of the value when asked",
    ("resift.pipeline.pipeline", "config"): "Pipeline.from_yaml is a door to the builder of pipelines",
}
ROOM = re.compile(r"resift\.\w+(\.\w+)*\.?")


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@functools.cache
def arrows(source: str, module: str) -> set[str]:
    """Return the rooms that a module's imports point to, also those inside functions and those by name."""
    nodes = list(ast.walk(ast.parse(source)))
    found = set(named_imports(nodes))
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("resift.")}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "resift":
            found |= {node.module} if "." in node.module else {f"resift.{alias.name}" for alias in node.names}
    return {room_of(name) for name in found} - {room_of(module), ""}


def named_imports(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the modules of Resift that are named in strings where modules are imported by name.

    What calls `import_module` may take any name from a table, so every string in it that looks like a module
    of ours counts. Relative names, and all that `lazy_exports` takes, stay in their own package.
    """
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls}
    if names & {"import_module", "__import__"}:
        for node in nodes:
            # The fixed beginning of f"resift.cli.{name}" is a constant of its own.
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and ROOM.fullmatch(node.value):
                yield node.value.rstrip(".")


def level(room: str) -> int:
    for number, rooms in enumerate(LEVELS):
        if room in rooms:
            return number
    raise AssertionError(f"the room {room!r} has no level: add it to LEVELS and to ARCHITECTURE.md")


def wrong_arrows(sources: dict[str, str]) -> list[str]:
    wrong = []
    for module, source in sources.items():
        room = room_of(module)
        wrong += [
            f"{module} imports {target}"
            for target in sorted(arrows(source, module))
            if not target.startswith("_") and level(target) >= level(room) and (module, target) not in EXCEPTIONS
        ]
    return wrong


@functools.cache
def sources() -> dict[str, str]:
    return {
        ".".join(["resift", *path.relative_to(SOURCE).with_suffix("").parts]): path.read_text(encoding="utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
        # Its strings are old module paths, and no imports.
        if path not in (SOURCE / "__init__.py", SOURCE / "_internal/renamed_modules.py")
    }


def test_arrows_point_one_way():
    """Lower rooms never import higher ones, by whichever way."""
    assert wrong_arrows(sources()) == []


def test_a_turned_arrow_is_found():
    """The test above fails when an arrow is turned round, at the top of a file or inside a function."""
    turned = {
        "resift.types": "from resift.ranking.fusion import rrf",
        "resift.ranking.fusion.rank_based": "def f():\n    import resift.stores.sqlite",
        "resift.models.session": "from resift.rerankers.rescore import rescore",
        "resift.pipeline.node": "from resift import cli",
        "resift.pipeline.stages": "import importlib\nimportlib.import_module('resift.config.build')",
        "resift.stores.sqlite": "from importlib import import_module\nimport_module(f'resift.cli.{name}')",
        "resift.ranking.gate": "TABLE = {'x': 'resift.index'}\nimport_module(TABLE[name])",
    }
    assert wrong_arrows(turned) == [
        "resift.types imports ranking",
        "resift.ranking.fusion.rank_based imports stores",
        "resift.models.session imports rerankers",
        "resift.pipeline.node imports cli",
        "resift.pipeline.stages imports config",
        "resift.stores.sqlite imports cli",
        "resift.ranking.gate imports index",
    ]
    assert wrong_arrows({"resift.stores.sqlite": "from resift.ranking.fusion import rrf"}) == []


def test_every_room_with_a_level_exists():
    """A room that is gone leaves the picture too, and no room stands in two levels."""
    rooms = [room for level in LEVELS for room in level]
    there = {path.stem for path in SOURCE.iterdir()}
    assert sorted(rooms) == sorted(set(rooms) & there)


def test_exceptions_are_needed():
    """An arrow that points up no more leaves the list."""
    used = {(module, target) for module, source in sources().items() for target in arrows(source, module)}
    assert set(EXCEPTIONS) <= used


def test_exports_are_few_and_documented():
    """What people reach for first and no more, each with a docstring."""
    assert len(resift.__all__) <= 21
    for name in resift.__all__:
        assert getattr(resift, name).__doc__, f"{name} has no docstring"
    assert set(resift.__all__) <= set(dir(resift))
    with pytest.raises(AttributeError, match="no attribute 'rerenk'"):
        _ = resift.rerenk


def python(program: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-I", "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    return answer.stdout


def test_import_loads_no_third_party_package():
    """`import resift` and the fusion of lists need the standard library only."""
    program = """
        import sys
        before = set(sys.modules)
        import resift
        import resift.ranking.fusion, resift.testing
        resift.fuse([["a"]])
        roots = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(sorted(root for root in roots if root not in sys.stdlib_module_names and root != "resift"))
    """
    assert python(program).strip() == "[]"


def test_import_is_quick():
    """`import resift` takes under 50 ms of processor time, in the best of five new processes."""
    program = """
        import time
        start = time.process_time()
        import resift
        print(time.process_time() - start)
    """
    assert min(float(python(program)) for _ in range(5)) < 0.05


def test_every_public_name_is_documented():
    """Every public module, class and function has a docstring."""
    missing = []
    for module, source in sources().items():
        tree = ast.parse(source)
        if not ast.get_docstring(tree):
            missing.append(module)
        for node in tree.body:
            public = isinstance(node, DEFINITIONS) and not node.name.startswith("_")
            if public and not ast.get_docstring(node):
                missing.append(f"{module}.{node.name}")
    assert missing == []


def test_the_walk_of_a_query_names_files_and_functions_that_exist():
    """ARCHITECTURE.md follows one search in at most 12 steps; a file name alone is in the last folder."""
    text = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text()
    steps = re.findall(r"^\d+\. .*$", text, flags=re.M)
    assert 8 <= len(steps) <= 12
    folder, checked = "", 0
    for file, name in re.findall(r"`([\w/]+\.py)`(?: `(\w+(?:\.\w+)?)`)?", "\n".join(steps)):
        found = next((path for path in (SOURCE / file, SOURCE / folder / file) if path.exists()), None)
        assert found is not None, f"{file} is not there"
        folder = str(found.parent.relative_to(SOURCE))
        if name:
            names = {node.name for node in ast.walk(ast.parse(found.read_text())) if hasattr(node, "name")}
            aliases = set(re.findall(r"^\s+(\w+) = ", found.read_text(), flags=re.M))
            assert set(name.split(".")) <= names | aliases, f"{file} has no {name}"
            checked += 1
    assert checked >= 15


def test_no_test_imports_from_benchmarks():
    """Shared code lives in tests/ or tools/, so benchmarks can change without breaking the suite."""
    pattern = re.compile(r"^\s*(from|import) benchmarks\b", re.MULTILINE)
    files = Path(__file__).parent.rglob("*.py")
    assert [file.name for file in files if pattern.search(file.read_text(encoding="utf-8"))] == []
