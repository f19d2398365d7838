"""Module paths of 0.2 load the same modules, with a warning."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from resift._internal.renamed_modules import RENAMED
from resift.types import StageRecord


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_path_is_the_same_module(old: str, new: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=r"removed in Resift 0\.4"):
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


def test_a_removed_path_names_the_replacement():
    with pytest.raises(ImportError, match="dense_weight"):
        importlib.import_module("resift.trust")


@pytest.mark.parametrize(
    ("old", "new"), [("name_of", "display_name"), ("own_name", "declared_name"), ("OfModel", "HasModelName")]
)
def test_old_names_of_protocols_work_with_a_warning(old: str, new: str):
    protocols = importlib.import_module("resift.protocols")
    with pytest.warns(DeprecationWarning, match=new):
        assert getattr(protocols, old) is getattr(protocols, new)
    with pytest.raises(AttributeError, match="no_such_name"):
        protocols.no_such_name  # noqa: B018


def test_old_names_of_stage_records_work_with_a_warning():
    record = StageRecord(kind="retrieve", name="words", ids=("a", "b"), kept=1, retrieval_mode="lexical")
    with pytest.warns(DeprecationWarning, match="dropped"):
        assert record.left_out == ("b",)
    with pytest.warns(DeprecationWarning, match="positions"):
        assert record.places() == {"a": 0, "b": 1}
    with pytest.warns(DeprecationWarning, match="retrieval_mode"):
        assert record.searched == "doc"
