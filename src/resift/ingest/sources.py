"""Open a file, decode it within size limits, and read it into sections by its suffix or content."""

from __future__ import annotations

import codecs
import gzip
import io
import math
import os
import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import BinaryIO, NamedTuple

from resift._internal.files import O_BINARY, O_NOFOLLOW, O_NONBLOCK
from resift.errors import DataFormatError, InputError, MissingExtraError, require
from resift.ingest.chunking import Section
from resift.validation import check_fields

MB = 1 << 20
SAMPLE_BYTES = 65_536
_MAX_COMPRESSION = 500  # ratio, for one part of a document; zip bombs reach thousands
_MAX_TEXT_COMPRESSION = 100  # ratio, for a .gz file; log files reach 50

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# <meta charset="x">, <meta … content="…; charset=x">, <?xml … encoding="x"?>, # -*- coding: x -*-
_DECLARATION = re.compile(rb"""(?:charset|encoding|coding)\s{0,9}[=:]\s{0,9}["']?([A-Za-z0-9_.:-]{2,40})""")
_DECLARATION_BYTES = 2_048
_CONTROLS = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\x1b")
_MAX_CONTROL_SHARE = 0.02
# Encodings in common use. Without this list, short texts are mistaken for old mainframe code pages.
_LIKELY_ENCODINGS = [
    "cp1252", "cp1250", "cp1251", "koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949", "cp1253", "cp1254",
    "cp1255", "cp1256", "cp1257", "cp874", "iso8859_2", "cp866", "mac_roman",
]  # fmt: skip
_MIN_BYTES_TO_GUESS = 12  # non-ASCII bytes; with fewer, a guess is no better than the default
_ENCODING_NAMES = {"cp1252": "Windows-1252", "latin-1": "Latin-1"}


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits for one file. With the defaults, reading a file takes less than 300 MB of memory."""

    parsed_bytes: int = 16 * MB  # a larger text is read in pieces, without its structure
    line_bytes: int = 16 * MB  # of JSONL or CSV
    expanded_bytes: int = 512 * MB  # of a compressed file
    part_bytes: int = 64 * MB  # of one part of a compressed document
    pages: int = 5_000
    entries: int = 10_000
    seconds: float = 60.0  # plus one for each 10 MB of the file
    memory_bytes: int = 2_048 * MB  # address space of the worker process

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.__slots__:
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}; it must be a number above 0.")

    def seconds_for(self, size: int) -> float:
        """Return the time limit for a file of `size` bytes."""
        return self.seconds + size / 10_000_000


DEFAULT_LIMITS = FileLimits()
Limits = FileLimits  # its name in 0.2


class DecodedText(NamedTuple):
    """A text, and a note if its encoding was guessed."""

    text: str
    flag: str = ""


class Line(NamedTuple):
    """A line of a text file. A line over the limit has no `text`."""

    number: int
    text: str | None
    position: int


@dataclass(slots=True)
class Source:
    """An open file, with its type and its name for error messages; `text_keys` are the record fields to read."""

    file: BinaryIO
    name: str
    suffix: str
    size: int
    limits: FileLimits = DEFAULT_LIMITS
    text_keys: tuple[str, ...] | None = None

    @property
    def parseable(self) -> bool:
        """Whether the file is small enough to be parsed as a whole."""
        return self.size <= self.limits.parsed_bytes

    def require(self, module: str, *, extra: str = "files") -> ModuleType:
        """Import a parser. Raises DataFormatError with the install command if its package is missing."""
        try:
            return require(module, extra=extra)
        except MissingExtraError as exc:
            raise DataFormatError(str(exc), file=self.name) from exc

    def sample(self) -> bytes:
        """Return the first 64 KB."""
        self.file.seek(0)
        return self.file.read(SAMPLE_BYTES)

    def bytes(self) -> bytes:
        """Return the content. Raises DataFormatError if it exceeds the limit."""
        if not self.parseable:
            problem = f"{self.size >> 20} MB; the limit for files of this kind is {self.limits.parsed_bytes >> 20} MB."
            raise DataFormatError(problem, file=self.name)
        self.file.seek(0)
        return self.file.read(self.limits.parsed_bytes + 1)

    def text(self, *, declares: bool = False) -> DecodedText:
        """Return the content as text. With `declares`, an encoding declaration (HTML, XML) is used."""
        return decode(self.bytes(), file=self.name, declares=declares)

    def encoding(self) -> tuple[str, str]:
        """Return the name of the encoding, judging by the first 64 KB, and a note if it was guessed."""
        return detect_encoding(self.sample(), file=self.name, complete=self.size <= SAMPLE_BYTES)

    def lines(self, encoding: str, *, newline: str | None = "") -> Iterator[Line]:
        """Yield the lines with their line endings. A line over the limit is skipped without loading it."""
        limit = self.limits.line_bytes
        with open_text(self.file, encoding, newline=newline) as text:
            number = 0
            while line := text.readline(limit + 1):
                number += 1
                too_long = len(line) > limit
                while too_long and line and not line.endswith("\n"):
                    line = text.readline(limit)
                yield Line(number, None if too_long else line, min(self.size, self.file.tell()))


def open_source(
    path: Path,
    *,
    name: str,
    limits: FileLimits = DEFAULT_LIMITS,
    follow: bool = True,
    text_keys: tuple[str, ...] | None = None,
) -> Source:
    """Open a regular file; raise DataFormatError for a pipe, a device or a folder.

    `follow=False` rejects a symbolic link that replaced the file after it was listed.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | O_NONBLOCK | O_BINARY | (0 if follow else O_NOFOLLOW))
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise DataFormatError("Not a regular file. Write its content to a file first.", file=name)
    return Source(os.fdopen(descriptor, "rb"), name, path.suffix.lower(), status.st_size, limits, text_keys)


