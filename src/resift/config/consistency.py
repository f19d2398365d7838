"""Checks that need more than one key: names that must exist, numbers that must fit together."""

from __future__ import annotations

from resift.config.build_rerank import check_rerank
from resift.config.build_stages import check_fusion, check_gate, check_shape
from resift.config.build_stores import check_store, names_of
from resift.config.problems import Problems
from resift.config.settings import Settings
from resift.errors import did_you_mean


def check_whole(settings: Settings, problems: Problems) -> None:
    """Note every contradiction between keys that are fine on their own."""
    _check_names(settings, problems)
    for store in settings["stores"] or ():
        check_store(store, problems.add)
    _check_weights(settings, problems)
    _check_sizes(settings, problems)
    if settings["fusion"] is not None:
        check_fusion(settings["fusion"], problems.add)
    if settings["rerank"] is not None:
        check_rerank(settings["rerank"], problems.add)
    if settings["gate"] is not None:
        check_gate(settings["gate"], settings, problems.add)
    if settings["shape"] is not None:
        check_shape(settings["shape"], problems.add)


def _check_names(settings: Settings, problems: Problems) -> None:
    lines: dict[str, int | None] = {}
    for store in settings["stores"] or ():
        name = store["name"]
        if name is not None and name in lines:
            place = f", first in line {lines[name]}" if lines[name] else ""
            problems.add(
                store.line_of("name"), f"Two stores are named {name!r}{place}. Give each its own name."
            )
        lines.setdefault(name, store.line_of("name"))


def _check_weights(settings: Settings, problems: Problems) -> None:
    fusion = settings["fusion"]
    if fusion is None or not fusion["weights"]:
        return
    # A weight for a store that is not there would change nothing, and nobody would notice.
    known = [name for store in settings["stores"] or () for name in names_of(store)]
    for name in fusion["weights"]:
        if name not in known:
            line = fusion.line_of("weights")
            problems.add(line, f"fusion.weights names the store {name!r}. {did_you_mean(name, known)}")


def _check_sizes(settings: Settings, problems: Problems) -> None:
    fetch = settings["fetch"]
    if fetch is not None and fetch["cap"] < settings["k"]:
        problems.add(
            fetch.line_of("cap"),
            f"fetch.cap is {fetch['cap']}, but k is {settings['k']}; raise cap, or stores give fewer than k.",
        )
    if fetch is not None and "minimum" in fetch.written and fetch["cap"] < fetch["minimum"]:
        problems.add(
            fetch.line_of("cap"),
            f"fetch.cap is {fetch['cap']}, below fetch.minimum {fetch['minimum']}. Raise cap.",
        )
