"""Hostile values in every query, filter, column, table and template of the stores over other people's tables.

A value must stay a value: results are those of the reference filter, errors are Resift's own, and the
source has the same content afterwards. Each value is tried as the query on every system. Filters and names of
columns rotate: every value goes through every one of them, on at least two systems each.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import warnings
from pathlib import Path
from typing import Any

from resift.errors import ResiftError
from resift.stores.filters import matches
from tests.hardening.report import Outcome
from tests.stores.table_systems import DOCUMENTS, FIELDS, HOSTILE, SYSTEMS, Opened

_FRAMES = ("{}", "food{}", "{}food", "x' {} y", '"{}"', "{0}{0}", "*{}", "a {} b")


def hostile_values(count: int) -> list[str]:
    """Return that many different values: each alone first, then inside other text."""
    values = (frame.replace("{0}", text).replace("{}", text) for frame in _FRAMES for text in HOSTILE)
    return list(itertools.islice(dict.fromkeys(values), count))


def attack(seed: int, count: int) -> Outcome:
    """Try `count` values in each place of each system."""
    outcome = Outcome("hostile values in filters, columns and templates of table stores")
    values = hostile_values(count)
    places = 0
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        for number, (name, opened) in enumerate(SYSTEMS.items()):
            inside = Path(folder) / str(number)
            inside.mkdir()
            with opened(inside) as table:
                before = table.snapshot()
                asyncio.run(_attack_searches(outcome, name, table, values, number))
                places += _attack_names(outcome, name, table, values, number)
                outcome.check(table.snapshot() == before, f"{name}: the source changed")
    outcome.figures = {"values": len(values), "systems": len(SYSTEMS), "names tried": places}
    return outcome


def _rotate(choices: list[Any], turn: int, systems: int) -> list[Any]:
    """Return the choices of this turn; with each of them at least twice over all systems."""
    share = -(-2 * len(choices) // systems)
    return [choices[(turn * share + i) % len(choices)] for i in range(share)]


async def _attack_searches(outcome: Outcome, name: str, table: Opened, values: list[str], system: int) -> None:
    store = table.make(fields=FIELDS)
    every = {hit.id for hit in await store.search("travel", k=5)}
    for number, text in enumerate(values):
        filters: list[dict[str, Any] | None] = [
            {"topic": text}, {"topic": [text, "food"]}, {"topic": {"!=": text}}, {"topic": {">": text}},
            {"headline": f"*{text}*"}, {"year": text}, {"or": [{"topic": text}, {"year": 2023}]}, {text: 1},
        ]  # fmt: skip
        for where in (None, *_rotate(filters, number + system, len(SYSTEMS))):
            outcome.tried += 1
            query = text if where is None else "travel"
            try:
                found = {hit.id for hit in await store.search(query, k=5, where=where)}
            except ResiftError as exc:
                known_column = where is None or text not in where
                outcome.check(not known_column, f"{name}: {exc} with {where!r}")
                continue
            except Exception as exc:
                outcome.fail(f"{name}: raw {type(exc).__name__}: {str(exc)[:80]} with {query!r}, {where!r}")
                continue
            if where is not None and text not in where:
                expected = every & {str(row["nr"]) for row in DOCUMENTS if matches(row, where)}
                outcome.check(found == expected, f"{name}: {found} instead of {expected} with {where!r}")
    await store.close()


def _attack_names(outcome: Outcome, name: str, table: Opened, values: list[str], system: int) -> int:
    tried = 0
    for number, text in enumerate(values):
        names: list[dict[str, Any]] = [
            {"fields": [text]}, {"id": text}, {"metadata": [text]}, {"vector": text}, {"filter": {text: 1}},
        ]  # fmt: skip
        for wrong in _rotate(names, number + system, len(SYSTEMS)):
            outcome.tried += 1
            tried += 1
            try:
                store = table.make(**{"fields": FIELDS, **wrong})
                store.release()
            except ResiftError as exc:
                outcome.check(bool(str(exc)), f"{name}: an error without words for {wrong!r}")
            except Exception as exc:
                outcome.fail(f"{name}: raw {type(exc).__name__}: {str(exc)[:80]} with {wrong!r}")
            else:
                outcome.check("vector" in wrong, f"{name}: accepted {wrong!r}")
    return tried
