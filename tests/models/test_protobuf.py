"""Fields of a message are the same however their numbers are written, and what is cut off is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import ModelFileError
from resift.models.onnx_reader import BYTES, FIXED32, FIXED64, VARINT, ProtobufReader


def varint(value: int, *, bytes_more: int = 0) -> bytes:
    """Write a number, in more bytes than it needs if asked: readers must take both."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    if bytes_more:
        written[-1] |= 0x80
        written += b"\x80" * (bytes_more - 1) + b"\x00"
    return bytes(written)


def message(fields: list[tuple[int, int, bytes]], *, bytes_more: int = 0) -> bytes:
    written = b""
    for number, wire, content in fields:
        written += varint(number << 3 | wire, bytes_more=bytes_more)
        if wire == BYTES:
            written += varint(len(content), bytes_more=bytes_more)
        written += varint(len(content), bytes_more=bytes_more) if wire == VARINT else content
    return written


def read(data: bytes) -> list[tuple[int, int, bytes | int]]:
    reader = ProtobufReader("a file", data)
    return [
        (number, wire, at if wire == VARINT else data[at:end]) for number, wire, at, end in reader.fields(0, len(data))
    ]


FIELDS = st.lists(
    st.tuples(st.integers(1, 5000), st.just(BYTES) | st.just(VARINT), st.binary(max_size=300))
    | st.tuples(st.integers(1, 5000), st.just(FIXED32), st.binary(min_size=4, max_size=4))
    | st.tuples(st.integers(1, 5000), st.just(FIXED64), st.binary(min_size=8, max_size=8)),
    max_size=6,
)


@given(FIELDS, st.integers(0, 3))
def test_numbers_of_any_length_are_read_alike(fields, bytes_more):
    expected = [(n, wire, len(content) if wire == VARINT else content) for n, wire, content in fields]
    assert read(message(fields, bytes_more=bytes_more)) == expected


@given(FIELDS.filter(bool), st.integers(0, 3))
def test_a_message_without_its_last_byte_is_refused(fields, bytes_more):
    whole = message(fields, bytes_more=bytes_more)
    with pytest.raises(ModelFileError):
        read(whole[:-1])


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05abc", b"\x80", b"\x08", b"\x08\x80", b"\x00", b"\x0d\x00"])
def test_what_does_not_add_up_is_refused(data):
    with pytest.raises(ModelFileError):
        read(data)
