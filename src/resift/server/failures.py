"""What can go wrong with a request, before any dialect puts it into its own words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "invalid", "empty", "unknown_field", "unknown_model", "too_large", "unauthorized", "overloaded",
    "unavailable", "not_found", "method", "upstream", "internal",
]  # fmt: skip

STATUS: dict[Kind, int] = {
    "invalid": 400,
    "empty": 400,
    "unknown_field": 422,
    "unknown_model": 404,
    "too_large": 413,
    "unauthorized": 401,
    "overloaded": 429,
    "unavailable": 503,
    "not_found": 404,
    "method": 405,
    "upstream": 502,
    "internal": 500,
}


@dataclass(eq=False)
class RequestFailed(Exception):
    """A request that gets no result; `message` is for the client and quotes no text of a document."""

    kind: Kind
    message: str
    retry_after_s: int | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)
