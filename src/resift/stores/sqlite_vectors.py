"""Exact vector search: the file's vectors in memory blocks, kept in step with the file row by row."""

from __future__ import annotations

import sqlite3
from typing import Any

from resift.errors import require
from resift.stores.sqlite_rows import removed_since
from resift.stores.sqlite_schema import FileFacts

_BLOCK_ROWS = 8192
# Below this size BLAS stays in the calling thread. The sweep is bound by memory, so more threads gain
# nothing, and waiting for one that a busy machine does not schedule costs ten times the sweep.
_SWEEP_VALUES = 200_000
_MARGIN = 1e-5  # float32 sums of a few hundred products are off by less than this


class VectorView:
    """The vectors as of one generation. Blocks may grow behind `size`, never change before it."""

    def __init__(self, facts: FileFacts, blocks: tuple[Any, ...], rows: Any, alive: Any) -> None:
        self.generation = facts.generation
        self.removals = facts.removals
        self.blocks = blocks
        self.rows = rows
        self.alive = alive

    @property
    def dead(self) -> int:
        """How many places belong to rows that are gone."""
        return 0 if self.alive is None else int((~self.alive).sum())

    def best(self, query: Any, k: int, allowed: list[int] | None) -> list[tuple[int, float]]:
        """Return (row, cosine) of the best k, and of all that may tie with the last of them.

        A fast float32 sweep finds the candidates; their scores are then summed in float64, so that they
        depend neither on where a row lies in memory nor on the number of threads.
        """
        np = require("numpy", extra="local")
        rough = self._rough(query)
        usable = self.alive
        if allowed is not None:
            passing = np.isin(self.rows, np.asarray(allowed, dtype=np.int64))
            usable = passing if usable is None else usable & passing
        if usable is not None:
            rough[~usable] = -np.inf
        many = len(rough) if usable is None else int(usable.sum())
        if many > k:
            last = np.partition(rough, len(rough) - k)[len(rough) - k]
            places = np.flatnonzero(rough >= last - _MARGIN)
        else:
            places = np.flatnonzero(rough > -np.inf)
        return self._exact(places, query)

    def _rough(self, query: Any) -> Any:
        np = require("numpy", extra="local")
        scores = np.empty(len(self.rows), dtype=np.float32)
        sweep = max(1, _SWEEP_VALUES // len(query))
        for number, block in enumerate(self.blocks):
            start = number * _BLOCK_ROWS
            end = min(_BLOCK_ROWS, len(self.rows) - start)
            for at in range(0, end, sweep):
                to = min(at + sweep, end)
                np.dot(block[at:to], query, out=scores[start + at : start + to])
        return scores

    def _exact(self, places: Any, query: Any) -> list[tuple[int, float]]:
        asked = query.astype("float64")
        return [
            (int(self.rows[at]), float((self.blocks[at // _BLOCK_ROWS][at % _BLOCK_ROWS] * asked).sum()))
            for at in places.tolist()
        ]


class VectorIndex:
    """Keeps one VectorView in step with the file: reads only new rows, forgets removed ones."""

    def __init__(self) -> None:
        self._view: VectorView | None = None

    def view(self, connection: sqlite3.Connection, facts: FileFacts) -> VectorView:
        """Return the view of the connection's snapshot; call under the store's lock."""
        view = self._view
        if view is None:
            np = require("numpy", extra="local")
            view = VectorView(facts._replace(generation=-1), (), np.zeros(0, dtype=np.int64), None)
        if view.generation != facts.generation:
            view = _appended(connection, facts, view)
            if view.removals != facts.removals:
                view = _without_removed(connection, facts, view)
        self._view = view
        return view


def _appended(connection: sqlite3.Connection, facts: FileFacts, old: VectorView) -> VectorView:
    np = require("numpy", extra="local")
    blocks, filled = list(old.blocks), len(old.rows)
    last = int(old.rows[-1]) if filled else 0
    added: list[int] = []
    cursor = connection.execute("SELECT row, vector FROM vectors WHERE row > ? ORDER BY row", (last,))
    while batch := cursor.fetchmany(1024):
        new = np.frombuffer(b"".join(vector for _, vector in batch), dtype="<f4").reshape(len(batch), -1)
        filled = _fill(blocks, filled, new)
        added.extend(row for row, _ in batch)
    rows = np.concatenate([old.rows, np.asarray(added, dtype=np.int64)])
    alive = None
    if old.alive is not None:
        alive = np.concatenate([old.alive, np.ones(len(added), dtype=bool)])
    return VectorView(facts._replace(removals=old.removals), tuple(blocks), rows, alive)


def _fill(blocks: list[Any], filled: int, new: Any) -> int:
    np = require("numpy", extra="local")
    done = 0
    while done < len(new):
        at = filled % _BLOCK_ROWS
        if at == 0:
            blocks.append(np.empty((_BLOCK_ROWS, new.shape[1]), dtype=np.float32))
        some = new[done : done + _BLOCK_ROWS - at]
        blocks[-1][at : at + len(some)] = some
        done += len(some)
        filled += len(some)
    return filled


def _without_removed(connection: sqlite3.Connection, facts: FileFacts, view: VectorView) -> VectorView:
    """Mark the rows that are gone, or copy the living ones together once a quarter is gone."""
    np = require("numpy", extra="local")
    gone = removed_since(connection, view.removals, facts.removals)
    if gone is None:
        held = connection.execute("SELECT row FROM documents")
        alive = np.isin(view.rows, np.fromiter((row for (row,) in held), dtype=np.int64))
    else:
        alive = ~np.isin(view.rows, np.asarray(gone, dtype=np.int64))
        if view.alive is not None:
            alive &= view.alive
    marked = VectorView(facts, view.blocks, view.rows, None if alive.all() else alive)
    if marked.dead * 4 <= len(marked.rows):
        return marked
    blocks: list[Any] = []
    filled = 0
    for number, block in enumerate(view.blocks):
        kept = alive[number * _BLOCK_ROWS : (number + 1) * _BLOCK_ROWS]
        filled = _fill(blocks, filled, block[: len(kept)][kept])
    return VectorView(facts, tuple(blocks), view.rows[alive], None)
