"""A tokenizer.json that makes the library panic ends in an error of ours."""

from __future__ import annotations

import json

import pytest

from resift.errors import ModelLoadError, ModelNotAllowedError
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


@pytest.mark.parametrize("length", [-5, 0, 4])
def test_a_length_without_room_for_a_text_is_refused(tmp_path, length):
    folder = network_folder(tmp_path / "model")
    with pytest.raises(ModelNotAllowedError, match="at least 16"):
        allow_local(folder, max_length=length)
