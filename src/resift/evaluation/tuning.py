"""Find better settings for a recording; they are always measured on queries that they were not fitted on."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from resift.errors import DataFormatError, InputError, did_you_mean
from resift.evaluation.measures import Judge, Quality, measure_name
from resift.evaluation.readers import Collection, Run, json_rows
from resift.evaluation.recording import Header, RecordedQuery, Recording, Replay, Setting, default_setting, weigh_rules
from resift.external.candidates import content_id
from resift.ranking.evidence import mean_and_deviation
from resift.ranking.fusion.weighted import NAME as WEIGHTED
from resift.types import JsonMapping, JsonValue
from resift.validation import check_arguments

SearchSpace = Mapping[str, Sequence[JsonValue]]
"""Option -> values to try. `weight:1` is the weight of the second store, `boost:0` that of the first rule."""

RANDOM_SHARE = 0.4  # fraction of the budget spent on random settings before the best of them are improved

STARTS = 3

DENSE_SHIFTS = (-0.4, -0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4)
RERANKER_SHIFTS = (-0.6, -0.4, -0.2, -0.1, 0.0, 0.1, 0.2, 0.4)  # offsets from the fitted weights of the default ranking

SMALL_RECORDING = 100  # with fewer judged queries, only shifts of the fitted weights are tuned, by cross-validation

MIN_RATED_QUERIES = 10  # with fewer rated queries, the default setting is kept

STEP_COST = 0.1  # minimum total gain for each step away from the default. Moving a hit to rank 1 gains 1.

_RATINGS: Mapping[object, int] = {True: 1, "good": 1, False: 0, "bad": 0}


class TuningResult(NamedTuple):
    """The best setting on the training queries, its value there, and the number of settings tried."""

    best: Setting
    value: float
    tried: int
    history: tuple[tuple[Setting, float], ...]


def search_space(header: Header, *, neighbors: bool = False) -> SearchSpace:
    """Return the values to try for each option. Set `neighbors` if the recording contains nearest neighbors."""
    ratios = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
    space: dict[str, Sequence[JsonValue]] = {
        "method": (WEIGHTED, "rrf", "linear"),
        "dense_shift": DENSE_SHIFTS,
        "k_param": (1.0, 5.0, 10.0, 20.0, 40.0, 60.0, 100.0, 200.0),
        # Only the ratios between weights matter, so the weight of the first store is fixed.
        **{f"weight:{i}": ratios for i in range(1, len(header.stores))},
    }
    for i, rule in enumerate(header.rules):
        if not getattr(rule, "values", None):  # A boost with a table of values does not use its weight.
            space[f"boost:{i}"] = tuple(sorted({0.0, 0.05, 0.1, 0.2, 0.3, 0.5, rule.weight}))
    if header.depth:
        depths = [depth for depth in (5, 10, 20, 50, 100) if depth < header.depth]
        space["depth"] = (0, *depths, header.depth)
        space["blend"] = (None, "promote", "z-score", "rank")
        space["blend_weight"] = (None, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9)
        space["reranker_shift"] = RERANKER_SHIFTS
        space["temperature"] = (0.25, 0.5, 0.75, 1.0, 1.5, 2.5)
        if neighbors:
            space["neighbors"] = (0.0, 0.25, 0.5, 0.75)
    return space


def tune(
    recording: Recording,
    *,
    measure: str = "nDCG@10",
    budget: int = 200,
    seed: int = 1,
    start: Setting | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> TuningResult:
    """Search for the best setting. The same arguments always give the same result.

    Tries random settings, then improves the best of them one option at a time. The starting setting is kept unless the
    best one beats it by more than the standard error of the difference.
    """
    if budget < 1:
        raise InputError(f"budget is {budget}; it must be 1 or more.")
    header = recording.header
    space = search_space(header, neighbors=any(query.neighbors for query in recording.queries))
    trials = _Trials(recording, measure, budget=budget, progress=progress)
    # The guard is not tuned, so it is disabled.
    first = replace(start or default_setting(header), guard=False)
    trials.measure(first)
    generator = random.Random(seed)  # noqa: S311 - random search, not cryptography
    while len(trials.values) < max(1, int(budget * RANDOM_SHARE)):
        trials.measure(_make_setting({option: generator.choice(values) for option, values in space.items()}, header))
    for setting in sorted(trials.values, key=lambda setting: -trials.values[setting])[:STARTS]:
        _improve(trials, space, header, setting)
    best = max(trials.values, key=lambda setting: (trials.values[setting], -len(setting.plain())))
    if not trials.is_significant(best, first):
        best = first
    return TuningResult(best, trials.values[best], len(trials.values), tuple(trials.values.items()))


class _Trials:
    """Measures settings on one recording, each of them once, within a budget."""

    def __init__(
        self, recording: Recording, measure: str, *, budget: int, progress: Callable[[int, int], None] | None
    ) -> None:
        self.values: dict[Setting, float] = {}
        self._measure = measure_name(measure)
        self.budget = budget
        self._progress = progress
        self._replay = Replay(recording)
        self._judge = Judge(recording.qrels(), [self._measure])
        cutoff = self._measure.partition("@")[2]
        self._max_hits = int(cutoff) if cutoff else None

    def measure(self, setting: Setting) -> float:
        """Return the mean value of the measure under this setting."""
        if setting not in self.values:
            self.values[setting] = self._quality(setting).mean(self._measure, complete=True)
            if self._progress:
                self._progress(len(self.values), self.budget)
        return self.values[setting]

    def is_significant(self, setting: Setting, base: Setting) -> bool:
        """Return whether a setting beats `base` by more than the standard error of the difference."""
        after, before = (self._quality(each).per_query[self._measure] for each in (setting, base))
        gains = [after.get(query, 0.0) - before.get(query, 0.0) for query in {**after, **before}]
        if len(gains) < 2:
            return False
        mean, deviation = mean_and_deviation(gains)
        return mean > deviation / math.sqrt(len(gains))

    def _quality(self, setting: Setting) -> Quality:
        return self._judge.quality(self._replay.run(setting, max_hits=self._max_hits))


def _improve(trials: _Trials, space: SearchSpace, header: Header, setting: Setting) -> None:
    """Change one option at a time to its best value, until no change helps or the budget is used up."""
    better = True
    while better and len(trials.values) < trials.budget:
        better = False
        for candidate in _change_one_option(space, header, setting):
            if len(trials.values) >= trials.budget and candidate not in trials.values:
                return
            # Ignore rounding errors; otherwise two equal settings would alternate forever.
            if trials.measure(candidate) > trials.measure(setting) + 1e-12:
                setting, better = candidate, True


def _change_one_option(space: SearchSpace, header: Header, setting: Setting) -> Iterator[Setting]:
    weights = setting.weights or (1.0,) * len(header.stores)
    options = {option: getattr(setting, option) for option in Setting.__slots__}
    options |= {f"weight:{i}": weight / weights[0] for i, weight in enumerate(weights) if i}
    options |= {f"boost:{i}": rule.weight for i, rule in enumerate(weigh_rules(header, setting))}
    for option, values in space.items():
        for value in values:
            candidate = _make_setting({**options, option: value}, header)
            if candidate != setting:
                yield candidate


def _make_setting(options: JsonMapping, header: Header) -> Setting:
    """Return a setting. Options without effect get their defaults, so that no setting is tried twice."""
    weights = tuple(float(options.get(f"weight:{i}", 1.0)) for i in range(len(header.stores)))
    declared = tuple(rule.weight for rule in header.rules)
    boosts = tuple(float(options.get(f"boost:{i}", weight)) for i, weight in enumerate(declared))
    values = {name: options[name] for name in Setting.__slots__ if name in options}
    values |= {"depth": int(options.get("depth", 0)), "weights": () if set(weights) == {1.0} else weights}
    setting = Setting(**{**values, "boosts": () if boosts == declared else boosts})
    if setting.depth and setting.method == WEIGHTED:
        # The depth is adaptive; a pipeline file has no option for its maximum.
        setting = replace(setting, depth=default_setting(header).depth)
    default = Setting()
    return replace(setting, **{name: getattr(default, name) for name in setting.unused})


def split_by_name(recording: Recording, train: str, test: str) -> tuple[Recording, Recording]:
    """Return the queries of two recorded splits."""
    for name in (train, test):
        if name not in recording.splits:
            raise InputError(f"No split {name!r} in this recording. {did_you_mean(name, recording.splits)}")
    return _split(recording, *([q for q in recording.queries if q.split == name] for name in (train, test)))


def split_by_hash(recording: Recording, held_out: float = 0.5) -> tuple[Recording, Recording]:
    """Hold out a fraction of the queries. A hash of the ids selects them, so the split is always the same."""
    if not 0 < held_out < 1:
        raise InputError(f"The held-out fraction is {held_out}; it must be between 0 and 1.")
    halves: tuple[list[RecordedQuery], list[RecordedQuery]] = ([], [])
    for query in recording.queries:
        digest = hashlib.sha256(query.query.encode("utf-8", "surrogatepass")).digest()
        halves[int.from_bytes(digest[:8], "big") / 2**64 < held_out].append(query)
    return _split(recording, *halves)


def _split(recording: Recording, train: list[RecordedQuery], test: list[RecordedQuery]) -> tuple[Recording, Recording]:
    shared = {query.query for query in train} & {query.query for query in test}
    if shared:
        raise InputError(
            f"{len(shared)} queries are in both splits, for example {min(shared)!r}. A setting must not be "
            "evaluated on the queries it was tuned on: choose another split for the evaluation."
        )
    if not train or not test:
        raise InputError("One of the splits has no queries; record more, or choose another split.")
    return Recording(recording.header, tuple(train)), Recording(recording.header, tuple(test))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickFit:
    """The setting fitted to ratings or judgments, and its held-out gain; `reason` if the default was kept."""

    best: Setting
    questions: int
    good: int
    bad: int
    gain: float = 0.0
    error: float = 0.0
    reason: str = ""


@check_arguments
def read_clicks(path: Path | str) -> Collection:
    """Read ratings from JSONL lines with "question", "id" and "good". The last rating of a hit counts."""
    path = Path(path)
    queries: dict[str, str] = {}
    ratings: dict[str, dict[str, int]] = {}
    for line, row in json_rows(path, expected='lines like {"question": "…", "id": "…", "good": true}'):
        question, id, good = (row.get(name) for name in ("question", "id", "good"))
        has_texts = isinstance(question, str) and question.strip() and isinstance(id, str) and id
        if not has_texts or not isinstance(good, bool | str) or good not in _RATINGS:
            message = '"question" and "id" must be strings, and "good" must be true or false (or "good" or "bad")'
            raise DataFormatError(message, file=path, line=line)
        query = content_id(str(question))
        queries[query] = str(question)
        ratings.setdefault(query, {})[str(id)] = _RATINGS[good]
    return Collection(path, "clicks", queries, ratings)


def fit_clicks(recording: Recording) -> ClickFit:
    """Adjust the fitted weights to user ratings, so that good hits rank above bad ones."""
    return _fit_shifts(recording, lambda run: _rate_run(recording, run))


def fit_judged(recording: Recording, measure: str = "nDCG@10") -> ClickFit:
    """Adjust the fitted weights to a few judged queries."""
    name = measure_name(measure)
    judge = Judge(recording.qrels(), [name])

    def values(run: Run) -> list[float]:
        per_query = judge.quality(run).per_query[name]
        return [per_query.get(query.query, 0.0) for query in recording.queries]

    return _fit_shifts(recording, values)


def _fit_shifts(recording: Recording, measure_run: Callable[[Run], list[float]]) -> ClickFit:
    """Find the shifts of the fitted weights with the largest gain minus the cost of each step.

    The default is kept unless the result beats it on held-out queries by more than the standard error.
    """
    start = replace(default_setting(recording.header), guard=False)
    grades = [grade for query in recording.queries for grade in query.qrels.values()]
    count, good = len(recording.queries), sum(grade > 0 for grade in grades)
    fit = ClickFit(best=start, questions=count, good=good, bad=len(grades) - good)
    if count < MIN_RATED_QUERIES:
        return replace(fit, reason=f"{count} queries are too few; at least {MIN_RATED_QUERIES} are needed")
    gains, steps = weight_gains(recording, start, measure_run)
    best = best_after_cost(gains, steps)
    # Leave-one-out cross-validation: each query is measured with a setting fitted without it.
    held_out = []
    for i in range(count):
        others = {setting: [*row[:i], *row[i + 1 :]] for setting, row in gains.items()}
        held_out.append(gains[best_after_cost(others, steps)][i])
    gain, deviation = mean_and_deviation(held_out)
    fit = replace(fit, gain=gain, error=deviation / math.sqrt(count))
    if best == start:
        return replace(fit, reason="no other setting gains more than it costs")
    if fit.gain <= fit.error:
        return replace(fit, reason="the gain on held-out queries is not larger than its standard error")
    return replace(fit, best=best)


def _rate_run(recording: Recording, run: Run) -> list[float]:
    """Return, for each query, the mean of 1 / log2(rank + 1) over its rated hits. Bad hits count negatively."""
    values = []
    for query in recording.queries:
        ranks = {id: rank for rank, id in enumerate(run[query.query], start=1)}
        rated = [(grade, ranks[id]) for id, grade in query.qrels.items() if id in ranks]
        total = math.fsum((1 if grade else -1) / math.log2(rank + 1) for grade, rank in rated)
        values.append(total / len(query.qrels))
    return values


def weight_gains(
    recording: Recording, start: Setting, measure_run: Callable[[Run], list[float]]
) -> tuple[dict[Setting, list[float]], dict[Setting, int]]:
    """Return the gain of each combination of weight shifts over the start, per query, and its distance in steps."""
    shifts = RERANKER_SHIFTS if recording.header.depth else (0.0,)
    steps = {
        replace(start, dense_shift=dense, reranker_shift=reranker): abs(i - DENSE_SHIFTS.index(0.0))
        + abs(j - shifts.index(0.0))
        for i, dense in enumerate(DENSE_SHIFTS)
        for j, reranker in enumerate(shifts)
    }
    replay = Replay(recording)
    values = {setting: measure_run(replay.run(setting)) for setting in steps}
    gains = {setting: [a - b for a, b in zip(row, values[start], strict=True)] for setting, row in values.items()}
    return gains, steps


def best_after_cost(gains: Mapping[Setting, Sequence[float]], steps: Mapping[Setting, int]) -> Setting:
    """Return the setting with the largest total gain minus the cost of its steps."""
    return max(gains, key=lambda setting: (math.fsum(gains[setting]) - STEP_COST * steps[setting], -steps[setting]))
