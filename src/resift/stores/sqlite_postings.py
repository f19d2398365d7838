"""A term's occurrences from the file's FTS5 index, by FTS5's own vocabulary table."""

from __future__ import annotations

from resift.stores.postings import Occurrences, occurrences_of
from resift.stores.sqlite_file import Connection


def read_occurrences(connection: Connection, term: str) -> Occurrences:
    """Return the rows that hold a term and how often."""
    # One long string is read in one step; row by row it takes four times as long and the GIL each time.
    every = "SELECT group_concat(doc) FROM temp.instances WHERE term = ?"
    (rows,) = connection.execute(every, (term,)).fetchone()
    return occurrences_of(rows or "")
