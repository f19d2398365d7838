"""Open an index file with the embedder that it was built with, or a new one with the default."""

from __future__ import annotations

from pathlib import Path

from resift.errors import StoreError
from resift.stores.sqlite import SQLiteStore


def open_index(
    path: Path,
    *,
    embedder: str | None = None,
    language: str | None = None,
    text_only: bool = False,
    read_only: bool = False,
) -> SQLiteStore:
    """Return the store; an existing file keeps its own embedder and language, a new one has the arguments.

    `text_only` makes a new file without vectors, or leaves an existing file's vectors unused.
    """
    if text_only:
        return SQLiteStore(path, language=language, read_only=read_only, create=True)
    if read_only or (path.exists() and path.stat().st_size):
        built_with = _built_with(path)
        if embedder not in (None, built_with) and built_with is not None:
            raise StoreError(
                f"{path} was built with {built_with or 'no embedder'}, not with {embedder}. "
                "Leave --embedder out, or index into a new file."
            )
        if built_with is not None:
            return _opened(path, built_with, language, read_only=read_only)
    return _opened(path, embedder, language, read_only=read_only)


def _built_with(path: Path) -> str | None:
    """Return the file's embedder, "" for words only, None while it is empty and may still become either."""
    probe = SQLiteStore(path, read_only=True)
    try:
        facts = probe.facts()
        return facts.embedder or ("" if facts.generation else None)
    finally:
        probe.release()


def _opened(path: Path, embedder: str | None, language: str | None, *, read_only: bool) -> SQLiteStore:
    if embedder == "":
        return SQLiteStore(path, language=language, read_only=read_only, create=True)
    from resift.models.embedding import DEFAULT_EMBEDDER, Embedder

    model = Embedder(embedder or DEFAULT_EMBEDDER)
    return SQLiteStore(path, embedder=model, language=language, read_only=read_only, create=True)
