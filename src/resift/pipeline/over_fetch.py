"""How many candidates the first stage fetches so that the second has something to choose from."""

from __future__ import annotations

from dataclasses import dataclass

from resift.validation import check_options, option


@dataclass(frozen=True, slots=True, kw_only=True)
class OverFetch:
    """Fetch `factor` times what is asked for, at least `minimum`, at most `cap`, never fewer than asked."""

    factor: int = option("Times k.", default=10, min=1)
    minimum: int = option("At least this many.", default=0, min=0)
    cap: int | None = option("At most this many.", default=None, min=1)

    def __post_init__(self) -> None:
        check_options(self)

    def __call__(self, wanted: int) -> int:
        """Return how many to fetch for that many wanted."""
        fetched = max(self.minimum, wanted * self.factor)
        # The cap bounds what is fetched beyond k, never k itself.
        return max(wanted, fetched if self.cap is None else min(self.cap, fetched))
