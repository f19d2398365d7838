"""Packages export the same public names to Python, type checkers and editors."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import resift

SOURCE = Path(resift.__file__).parent
PACKAGES = [
    ".".join(["resift", *file.parent.relative_to(SOURCE).parts]) for file in sorted(SOURCE.rglob("__init__.py"))
]
EXPORTING = [package for package in PACKAGES if hasattr(importlib.import_module(package), "__all__")]


def folder_of(package: str) -> Path:
    return SOURCE.joinpath(*package.split(".")[1:])


LAZY = [
    package
    for package in EXPORTING
    if "lazy_exports(" in (folder_of(package) / "__init__.py").read_text(encoding="utf-8")
]


@pytest.mark.parametrize("package", LAZY)
@pytest.mark.slow
def test_python_and_type_checkers_see_the_same_names(package):
    """Every import in the stub names an object, and Python offers the same names."""
    module = importlib.import_module(package)
    tree = ast.parse((folder_of(package) / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = {alias.asname: node.module for node in imports for alias in node.names}
    assert sorted(names) == module.__all__
    for name, home in names.items():
        assert getattr(module, name) is getattr(importlib.import_module(f"{package}.{home}"), name)
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("package", EXPORTING)
def test_no_name_is_shadowed_by_a_module(package):
    """Importing a module sets its name on the package: an export of that name would change with time."""
    folder = folder_of(package)
    modules = {file.stem for file in folder.glob("*.py")} | {each.name for each in folder.iterdir() if each.is_dir()}
    assert modules.isdisjoint(importlib.import_module(package).__all__)


@pytest.mark.parametrize("package", EXPORTING)
def test_a_wrong_name_is_an_attribute_error(package):
    """The message is Python's, and `hasattr` works."""
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nonsense'"):
        _ = importlib.import_module(package).nonsense


def test_the_most_used_names_are_in_the_top_package():
    from resift import CrossEncoderReranker, Embedder, KnowledgeGraphAgent, MemoryStore, SQLiteStore, Tiered
    from resift.models import Embedder as ModelsEmbedder
    from resift.rerankers import CrossEncoderReranker as PackageReranker
    from resift.stores import SQLiteStore as PackageStore

    assert (Embedder, CrossEncoderReranker, SQLiteStore) == (ModelsEmbedder, PackageReranker, PackageStore)
    assert all(isinstance(name, type) for name in (KnowledgeGraphAgent, MemoryStore, Tiered))


def test_importing_a_lazy_package_imports_none_of_its_modules():
    """A lazy package costs nothing until one of its names is used."""
    program = f"""
        import importlib, sys
        for package in {LAZY!r}:
            importlib.import_module(package)
        print([name for name in sys.modules if name.startswith("resift.") and name not in {PACKAGES!r}])
    """
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    allowed = {"resift._internal.lazy_exports", "resift._internal.renamed_modules"}
    assert set(ast.literal_eval(answer.stdout)) <= allowed


def test_the_first_fuse_does_not_load_slow_modules():
    """asyncio and importlib.metadata took half of the time of the first `fuse` of a process."""
    program = """
        import sys
        import resift
        resift.fuse([["a", "b"], ["b", "c"]])
        print([name for name in ("asyncio", "importlib.metadata", "numpy") if name in sys.modules])
    """
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_names_of_the_values_in_0_2_still_work_with_a_warning():
    """The pages of 0.2 used them."""
    from resift import types

    with pytest.warns(DeprecationWarning, match="make_record"):
        assert types.record_of is types.make_record
    record = types.make_record(types.StageKind.FUSE, "rrf", [types.Hit("a")])
    with pytest.warns(DeprecationWarning, match="append"):
        trace = types.Trace(()).then(record)
    with pytest.warns(DeprecationWarning, match="by_kind"):
        assert trace.of(types.StageKind.FUSE) == (record,)