@contextmanager
def open_zip(source: Source) -> Iterator[zipfile.ZipFile]:
    """Open a document that is a zip file, and rewind it for its parser; reject zip bombs."""
    limits = source.limits
    source.file.seek(0)
    with parse_errors(source, f"{source.suffix or '.zip'} file"), zipfile.ZipFile(source.file) as archive:
        parts = archive.infolist()
        if len(parts) > limits.entries:
            raise DataFormatError(f"Contains {len(parts)} parts; the limit is {limits.entries}.", file=source.name)
        total = sum(part.file_size for part in parts)
        if total > limits.expanded_bytes or any(
            part.file_size > min(limits.part_bytes, _MAX_COMPRESSION * max(part.compress_size, 1024)) for part in parts
        ):
            problem = f"Unpacks to {total >> 20} MB, too much for a document of this size."
            raise DataFormatError(problem, file=source.name)
        source.file.seek(0)
        yield archive


@contextmanager
def parse_errors(source: Source, kind: str) -> Iterator[None]:
    """Convert any parser failure to DataFormatError, because bad data can cause any exception."""
    try:
        yield
    except (DataFormatError, MemoryError):
        raise
    except Exception as exc:
        raise DataFormatError(f"Not a readable {kind} ({type(exc).__name__}).", file=source.name) from exc


@contextmanager
def open_text(file: BinaryIO, encoding: str, *, newline: str | None = "") -> Iterator[io.TextIOWrapper]:
    """Lend the file as a text stream."""
    file.seek(0)
    text = io.TextIOWrapper(file, encoding=encoding, errors="replace", newline=newline)
    try:
        yield text
    finally:
        text.detach()


def decode(data: bytes, *, file: str, declares: bool = False) -> DecodedText:
    """Decode bytes by byte order mark, declaration or UTF-8; otherwise guess, and set a flag."""
    encoding, flag = detect_encoding(data, file=file, declares=declares, complete=True)
    try:
        return DecodedText(data.decode(encoding), flag)
    except UnicodeDecodeError as exc:
        if any(data.startswith(mark) for mark, _ in _BOMS):
            message = f"Starts with a {encoding} byte order mark but is not valid. Save it as UTF-8."
            raise DataFormatError(message, file=file) from exc
    text = data.decode(encoding, "replace")
    lost = text.count("\ufffd")
    return DecodedText(text, f"not entirely {encoding}: {lost} characters could not be read")


