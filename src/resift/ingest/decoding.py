"""Bytes to text: BOMs, UTF-8, a flagged last resort; binary data is refused."""

from __future__ import annotations

import codecs
from typing import NamedTuple

from resift.errors import DataFormatError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MOST_CONTROLS = 0.02  # text has tabs and newlines, hardly any other control character
_SAMPLE = 65_536


class Decoded(NamedTuple):
    """A text and, where its encoding had to be guessed, a flag that says so."""

    text: str
    flag: str = ""


def is_wide(start: bytes) -> bool:
    """Say whether a file that begins like this has more than one byte per line end (UTF-16, UTF-32)."""
    return any(start.startswith(mark) for mark, name in _BOMS if name != "utf-8-sig")


def decode(data: bytes, *, file: str) -> Decoded:
    """Return the text of a file's bytes.

    Raises DataFormatError for binary data and for a byte order mark that does not keep its promise.
    """
    encoding = next((name for mark, name in _BOMS if data.startswith(mark)), "")
    if encoding:
        try:
            return Decoded(data.decode(encoding))
        except UnicodeDecodeError as exc:
            raise DataFormatError(f"Starts like {encoding} but is not. Save it as UTF-8.", file=file) from exc
    if _is_binary(data):
        raise DataFormatError("Binary data, not text. Leave it out, or convert it to text.", file=file)
    try:
        return Decoded(data.decode("utf-8"))
    except UnicodeDecodeError:
        # Windows-1252 leaves five bytes undefined; latin-1 has an answer for every byte.
        try:
            return Decoded(data.decode("cp1252"), "not UTF-8, read as Windows-1252")
        except UnicodeDecodeError:
            return Decoded(data.decode("latin-1"), "not UTF-8, read as Latin-1")


def _is_binary(data: bytes) -> bool:
    sample = data[:_SAMPLE]
    if b"\0" in sample:
        return True
    controls = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in sample)
    return controls > _MOST_CONTROLS * max(len(sample), 100)
