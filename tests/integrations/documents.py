"""What the adapters' tests share: the same passages and a scorer that never answers."""

from __future__ import annotations

import asyncio
from typing import Any

QUERY = "what do late returns cost"
TEXTS = ["Lunch is at noon.", "Late returns cost twenty cents a day.", "Returns are taken at the desk."]


class SlowScorer:
    """Waits for longer than anybody would."""

    name = "slow"

    async def score(self, query: str, hits: Any, *, deadline: Any) -> Any:
        await asyncio.sleep(min(30.0, deadline.timeout_s or 30.0))
        raise TimeoutError