def detect_encoding(data: bytes, *, file: str, declares: bool = False, complete: bool = False) -> tuple[str, str]:
    """Return the encoding and a note if it was guessed; raise DataFormatError for binary data."""
    sample = data[:SAMPLE_BYTES]
    if bom_encoding := next((name for mark, name in _BOMS if data.startswith(mark)), ""):
        return bom_encoding, ""
    if is_binary(sample):
        raise DataFormatError("Binary data, not text. Exclude it, or convert it to text.", file=file)
    match = _DECLARATION.search(sample[:_DECLARATION_BYTES]) if declares else None
    with suppress(LookupError):  # unknown encoding name
        declared = codecs.lookup(match[1].decode("ascii")).name if match else ""
        # A declaration of "utf-16" that is readable as ASCII must be wrong.
        is_wide = declared.startswith(("utf-16", "utf-32"))
        if declared and not is_wide and _can_decode(data, declared, complete=complete):
            return declared, ""
    if _can_decode(data, "utf-8", complete=complete):
        return "utf-8", ""
    name = _guess_encoding(sample)
    return name, f"not UTF-8, read as {_ENCODING_NAMES.get(name, name)}"


def is_binary(sample: bytes) -> bool:
    """Return whether data contains a NUL byte or too many control characters for text."""
    if b"\0" in sample:
        return True
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return controls > _MAX_CONTROL_SHARE * max(len(sample), 100)


def _can_decode(data: bytes, name: str, *, complete: bool) -> bool:
    try:
        codecs.getincrementaldecoder(name)("strict").decode(data, final=complete)
    except (UnicodeDecodeError, LookupError):
        return False
    return True


def _guess_encoding(sample: bytes) -> str:
    non_ascii = len(sample) - len(sample.translate(None, bytes(range(128, 256))))
    if non_ascii >= _MIN_BYTES_TO_GUESS:
        with suppress(ModuleNotFoundError):
            from charset_normalizer import from_bytes

            best = from_bytes(sample, cp_isolation=_LIKELY_ENCODINGS).best()
            if best is not None and best.encoding != "ascii":
                return str(best.encoding)
    # Windows-1252 leaves five bytes undefined; latin-1 defines every byte.
    return "cp1252" if _can_decode(sample, "cp1252", complete=False) else "latin-1"


MARKDOWN = frozenset({".md", ".markdown", ".mdown", ".mkd"})
HTML = frozenset({".html", ".htm", ".xhtml"})
JSONL = frozenset({".jsonl", ".ndjson"})
TEXT = frozenset({".txt", ".text", ".rst", ".log"})
GZIP = ".gz"

# suffixes -> module and function, imported when the first such file is read
_READERS: tuple[tuple[frozenset[str], str, str], ...] = (
    (MARKDOWN, "documents", "read_markdown"),
    (HTML, "documents", "read_html"),
    (frozenset({".ipynb"}), "documents", "read_notebook"),
    (frozenset({".eml"}), "documents", "read_mail"),
    (JSONL, "data_files", "read_jsonl"),
    (frozenset({".csv", ".tsv"}), "data_files", "read_csv"),
    (frozenset({".parquet", ".pq"}), "data_files", "read_parquet"),
    (frozenset({".xlsx", ".xlsm"}), "data_files", "read_xlsx"),
    (frozenset({".json", ".geojson"}), "data_files", "read_json"),
    (frozenset({".yaml", ".yml"}), "data_files", "read_yaml"),
    (frozenset({".toml"}), "data_files", "read_toml"),
    (frozenset({".xml", ".rss", ".atom", ".svg", ".xsd"}), "data_files", "read_xml"),
    (frozenset({".docx", ".docm"}), "documents", "read_docx"),
    (frozenset({".pptx", ".pptm"}), "documents", "read_pptx"),
    (frozenset({".epub"}), "documents", "read_epub"),
    (frozenset({".pdf"}), "documents", "read_pdf"),
)
# First bytes that identify files with an unknown suffix.
_MAGIC = ((b"%pdf-", ".pdf"), (b"\x1f\x8b", GZIP), (b"<!doctype html", ".html"), (b"<html", ".html"))
_PIECE = 200_000  # characters of plain text held in memory at a time


