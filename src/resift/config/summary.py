"""A configuration in a few lines, for people who want to see that it says what they mean."""

from __future__ import annotations

from pathlib import Path

from resift.config.build_rerank import keys_not_set
from resift.config.settings import Settings
from resift.pipeline.defaults import FETCH
from resift.pipeline.over_fetch import OverFetch
from resift.ranking.fusion.weighted import NAME as WEIGHTED


def summary(settings: Settings) -> list[tuple[str, str]]:
    """Return (part, what it is) rows."""
    rows = [("store", _store(store)) for store in settings["stores"]]
    fetch = FETCH if settings["fetch"] is None else settings["fetch"].part(OverFetch)
    rows.append(("fetch", f"{fetch(settings['k'])} hits from each store"))
    method = settings["fusion"]["method"]
    rows.append(("fusion", method))
    if settings["rerank"] is not None:
        rows += _rerank(settings["rerank"], adaptive=method == WEIGHTED)
        guard = settings["guard"]
        rows += [("blend", "on" if guard is None or guard["blend"] else "off")]
        rows += [("guard", "on" if guard is None or guard["do_no_harm"] else "off")]
    rows += [(part, "on") for part in ("gate", "shape") if settings.get(part) is not None]
    rows.append(("k", str(settings["k"])))
    limit = settings["deadline_s"]
    rows.append(("deadline", "none" if limit is None else f"{limit:g} s"))
    return rows + _missing(settings)


def _store(store: Settings) -> str:
    place = next((str(store[key]) for key in ("path", "url") if store.get(key)), "")
    # Below the folder one works in, the way from there says it sooner.
    place = place.removeprefix(f"{Path.cwd()}/")
    return " ".join(part for part in (store["name"], f"({store['kind']})", place) if part)


def _rerank(settings: Settings, *, adaptive: bool) -> list[tuple[str, str]]:
    parts = settings["tiers"] or [settings]
    names = " > ".join(f"{part['kind']} {part.get('model') or ''}".strip() for part in parts)
    depth = "adaptive depth" if adaptive and not settings["depth"] else f"the top {settings['depth'] or 20}"
    rows = [("rerank", f"{names}, {depth}")]
    unset = [f"{name} is not set: its tier will be skipped" for part in parts for name in keys_not_set(part)]
    return rows + [("note", each) for each in unset]


def _missing(settings: Settings) -> list[tuple[str, str]]:
    granted = settings["capabilities"]
    if granted is None:
        return []
    needed = [f"db.{store['name']}:read" for store in settings["stores"]]
    return [
        ("note", f"{name} is not granted: every search will be refused")
        for name in needed
        if name not in granted
    ]
