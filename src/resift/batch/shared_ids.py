"""Documents of an index job that share an id: loading by id would keep one of them and lose the others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from resift.errors import InputError, require

_ROWS_AT_ONCE = 4096
_SHOWN = 5


def check_shared_ids(shards: Sequence[Path]) -> None:
    """Refuse shards in which one id names different documents; the same document twice is one.

    16 bytes are held per document, so ten million of them take 160 MB.
    """
    np = require("numpy", extra="local")
    seen = np.fromiter(
        (pair for shard in shards for pair in _digests(shard)), dtype=[("id", "<u8"), ("document", "<u8")]
    )
    seen.sort(order=("id", "document"))
    same_id = seen["id"][1:] == seen["id"][:-1]
    shared = set(seen["id"][1:][same_id & (seen["document"][1:] != seen["document"][:-1])].tolist())
    if not shared:
        return
    names = sorted({id for shard in shards for id, _ in _documents(shard) if _digest(id) in shared})
    shown = ", ".join(repr(name) for name in names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    raise InputError(
        f"{len(names)} id{'s name' if len(names) > 1 else ' names'} several different documents, "
        f"of which a store keeps one: {shown}. Nothing was loaded. "
        "Give each row an id of its own, or none, and run again into a new folder."
    )


def _digests(shard: Path) -> Iterator[tuple[int, int]]:
    for id, document in _documents(shard):
        yield _digest(id), _digest(document)


def _documents(shard: Path) -> Iterator[tuple[str, str]]:
    """Yield each row's id, and its text and metadata in one string."""
    file = require("pyarrow.parquet", extra="batch").ParquetFile(shard)
    with file:
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=["id", "text", "metadata"]):
            for row in batch.to_pylist():
                yield row["id"], f"{row['text']}\0{row['metadata']}"


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
