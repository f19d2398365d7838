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
    """Return the store; an existing file keeps its own embedder and language, a new one has the arguments.

    `text_only` makes a new file without vectors, or leaves an existing file's vectors unused. The file is
    opened once.
    """
    store = SQLiteStore(path, language=language, read_only=read_only, create=not read_only)
    if text_only:
        return store
    try:
        facts = store.facts()
        # None while the file is empty and may still become either.
        built_with = facts.embedder or ("" if facts.generation else None)
        if built_with is not None and embedder not in (None, built_with):
            raise StoreError(
                f"{path} was built with {built_with or 'no embedder'}, not with {embedder}. "
                "Leave --embedder out, or index into a new file."
            )
        wanted = embedder if built_with is None else built_with
        if wanted != "":
            from resift.models.embedding import DEFAULT_EMBEDDER, Embedder

            try:
                made = Embedder(wanted or DEFAULT_EMBEDDER)
            except ModelNotAllowedError as exc:
                if not built_with:
                    raise
                raise StoreError(
                    f"{path} was built with {built_with}, which is no model known here. Open it by "
                    "words alone (text_only=True, --text-only), or allow it: resift.models.allow_local."
                ) from exc
            store.use_embedder(made)
    except BaseException:
        store.release()
        raise
    return store
