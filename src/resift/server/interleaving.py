"""Team-draft interleaving: two rankings shown as one, so that a judge cannot know whose hit it is. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

Team = Literal["a", "b"]


def team_draft(first: Sequence[str], second: Sequence[str], *, k: int, seed: str) -> list[tuple[str, Team]]:
    """Return at most k ids with the team that picked each (Radlinski, Kurup and Joachims, CIKM 2008).

    In each round a coin decides which ranking picks first; each picks its best id that is not there yet. The
    coins come from the seed, so the same rankings and seed give the same list.
    """
    lists: Mapping[Team, Sequence[str]] = {"a": first, "b": second}
    shown: list[tuple[str, Team]] = []
    taken: set[str] = set()
    for turn in range(k):
        order: tuple[Team, Team] = ("a", "b") if _coin(seed, turn) else ("b", "a")
        before = len(shown)
        for team in order:
            pick = next((id for id in lists[team] if id not in taken), None)
            if pick is not None and len(shown) < k:
                taken.add(pick)
                shown.append((pick, team))
        if len(shown) == before or len(shown) >= k:
            break
    return shown


def credit(shown: Sequence[tuple[str, Team]], grades: Mapping[str, int]) -> dict[Team, int]:
    """Return the grades that each team's picks got."""
    return {team: sum(grades.get(id, 0) for id, picker in shown if picker == team) for team in ("a", "b")}


def _coin(seed: str, turn: int) -> bool:
    # Not random(): a list can be repeated from its seed on any machine.
    return hashlib.sha256(f"{seed}\0{turn}".encode()).digest()[0] % 2 == 0
