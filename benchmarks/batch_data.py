"""Rows for the benchmarks of bulk work: seeded, in plain English words, of a given length."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

WORDS = (  # noqa: SIM905 - a list of words reads better as text
    "the of and to in is was for that with as by on from are this which water energy light sound history "
    "river mountain city people bees honey flower engine steam music paper stone bridge school market law "
    "science method result measure theory number model system search answer question language text word "
    "early late small large first second north south war peace king state house field ship road train "
    "make found built known called used made written began became moved carried showed gave took kept"
).split()


def passages(count: int, *, words: int, seed: int = 1) -> Iterator[str]:
    """Yield texts of about so many words, all different."""
    draw = random.Random(seed)
    for number in range(count):
        length = max(3, round(words * draw.uniform(0.6, 1.4)))
        yield " ".join(draw.choices(WORDS, k=length)) + f" {number}."


def write_questions(path: Path, *, rows: int, candidates: int, words: int) -> Path:
    """Write questions with their candidates, 1,000 to a row group."""
    texts = passages(rows * candidates, words=words)
    with pq.ParquetWriter(path, _QUESTIONS) as writer:
        for start in range(0, rows, 1000):
            count = min(1000, rows - start)
            batch = {
                "id": [f"q{start + at}" for at in range(count)],
                "query": list(passages(count, words=8, seed=start + 2)),
                "candidates": [[next(texts) for _ in range(candidates)] for _ in range(count)],
            }
            writer.write_table(pa.table(batch, schema=_QUESTIONS))
    return path


def write_passages(path: Path, *, rows: int, words: int) -> Path:
    """Write passages in one row group."""
    ids = [f"p{at}" for at in range(rows)]
    table = pa.table({"id": ids, "text": list(passages(rows, words=words))})
    pq.write_table(table, path, row_group_size=rows)
    return path


_QUESTIONS = pa.schema([("id", pa.string()), ("query", pa.string()), ("candidates", pa.list_(pa.string()))])
