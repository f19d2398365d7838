"""Sessions of ratings for tests. A process that writes one imports little."""

from __future__ import annotations

from resift.server.ratings import RatingSession


def session(number: int) -> RatingSession:
    """Return a session of two settings with four documents."""
    texts = {f"d{i}": f"text {i} of {number}" for i in range(4)}
    return RatingSession(
        id=f"s{number}",
        query=f"query {number}",
        settings={"a": {}, "b": {}},
        lists={"a": list(texts), "b": list(texts)},
        shown=[("d0", "a"), ("d1", "b")],
        documents=texts,
    )
