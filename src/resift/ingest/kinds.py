"""What kind of file it is: by suffix, then by content. One row per kind and its reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from resift.ingest.decoding import is_binary
from resift.ingest.sections import Section
from resift.ingest.sources import Source

Reader = Callable[[Source], Iterator[Section]]

MARKDOWN = frozenset({".md", ".markdown", ".mdown", ".mkd"})
HTML = frozenset({".html", ".htm", ".xhtml"})
JSONL = frozenset({".jsonl", ".ndjson"})
TEXT = frozenset({".txt", ".text", ".rst", ".log"})
GZIP = frozenset({".gz"})

# suffixes -> module and function; loaded when the first such file is read
_READERS: tuple[tuple[frozenset[str], str, str], ...] = (
    (MARKDOWN, "markdown", "read_markdown"),
    (HTML, "html", "read_html"),
    (JSONL, "rows", "read_jsonl"),
    (frozenset({".csv", ".tsv"}), "rows", "read_csv"),
    (frozenset({".parquet", ".pq"}), "rows", "read_parquet"),
    (frozenset({".json", ".geojson"}), "data", "read_json"),
    (frozenset({".yaml", ".yml"}), "data", "read_yaml"),
    (frozenset({".toml"}), "data", "read_toml"),
    (frozenset({".xml", ".rss", ".atom", ".svg", ".xsd"}), "data", "read_xml"),
    (frozenset({".docx", ".docm"}), "office", "read_docx"),
    (frozenset({".pptx", ".pptm"}), "office", "read_pptx"),
    (frozenset({".xlsx", ".xlsm"}), "sheets", "read_xlsx"),
    (frozenset({".ipynb"}), "notebook", "read_notebook"),
    (frozenset({".eml"}), "mail", "read_mail"),
    (frozenset({".epub"}), "epub", "read_epub"),
    (frozenset({".pdf"}), "pdf", "read_pdf"),
)
# A file without a suffix that we know, told by how it begins.
_MAGIC = ((b"%PDF-", ".pdf"), (b"\x1f\x8b", ".gz"), (b"<!doctype html", ".html"), (b"<html", ".html"))


def reader_of(suffix: str) -> Reader | None:
    """Return the reader for a suffix in lower case, None for one that has no reader of its own."""
    for suffixes, module, function in _READERS:
        if suffix in suffixes:
            found: Reader = getattr(import_module(f"resift.ingest.formats.{module}"), function)
            return found
    return None


def has_reader(suffix: str) -> bool:
    """Say whether a suffix has a reader of its own."""
    return any(suffix in suffixes for suffixes, _, _ in _READERS)


def suffix_by_content(sample: bytes) -> str:
    """Return the suffix of what a file begins like: "" for plain text."""
    start = sample[:64].lstrip().lower()
    return next((suffix for magic, suffix in _MAGIC if start.startswith(magic.lower())), "")


def unreadable(sample: bytes) -> str:
    """Return why a file without a reader of its own is not read as text, or "" if it is text."""
    wide = sample[:4].startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"))
    return "not text" if not wide and is_binary(sample) else ""
