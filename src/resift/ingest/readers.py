"""Read one file of any kind into sections. The kind follows from the suffix, then from the content."""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path, PurePosixPath

from resift.errors import DataFormatError
from resift.ingest.sections import Section, plain_sections
from resift.ingest.sources import DEFAULT_LIMITS, FileLimits, Source, is_binary, open_source

Reader = Callable[[Source], Iterator[Section]]

MARKDOWN = frozenset({".md", ".markdown", ".mdown", ".mkd"})
HTML = frozenset({".html", ".htm", ".xhtml"})
JSONL = frozenset({".jsonl", ".ndjson"})
TEXT = frozenset({".txt", ".text", ".rst", ".log"})
GZIP = ".gz"

# suffixes -> module and function, imported when the first such file is read
_READERS: tuple[tuple[frozenset[str], str, str], ...] = (
    (MARKDOWN, "markup", "read_markdown"),
    (HTML, "markup", "read_html"),
    (frozenset({".ipynb"}), "markup", "read_notebook"),
    (frozenset({".eml"}), "markup", "read_mail"),
    (JSONL, "tables", "read_jsonl"),
    (frozenset({".csv", ".tsv"}), "tables", "read_csv"),
    (frozenset({".parquet", ".pq"}), "tables", "read_parquet"),
    (frozenset({".xlsx", ".xlsm"}), "tables", "read_xlsx"),
    (frozenset({".json", ".geojson"}), "data_files", "read_json"),
    (frozenset({".yaml", ".yml"}), "data_files", "read_yaml"),
    (frozenset({".toml"}), "data_files", "read_toml"),
    (frozenset({".xml", ".rss", ".atom", ".svg", ".xsd"}), "data_files", "read_xml"),
    (frozenset({".docx", ".docm"}), "documents", "read_docx"),
    (frozenset({".pptx", ".pptm"}), "documents", "read_pptx"),
    (frozenset({".epub"}), "documents", "read_epub"),
    (frozenset({".pdf"}), "documents", "read_pdf"),
)
# How files begin whose suffix says nothing.
_MAGIC = ((b"%pdf-", ".pdf"), (b"\x1f\x8b", GZIP), (b"<!doctype html", ".html"), (b"<html", ".html"))
_BLOCK = 1 << 20


def read_sections(
    path: Path,
    *,
    name: str,
    limits: FileLimits = DEFAULT_LIMITS,
    follow: bool = True,
    text_keys: tuple[str, ...] | None = None,
) -> Iterator[Section]:
    """Yield the sections of a file. `name` is its name in errors, `text_keys` the fields of records to read.

    Raises DataFormatError if the content does not match the suffix or the path is not a regular file.
    """
    source = open_source(path, name=name, limits=limits, follow=follow, text_keys=text_keys)
    with source.file:
        yield from _read_source(source)


def has_reader(suffix: str) -> bool:
    """Return whether a suffix, in lower case, has its own reader."""
    return any(suffix in suffixes for suffixes, _, _ in _READERS)


def suffix_by_content(sample: bytes) -> str:
    """Return the suffix that fits the first bytes of a file; "" for plain text."""
    start = sample[:64].lstrip().lower()
    return next((suffix for magic, suffix in _MAGIC if start.startswith(magic)), "")


def is_readable(sample: bytes) -> bool:
    """Return whether a file without its own reader can be read, judged by its first bytes."""
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
            read: Reader = getattr(import_module(f"resift.ingest.{module}"), function)
            yield from read(source)
            return
    # The name of a program or a configuration file is worth searching.
    context = "" if source.suffix in TEXT or not source.suffix else PurePosixPath(source.name).name
    yield from plain_sections(source, context=context)


def _read_gzip(source: Source) -> Iterator[Section]:
    """Unpack a .gz file and read its content by the suffix before .gz."""
    suffix = PurePosixPath(PurePosixPath(source.name).stem).suffix.lower()
    if suffix == ".tar":
        raise DataFormatError("An archive. Unpack it and index the folder.", file=source.name)
    limit = source.limits.expanded_bytes
    with tempfile.TemporaryFile() as unpacked:
        size = 0
        source.file.seek(0)
        try:
            with gzip.GzipFile(fileobj=source.file) as packed:
                while block := packed.read(_BLOCK):
                    size += len(block)
                    if size > limit:
                        raise DataFormatError(f"Unpacks to more than {limit >> 20} MB.", file=source.name)
                    unpacked.write(block)
        except (OSError, EOFError, zlib.error) as exc:
            raise DataFormatError("Not a readable .gz file.", file=source.name) from exc
        if suffix == GZIP:
            raise DataFormatError("Packed twice. Unpack it once.", file=source.name)
        yield from _read_source(Source(unpacked, source.name, suffix, size, source.limits, source.text_keys))
