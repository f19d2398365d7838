"""Module paths of 0.2 load the same modules, with a warning."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from resift._internal.renamed_modules import RENAMED


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_path_is_the_same_module(old: str, new: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=r"goes with Resift 0\.4"):
        module = importlib.import_module(old)
    assert module is importlib.import_module(new)
    assert module.__name__ == module.__spec__.name == new


def test_a_submodule_of_an_old_path_is_not_loaded_twice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "resift.retrieval.stages", raising=False)
    with pytest.warns(DeprecationWarning, match="stages"):
        module = importlib.import_module("resift.retrieval.stages")
    assert module is importlib.import_module("resift.pipeline.stages")


def test_an_unknown_path_is_still_an_import_error():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        importlib.import_module("resift.no_such_module")


@pytest.mark.parametrize("old", RENAMED)
def test_importing_an_old_path_replaces_no_function(old: str):
    """The import system sets each submodule as an attribute of its parent, here of the renamed one."""
    parent, _, child = old.rpartition(".")
    module = importlib.import_module(RENAMED.get(parent, parent))
    assert isinstance(getattr(module, child, module), ModuleType)
