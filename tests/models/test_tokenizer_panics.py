"""A tokenizer.json that makes the library panic ends in an error of ours."""

from __future__ import annotations

import json

import pytest

from resift.errors import ModelFileError, ModelLoadError, ModelNotAllowedError
from resift.models import allow_local
from resift.models.tokenizer import TextTokenizer
from tests.models.model_folders import WORDS, network_folder, write_tokenizer


class PanicException(BaseException):
    """Named like the exception of a panic in Rust, which no `except Exception` catches."""


class Panicking:
    def encode(self, *texts, **options):
        raise PanicException("index out of bounds")


def test_a_panic_of_the_tokenizer_is_an_error(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json", WORDS)
    tokenizer = TextTokenizer((tmp_path / "tokenizer.json").read_bytes())
    tokenizer._tokenizer = Panicking()
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json is damaged"):
        tokenizer.ids("a text")


def test_merges_of_unknown_tokens_are_refused(tmp_path):
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b", "x y"], "unk_token": "?"}
    data = json.dumps({"version": "1.0", "model": model, "added_tokens": []}).encode()
    with pytest.raises(ModelLoadError):
        TextTokenizer(data).ids("a b c")


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


PIECE = {"Sequence": {"id": "A", "type_id": 0}}
TEMPLATE = {"type": "TemplateProcessing", "single": [PIECE, PIECE], "pair": [PIECE, PIECE], "special_tokens": {}}
GROWING = {
    "replace": ("normalizer", [replace({"String": "a"}, "a" * 70)] * 6),
    "replace between characters": ("normalizer", [replace({"Regex": ""}, "a")] * 40),
    "untagged replace": ("normalizer", [{"pattern": {"String": "a"}, "content": "a" * 30}] * 7),
    "byte level": ("pre_tokenizer", [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}] * 40),
    "templates": ("post_processor", [TEMPLATE] * 40),
    "one long template": ("post_processor", [{**TEMPLATE, "single": [PIECE] * 50_000}]),
}


@pytest.mark.parametrize("kind", GROWING)
def test_steps_that_fill_the_memory_are_refused_before_the_library_sees_them(kind, tmp_path):
    # Without the check, the library allocates until the system ends the process.
    write_tokenizer(tmp_path / "tokenizer.json", WORDS)
    data = json.loads((tmp_path / "tokenizer.json").read_bytes())
    name, steps = GROWING[kind]
    member = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}[name]
    data[name] = {"type": "Sequence", member: steps}
    with pytest.raises(ModelFileError, match="memory"):
        TextTokenizer(json.dumps(data).encode())


def test_the_steps_of_common_tokenizers_are_accepted(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json", WORDS)
    data = json.loads((tmp_path / "tokenizer.json").read_bytes())
    steps = [{"type": "NFKC"}, replace({"Regex": " {2,}"}, " "), replace({"String": "``"}, '"'), {"type": "Lowercase"}]
    data["normalizer"] = {"type": "Sequence", "normalizers": steps}
    assert TextTokenizer(json.dumps(data).encode()).ids("some words") is not None


@pytest.mark.parametrize("length", [-5, 0, 4])
def test_a_length_without_room_for_a_text_is_refused(tmp_path, length):
    folder = network_folder(tmp_path / "model")
    with pytest.raises(ModelNotAllowedError, match="at least 16"):
        allow_local(folder, max_length=length)
