"""Search settings on one half of the queries and report on the other, never on what was searched on."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from typing import Any, Literal, NamedTuple

from resift.errors import InputError, did_you_mean
from resift.evaluation.measures import Judge, Quality, measure_name
from resift.evaluation.recording import Header, Recorded, Recording
from resift.evaluation.replay import Replay, Setting, default_setting, only
from resift.ranking.fusion.weighted import NAME as WEIGHTED
from resift.ranking.scaling import mean_and_deviation
from resift.types import JsonMapping, JsonObject

Search = Literal["local", "grid"]
Space = Mapping[str, Sequence[Any]]

RANDOM_SHARE = 0.4
"""The part of the budget that is spent on random settings before the best of them are improved."""

STARTS = 3


class Tuned(NamedTuple):
    """The best setting on the training queries, its value there, and how many settings were tried."""

    best: Setting
    value: float
    tried: int
    history: tuple[tuple[Setting, float], ...]


def space_of(header: Header, *, floors: Sequence[tuple[str, float]] = (), near: bool = False) -> Space:
    """Return the values that each knob is tried with; `near` says that the recording knows what is alike."""
    others = len(header.stores) - 1
    ratios = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
    space: dict[str, Sequence[Any]] = {
        "method": (WEIGHTED, "rrf", "linear"),
        "vectors": (0.3, 0.4, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9),
        "k_param": (1.0, 5.0, 10.0, 20.0, 40.0, 60.0, 100.0, 200.0),
        **{f"weight:{store}": ratios for store in range(1, others + 1)},
    }
    if header.depth:
        depths = [depth for depth in (5, 10, 20, 50, 100) if depth < header.depth]
        space["depth"] = (0, *depths, header.depth)
        space["blend"] = (None, "promote", "z-score", "rank")
        space["blend_weight"] = (None, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9)
        space["temperature"] = (0.25, 0.5, 0.75, 1.0, 1.5, 2.5)
        if near:
            space["neighbours"] = (0.0, 0.25, 0.5, 0.75)
    if floors:
        space["floor"] = (None, *floors)
    return space


def grid_of(space: Space) -> Space:
    """Return a coarse part of the space, small enough to try everything."""
    coarse = {
        "k_param": (10.0, 60.0),
        "vectors": (0.4, 0.55, 0.7),
        "depth": (0, max(space.get("depth", (0,)))),
        "blend": ("promote", "z-score"),
        "blend_weight": (None, 0.5, 0.75),
        "temperature": (1.0,),
        "neighbours": (0.0, 0.5),
    }
    ratios = (0.5, 1.0, 2.0)
    return {
        knob: ratios if knob.startswith("weight:") else coarse.get(knob, values)
        for knob, values in space.items()
    }


def tune(
    recording: Recording,
    *,
    measure: str = "nDCG@10",
    search: Search = "local",
    budget: int = 200,
    seed: int = 1,
    start: Setting | None = None,
    floors: Sequence[tuple[str, float]] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Tuned:
    """Return the best setting found; the same arguments find the same one.

    `grid` tries every combination of a coarse grid. `local` tries random settings first and then improves
    the best of them knob by knob, as long as the budget lasts. Where the best is not better than the setting
    it started from by more than its standard error, the start stays: few judgements move nothing.
    """
    if search not in ("local", "grid"):
        raise InputError(f"Unknown search {search!r}. {did_you_mean(str(search), ('local', 'grid'))}")
    if budget < 1:
        raise InputError(f"budget is {budget}; try at least 1 setting.")
    space = space_of(recording.header, floors=floors, near=any(one.near for one in recording.queries))
    trial = _Trial(recording, measure, budget=budget, progress=progress)
    # Without the guard, which is not tuned.
    first = replace(start or default_setting(recording.header), guard=False)
    trial.value(first)
    if search == "grid":
        _grid(trial, grid_of(space), recording.header)
    else:
        _local(trial, space, recording.header, random.Random(seed))  # noqa: S311 - a search, no secret
    best = max(trial.known, key=lambda setting: (trial.known[setting], -len(setting.plain())))
    if not trial.surely_better(best, first):
        best = first
    return Tuned(best, trial.known[best], len(trial.known), tuple(trial.known.items()))


def split_by_name(recording: Recording, train: str, test: str) -> tuple[Recording, Recording]:
    """Return the queries of two recorded splits; refuses to report on what was tuned on."""
    for name in (train, test):
        if name not in recording.splits:
            raise InputError(f"No split {name!r} in this recording. {did_you_mean(name, recording.splits)}")
    halves = [
        only(recording, [one for one in recording.queries if one.split == name]) for name in (train, test)
    ]
    return _apart(*halves)


def split_by_hash(recording: Recording, held_out: float = 0.5) -> tuple[Recording, Recording]:
    """Hold out a part of the queries, chosen by a digest of their ids: the same ones every time."""
    if not 0 < held_out < 1:
        raise InputError(f"The held-out part is {held_out}; it must lie between 0 and 1.")

    def is_held_out(one: Recorded) -> bool:
        digest = hashlib.sha256(one.query.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") / 2**64 < held_out

    halves: tuple[list[Recorded], list[Recorded]] = ([], [])
    for one in recording.queries:
        halves[is_held_out(one)].append(one)
    return _apart(only(recording, halves[0]), only(recording, halves[1]))


def _apart(train: Recording, test: Recording) -> tuple[Recording, Recording]:
    """Refuse halves that share a query or are empty."""
    shared = {one.query for one in train.queries} & {one.query for one in test.queries}
    if shared:
        raise InputError(
            f"{len(shared)} queries are in both halves, {min(shared)!r} for one. A setting must not be "
            "judged on the queries it was tuned on: choose another split to report on."
        )
    if not train.queries or not test.queries:
        raise InputError("One half has no queries; record more, or choose another split.")
    return train, test


class _Trial:
    """Values of settings on one recording, each computed once, as long as the budget lasts."""

    def __init__(
        self,
        recording: Recording,
        measure: str,
        *,
        budget: int,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.measure = measure_name(measure)
        self.budget = budget
        self.known: dict[Setting, float] = {}
        self._recording = recording
        self._progress = progress
        self._replay = Replay(recording)
        self._judge = Judge(recording.qrels(), [self.measure])
        cutoff = self.measure.partition("@")[2]
        self._most = int(cutoff) if cutoff else None

    def spent(self) -> bool:
        """Whether nothing more may be tried."""
        return len(self.known) >= self.budget

    def value(self, setting: Setting) -> float:
        """Return the mean of the measure under this setting."""
        if setting not in self.known:
            self.known[setting] = self._quality(setting).mean(self.measure, complete=True)
            if self._progress:
                self._progress(len(self.known), self.budget)
        return self.known[setting]

    def surely_better(self, one: Setting, other: Setting) -> bool:
        """Whether one setting is better than another by more than the standard error of the difference."""
        values = [self._quality(setting).per_query[self.measure] for setting in (one, other)]
        gains = [
            values[0].get(query, 0.0) - values[1].get(query, 0.0) for query in {**values[0], **values[1]}
        ]
        if len(gains) < 2:
            return False
        mean, deviation = mean_and_deviation(gains)
        return mean > deviation / math.sqrt(len(gains))

    def _quality(self, setting: Setting) -> Quality:
        return self._judge.quality(self._replay.run(setting, max_hits=self._most))


def _grid(trial: _Trial, space: Space, header: Header) -> None:
    for values in product(*space.values()):
        setting = _setting(dict(zip(space, values, strict=True)), header)
        if trial.spent() and setting not in trial.known:
            return
        trial.value(setting)


def _local(trial: _Trial, space: Space, header: Header, draw: random.Random) -> None:
    while len(trial.known) < max(1, int(trial.budget * RANDOM_SHARE)):
        trial.value(_setting({knob: draw.choice(values) for knob, values in space.items()}, header))
    starts = sorted(trial.known, key=lambda setting: -trial.known[setting])[:STARTS]
    for start in starts:
        _improve(trial, space, header, start)


def _improve(trial: _Trial, space: Space, header: Header, start: Setting) -> None:
    """Change one knob at a time to its best value, until no knob helps or the budget is spent."""
    at = start
    better = True
    while better and not trial.spent():
        better = False
        for near in _neighbours(space, header, at):
            if trial.spent() and near not in trial.known:
                return
            # More than rounding, or two equal settings would take turns for ever.
            if trial.value(near) > trial.value(at) + 1e-12:
                at, better = near, True


def _neighbours(space: Space, header: Header, setting: Setting) -> Iterator[Setting]:
    knobs = _knobs(setting, header)
    for knob, values in space.items():
        for value in values:
            near = _setting({**knobs, knob: value}, header)
            if near != setting:
                yield near


def _knobs(setting: Setting, header: Header) -> JsonObject:
    weights = setting.weights or (1.0,) * len(header.stores)
    knobs: JsonObject = {field.name: getattr(setting, field.name) for field in fields(setting)}
    # Only their ratios count, so the first list's weight is no knob.
    del knobs["weights"]
    return {**knobs, **{f"weight:{at}": weights[at] / weights[0] for at in range(1, len(weights))}}


def _setting(knobs: JsonMapping, header: Header) -> Setting:
    """Return the setting of these knobs; knobs without effect get their default: nothing is tried twice."""
    weights = tuple(float(knobs.get(f"weight:{at}", 1.0)) for at in range(len(header.stores)))
    plain = Setting()
    depth = int(knobs.get("depth", 0))
    if depth and knobs["method"] == WEIGHTED:
        # The depth follows the fused scores; a pipeline file has no option for its limit.
        depth = default_setting(header).depth
    blend = knobs.get("blend") if depth else plain.blend
    uses_blend = bool(depth) and blend is not None
    return Setting(
        method=knobs["method"],
        k_param=knobs["k_param"] if knobs["method"] == "rrf" else plain.k_param,
        vectors=knobs["vectors"] if knobs["method"] == WEIGHTED else plain.vectors,
        weights=() if set(weights) == {1.0} else weights,
        depth=depth,
        blend=blend,
        blend_weight=knobs["blend_weight"] if uses_blend else plain.blend_weight,
        temperature=knobs["temperature"] if uses_blend and blend == "promote" else plain.temperature,
        neighbours=knobs.get("neighbours", plain.neighbours) if uses_blend else plain.neighbours,
        floor=knobs.get("floor"),
    )
