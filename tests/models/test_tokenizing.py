"""Text of any size and script becomes token ids, the same as the model's own tokenizer gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from resift.errors import ModelLoadError
from resift.models.locate import resolve
from resift.models.tokenizer import TextTokenizer, replace_surrogates, split_pieces

pytestmark = pytest.mark.real_model


@pytest.fixture(scope="module")
def data():
    return resolve("cross-encoder/ms-marco-MiniLM-L-12-v2").tokenizer_bytes()


@pytest.fixture(scope="module")
def tokenizer(data):
    return TextTokenizer(data)


def test_pairs_are_laid_out_as_the_model_was_trained(data, tokenizer):
    own = Tokenizer.from_str(data.decode())
    own.no_padding()
    expected = own.encode("what is rain?", "Water from clouds.")
    ids, types = tokenizer.template.pair(tokenizer.ids("what is rain?"), tokenizer.ids("Water from clouds."))
    assert ids == expected.ids
    assert types == expected.type_ids


def test_a_text_that_spells_out_a_special_token_does_not_get_one(tokenizer):
    separator = tokenizer.template.after[0]
    assert separator not in tokenizer.ids("one [SEP] two [CLS] [PAD] [MASK]")


@pytest.mark.parametrize("text", ["\ud800 broken", "👩‍🚀🏳️‍🌈", "שלום עולם", "\x00\x07\u202e", "", " \n\t "])
def test_every_text_has_ids(tokenizer, text):
    assert isinstance(tokenizer.ids(text), list)


@given(st.text(st.characters(categories=None), max_size=200))
def test_no_text_breaks_the_tokenizer(tokenizer, text):
    assert tokenizer.ids(text) is not None
    replace_surrogates(text).encode("utf-8")


def test_pieces_of_a_long_text_are_the_text():
    for text in ("word " * 30_000, "x" * 100_000, "a\nb"):
        assert "".join(split_pieces(text)) == text


def test_a_long_text_has_the_same_ids_in_pieces(data, tokenizer):
    text = "The quick brown fox jumps over 13 lazy dogs. " * 2_000
    own = Tokenizer.from_str(data.decode())
    own.no_padding()
    own.no_truncation()
    assert tokenizer.ids(text) == own.encode(text, add_special_tokens=False).ids


def test_giving_up_ends_a_long_text_early(tokenizer):
    assert tokenizer.ids("word " * 30_000, give_up=lambda: True) is None


def test_a_damaged_tokenizer_says_so():
    with pytest.raises(ModelLoadError, match="tokenizer"):
        TextTokenizer(b"{}")
