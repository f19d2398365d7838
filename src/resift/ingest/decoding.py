"""Bytes to text: byte order marks, declarations, UTF-8, then a flagged guess; binary data is refused."""

from __future__ import annotations

import codecs
import io
import re
from typing import BinaryIO, NamedTuple

from resift.errors import DataFormatError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MOST_CONTROLS = 0.02  # text has tabs and newlines, hardly any other control character
SAMPLE_BYTES = 65_536
# <meta charset="x">, <meta … content="…; charset=x">, <?xml … encoding="x"?>, # -*- coding: x -*-
_DECLARED = re.compile(rb"""(?:charset|encoding|coding)\s{0,9}[=:]\s{0,9}["']?([A-Za-z0-9_.:-]{2,40})""")
_DECLARATIONS_END = 2_048
# What people's files are in; asked without this list, short texts come out as the codes of old mainframes.
_LIKELY = [
    "cp1252", "cp1250", "cp1251", "koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949", "cp1253", "cp1254",
    "cp1255", "cp1256", "cp1257", "cp874", "iso8859_2", "cp866", "mac_roman",
]  # fmt: skip
_ENOUGH = 12  # bytes that are not ASCII; with fewer the guess is no better than the default


class Decoded(NamedTuple):
    """A text and, where its encoding had to be guessed, a flag that says so."""

    text: str
    flag: str = ""


class Encoding(NamedTuple):
    """How to decode a file and, where that was guessed, a flag that says so."""

    name: str
    flag: str = ""


def decode(data: bytes, *, file: str, declares: bool = False) -> Decoded:
    """Return the text of a file's bytes; `declares` looks for a declaration inside (HTML, XML).

    Raises DataFormatError for binary data and for a byte order mark that does not keep its promise.
    """
    encoding = encoding_of(data, file=file, declares=declares, complete=True)
    try:
        return Decoded(data.decode(encoding.name), encoding.flag)
    except UnicodeDecodeError as exc:
        if any(data.startswith(mark) for mark, _ in _BOMS):
            raise DataFormatError(
                f"Starts like {encoding.name} but is not. Save it as UTF-8.", file=file
            ) from exc
    text = data.decode(encoding.name, "replace")
    return Decoded(text, f"not all {encoding.name}: {text.count(chr(0xFFFD))} characters could not be read")


def encoding_of(data: bytes, *, file: str, declares: bool = False, complete: bool = False) -> Encoding:
    """Return the encoding of data, which may go on; raise DataFormatError if it is no text."""
    sample = data[:SAMPLE_BYTES]
    marked = next((name for mark, name in _BOMS if data.startswith(mark)), "")
    if marked:
        return Encoding(marked)
    if is_binary(sample):
        raise DataFormatError("Binary data, not text. Leave it out, or convert it to text.", file=file)
    declared = _declared(sample) if declares else ""
    if declared and _decodes(data, declared, complete=complete):
        return Encoding(declared)
    if _decodes(data, "utf-8", complete=complete):
        return Encoding("utf-8")
    name = _guessed(sample)
    return Encoding(name, f"not UTF-8, read as {_SHOWN.get(name, name)}")


def is_binary(sample: bytes) -> bool:
    """Say whether data is something else than text."""
    if b"\0" in sample:
        return True
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return controls > _MOST_CONTROLS * max(len(sample), 100)


def open_text(file: BinaryIO, encoding: str, *, newline: str | None = "") -> io.TextIOWrapper:
    """Return the file as text that is decoded while it is read; close it with `detach`."""
    file.seek(0)
    return io.TextIOWrapper(file, encoding=encoding, errors="replace", newline=newline)


_CONTROLS = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\x1b")
_SHOWN = {"cp1252": "Windows-1252", "latin-1": "Latin-1"}


def _declared(sample: bytes) -> str:
    found = _DECLARED.search(sample[:_DECLARATIONS_END])
    if found is None:
        return ""
    try:
        name = codecs.lookup(found[1].decode("ascii")).name
    except LookupError:
        return ""
    # "utf-16" in a page that is readable as ASCII is a mistake of the page.
    return "" if name.startswith(("utf-16", "utf-32")) else name


def _decodes(data: bytes, name: str, *, complete: bool) -> bool:
    try:
        codecs.getincrementaldecoder(name)("strict").decode(data, final=complete)
    except (UnicodeDecodeError, LookupError):
        return False
    return True


def _guessed(sample: bytes) -> str:
    foreign = len(sample) - len(sample.translate(None, bytes(range(128, 256))))
    if foreign >= _ENOUGH:
        try:
            from charset_normalizer import from_bytes
        except ModuleNotFoundError:
            pass
        else:
            best = from_bytes(sample, cp_isolation=_LIKELY).best()
            if best is not None and best.encoding != "ascii":
                return str(best.encoding)
    # Windows-1252 leaves five bytes undefined; latin-1 has an answer for every byte.
    return "cp1252" if _decodes(sample, "cp1252", complete=False) else "latin-1"
