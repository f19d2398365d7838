"""How many candidates the first stage fetches so that the second has something to choose from."""

from __future__ import annotations

from dataclasses import dataclass

from resift.options import check_values, option


@dataclass(frozen=True, slots=True, kw_only=True)
class OverFetch:
    """Fetch `factor` times what is asked for, at least `minimum`, at most `cap`, never fewer than asked."""

    factor: int = option("Times k.", default=10, least=1)
    minimum: int = option("At least this many.", default=0, least=0)
    cap: int | None = option("At most this many.", default=None, least=1)

    def __post_init__(self) -> None:
        check_values(self)

    def __call__(self, wanted: int) -> int:
        """Return how many to fetch for that many wanted."""
        fetched = max(self.minimum, wanted * self.factor)
        # The cap bounds what is fetched beyond k, never k itself.
        return max(wanted, fetched if self.cap is None else min(self.cap, fetched))