def read_sections(source: Source) -> Iterator[Section]:
    """Yield the sections of a file and close it. Raises DataFormatError if the content does not match the suffix."""
    with source.file:
        yield from _read_source(source)


def has_reader(suffix: str) -> bool:
    """Return whether a suffix (in lower case) has its own reader."""
    return any(suffix in suffixes for suffixes, _, _ in _READERS)


def suffix_by_content(sample: bytes) -> str:
    """Return the suffix that matches the first bytes of a file, or "" for plain text."""
    start = sample[:64].lstrip().lower()
    return next((suffix for magic, suffix in _MAGIC if start.startswith(magic)), "")


def is_readable(sample: bytes) -> bool:
    """Return whether a file without its own reader can be read, judging by its first bytes."""
    has_wide_bom = sample.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"))
    return bool(suffix_by_content(sample)) or has_wide_bom or not is_binary(sample)


def _read_source(source: Source) -> Iterator[Section]:
    suffix = source.suffix
    if not (suffix == GZIP or suffix in TEXT or has_reader(suffix)):
        suffix = suffix_by_content(source.sample())
    if suffix == GZIP:
        yield from _read_gzip(source)
        return
    for suffixes, module, function in _READERS:
        if suffix in suffixes:
            yield from getattr(import_module(f"resift.ingest.{module}"), function)(source)
            return
    # Make the names of source code and configuration files searchable.
    context = "" if source.suffix in TEXT or not source.suffix else PurePosixPath(source.name).name
    yield from plain_sections(source, context=context)


def _read_gzip(source: Source) -> Iterator[Section]:
    """Unpack a .gz file and read its content by the suffix before .gz."""
    suffix = PurePosixPath(PurePosixPath(source.name).stem).suffix.lower()
    if suffix == ".tar":
        raise DataFormatError("This is an archive. Unpack it and index the folder.", file=source.name)
    limits = source.limits
    limit = min(limits.expanded_bytes, max(limits.parsed_bytes, _MAX_TEXT_COMPRESSION * source.size))
    with tempfile.TemporaryFile() as unpacked:
        size = 0
        source.file.seek(0)
        try:
            with gzip.GzipFile(fileobj=source.file) as packed:
                while block := packed.read(MB):
                    size += len(block)
                    if size > limit:
                        problem = f"Unpacks to more than {limit >> 20} MB. Unpack it first."
                        raise DataFormatError(problem, file=source.name)
                    unpacked.write(block)
        except (OSError, EOFError, zlib.error) as exc:
            raise DataFormatError("Not a readable .gz file.", file=source.name) from exc
        if suffix == GZIP:
            raise DataFormatError("Compressed twice. Decompress it once.", file=source.name)
        yield from _read_source(Source(unpacked, source.name, suffix, size, source.limits, source.text_keys))


def plain_sections(source: Source, *, context: str = "", flag: str = "") -> Iterator[Section]:
    """Yield the text of a file. A long text is split at paragraph, line or word boundaries."""
    encoding, encoding_flag = source.encoding()
    flags = "; ".join(filter(None, (flag, encoding_flag)))
    with open_text(source.file, encoding, newline=None) as text:
        pending = ""
        while block := text.read(SAMPLE_BYTES):
            pending += block
            if len(pending) >= _PIECE:
                cut = _find_cut(pending)
                position = min(source.size, source.file.tell())
                yield Section(pending[:cut], context=context, flag=flags, position=position)
                pending, flags = pending[cut:], ""
        if pending.strip():
            yield Section(pending, context=context, flag=flags, position=source.size)


def _find_cut(text: str) -> int:
    for border in ("\n\n", "\n", ". ", "。", " "):
        index = text.rfind(border, _PIECE // 2)
        if index > 0:
            return index + len(border)
    return len(text)
