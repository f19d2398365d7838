"""The allowlist: data that is whole, and names that are refused before anything is read."""

from __future__ import annotations

import builtins
import importlib.resources
import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import ModelNotAllowedError
from resift.models.locate import resolve
from resift.models.registry import KINDS, builtin_ids, builtin_spec, check_model_id, find_spec

CARRIED = ("BAAI/bge-small-en-v1.5", "answerdotai/answerai-colbert-small-v1", "cross-encoder/ms-marco-MiniLM-L-12-v2")


def test_every_entry_is_whole():
    """Each model has an immutable revision, digests, sizes, a license, and a place to come from."""
    for name in builtin_ids():
        spec = builtin_spec(name)
        assert spec.kind in KINDS
        assert spec.license in {"Apache-2.0", "MIT"}
        assert spec.package or spec.hub
        assert spec.hub is None or re.fullmatch(r"[0-9a-f]{40}", spec.hub.revision)
        assert spec.pin(spec.onnx).required
        assert spec.pin(spec.tokenizer).required
        assert (spec.kind == "nli") == (spec.entailment_index is not None)
        for pinned in spec.files:
            assert re.fullmatch(r"[0-9a-f]{64}", pinned.sha256)
            assert 0 < pinned.size < 1 << 31


def test_the_models_that_the_contract_names_are_there():
    """The three carried models and the five of the hub, each under its own name."""
    assert set(CARRIED) < set(builtin_ids())
    assert {"cross-encoder/ms-marco-MiniLM-L-6-v2", "cross-encoder/ms-marco-TinyBERT-L-2-v2"} < set(builtin_ids())
    assert {"BAAI/bge-reranker-base", "BAAI/bge-base-en-v1.5", "cross-encoder/nli-deberta-v3-xsmall"} < set(
        builtin_ids()
    )


def test_ids_and_aliases_are_unique():
    """No name leads to two models."""
    text = importlib.resources.files("resift.models").joinpath("allowlist.json").read_text()
    names = [name for entry in json.loads(text)["models"] for name in (entry["id"], *entry.get("aliases", []))]
    assert len(names) == len(set(names))


def test_an_alias_leads_to_the_same_model():
    """The hub's newer spelling is the same model."""
    assert builtin_spec("cross-encoder/ms-marco-MiniLM-L12-v2") is builtin_spec("cross-encoder/ms-marco-MiniLM-L-12-v2")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        ("/etc/passwd", "path"),
        ("~/model", "path"),
        ("./model", "path"),
        ("a/b/c", "path"),
        ("../model", r"\.\."),
        ("cross-encoder/..", r"\.\."),
        ("cross-encoder/ms-marco-MiniLM-L-12-v2/../x", r"\.\."),
        ("https://example.com/x", "URL"),
        ("file:x", "URL"),
        ("a\\b", "backslash"),
        ("C:\\models", "backslash"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("a\u202eb", "control"),
        ("a b", "letters"),
        ("ａ/b", "letters"),
        ("a" * 5000, "letters"),
        ("-a/b", "letters"),
    ],
)
def test_names_that_are_no_names_are_refused_with_the_reason(name, reason, monkeypatch):
    """Paths, '..', URLs, NUL, backslashes and control characters are refused before any file is opened."""
    builtin_ids()  # the data file itself is read once

    def no_io(*_args, **_options):
        raise AssertionError("something was opened")

    for owner, attribute in ((os, "open"), (os, "stat"), (os, "lstat"), (os, "scandir"), (builtins, "open")):
        monkeypatch.setattr(owner, attribute, no_io)
    with pytest.raises(ModelNotAllowedError, match=reason):
        resolve(name)
    monkeypatch.undo()


@pytest.mark.parametrize("name", [None, 3, b"a/b", ["a"]])
def test_things_that_are_no_strings_are_refused(name):
    """A model id is a string."""
    with pytest.raises(ModelNotAllowedError, match="string"):
        check_model_id(name)


def test_an_unknown_name_is_a_value_error_with_a_hint():
    """A near miss is answered with the right name; the error is the ValueError that the contract wants."""
    with pytest.raises(ValueError, match="Did you mean 'cross-encoder/ms-marco-MiniLM-L-12-v2'"):
        find_spec("cross-encoder/ms-marco-MiniLM-L12")


def test_an_unknown_file_of_a_known_model_is_refused():
    """Only pinned files can be read."""
    with pytest.raises(ModelNotAllowedError):
        builtin_spec(CARRIED[0]).pin("../model.onnx")


@given(st.text(max_size=40))
def test_any_text_is_a_name_or_a_refusal(text):
    """No text makes the check fail in another way, and what passes has no way out of a folder."""
    try:
        name = check_model_id(text)
    except ModelNotAllowedError:
        return
    assert name == text
    assert ".." not in name
    assert "\\" not in name
    assert not name.startswith("/")
