"""Open an index file with the embedder that it was built with, or a new one with the default."""

from __future__ import annotations

from pathlib import Path

from resift.errors import ModelNotAllowedError, StoreError
from resift.stores.sqlite import SQLiteStore
from resift.validation import check_arguments


@check_arguments
def open_index(
    path: Path,
    *,
    embedder: str | None = None,
    language: str | None = None,
    text_only: bool = False,
    read_only: bool = False,
) -> SQLiteStore:
    """Return the store. An existing file keeps its embedder and language; the arguments set up a new one.

    `text_only` creates a new file without vectors, or leaves an existing file's vectors unused.
    """
    store = SQLiteStore(path, language=language, read_only=read_only, create=not read_only)
    if text_only:
        return store
    try:
        metadata = store.metadata()
        # None while the file is empty: it can still be built with or without an embedder.
        built_with = metadata.embedder or ("" if metadata.generation else None)
        if built_with is not None and embedder not in (None, built_with):
            raise StoreError(
                f"{path} was built with {built_with or 'no embedder'}, not with {embedder}. "
                "Leave --embedder out, or index into a new file."
            )
        model = embedder if built_with is None else built_with
        if model != "":
            from resift.models.embedder import DEFAULT_EMBEDDER, Embedder

            try:
                store.use_embedder(Embedder(model or DEFAULT_EMBEDDER))
            except ModelNotAllowedError as exc:
                if not built_with:
                    raise
                raise StoreError(
                    f"{path} was built with {built_with}, which is not an allowed model here. Open it for "
                    "keyword search (text_only=True, --text-only), or allow it: resift.models.allow_local."
                ) from exc
    except BaseException:
        store.release()
        raise
    return store
