"""Tune on a click log: impressions and clicks with positions, corrected for position bias.

People click what they see, and they see the top of the page. A click at a low position is therefore worth
more. How much more is estimated from documents that one query showed at different positions (intervention
harvesting, Agarwal et al., WSDM 2019), and each click is divided by that propensity (Joachims et al., WSDM
2017).
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from resift._internal.arrays import np
from resift.errors import DataFormatError, InputError, require
from resift.evaluation.measures import bootstrap_interval, randomization_p
from resift.evaluation.readers import Collection, json_rows, read_lines
from resift.evaluation.recording import Recording, Replay, Setting, default_setting
from resift.evaluation.runner import query_digest
from resift.evaluation.tuning import best_after_cost, gains_over, split_by_hash, weight_steps
from resift.types import JsonMapping, JsonValue
from resift.validation import check_arguments

MIN_QUERIES = 40
"""Queries with a click below which a log is refused."""

MIN_CLICKS = 200
MIN_SHARED_CLICKS = 5
"""Clicks that two positions need on documents shown at both, before they are compared."""

MIN_PROPENSITY = 0.1
"""Smallest propensity: no click counts more than ten times one at the first position."""

MAX_POSITION = 50
MAX_QUERIES = 1000
"""Queries that are searched, those with the most clicks."""

MAX_P = 0.05

_TRUE = {"1", "true", "yes", "1.0"}
_FALSE = {"0", "false", "no", "", "0.0"}
_EXPECTED = 'lines like {"query": "…", "results": ["a", "b"], "clicked": ["b"]}, or a CSV file'
_COLUMNS = ("query", "id", "position", "clicked")

Counts = dict[int, list[int]]
"""Position -> [impressions, clicks] of one document for one query."""


@dataclass(frozen=True, slots=True)
class ClickLog:
    """Impressions and clicks per query, document and position. `queries` maps digests to texts."""

    file: Path
    queries: Mapping[str, str]
    counts: Mapping[str, Mapping[str, Counts]]

    impressions: int
    clicks: int


@check_arguments
def read_click_log(path: Path | str) -> ClickLog:
    """Read a click log; raises DataFormatError with file and line.

    JSONL has a result page per line (`query`, `results`, `clicked`: ids or positions from 1), or an
    impression per line (`query`, `id`, `position`, `clicked`). CSV and TSV files have a row per impression.
    """
    path = Path(path)
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    tabular = bool(suffixes) and suffixes[-1].lower() in (".csv", ".tsv")
    rows = _csv_rows(path, suffixes[-1].lower()) if tabular else json_rows(path, expected=_EXPECTED)
    queries: dict[str, str] = {}
    counts: dict[str, dict[str, Counts]] = {}
    totals = [0, 0]
    for line, row in rows:
        try:
            query, impressions = _parse_row(row)
        except ValueError as exc:
            raise DataFormatError(str(exc), file=str(path), line=line) from None
        digest = query_digest(query)
        queries[digest] = query
        shown = counts.setdefault(digest, {})
        for id, position, clicked in impressions:
            for count in (shown.setdefault(id, {}).setdefault(position, [0, 0]), totals):
                count[0] += 1
                count[1] += clicked
    return ClickLog(path, queries, counts, *totals)


def _csv_rows(path: Path, suffix: str) -> Iterator[tuple[int, JsonMapping]]:
    reader = csv.reader(read_lines(path), delimiter="\t" if suffix == ".tsv" else ",", strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        missing = [name for name in _COLUMNS if name not in header]
        if missing:
            message = f"no column {', '.join(missing)}; the first line must name query, id, position, clicked"
            raise DataFormatError(message, file=str(path), line=1)
        for row in reader:
            if row:
                if len(row) != len(header):
                    message = f"{len(row)} values in {len(header)} columns; quote values that contain commas"
                    raise DataFormatError(message, file=str(path), line=reader.line_num)
                yield reader.line_num, dict(zip(header, row, strict=True))
    except csv.Error as exc:
        raise DataFormatError(f"not CSV: {exc}", file=str(path), line=reader.line_num) from None


def _parse_row(row: JsonMapping) -> tuple[str, list[tuple[str, int, bool]]]:
    """Return the query and (id, position, clicked) of each impression; raise ValueError with a message."""
    query = row.get("query")
    if not isinstance(query, str) or not query.strip():
        raise ValueError('needs "query" as a string that is not empty')
    if "results" not in row:
        text, click = str(row.get("position")), str(row.get("clicked")).strip().lower()
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f'"position" is {text}; it must be an integer from 1, the first result')
        if click not in _TRUE | _FALSE:
            raise ValueError(f'"clicked" is {click!r}; it must be true or false, or 1 or 0')
        return query, [(_read_id(row.get("id")), int(text), click in _TRUE)]
    results, clicked = row["results"], row.get("clicked", [])
    if not isinstance(results, list) or not results or not isinstance(clicked, list):
        raise ValueError('needs "results" as a list of ids in the order shown, and "clicked" as a list')
    ids = [_read_id(id) for id in results[:MAX_POSITION]]
    if len(set(ids)) < len(ids):
        raise ValueError('"results" names an id twice; write each result once')
    positions = set()
    for click in clicked:
        at_position = isinstance(click, int) and not isinstance(click, bool) and click not in results
        if at_position and 1 <= click <= len(results):
            positions.add(int(click))
        elif not at_position and click in results:
            positions.add(results.index(click) + 1)
        else:
            raise ValueError(f'"clicked" has {click!r}, which is neither in "results" nor a position in it')
    return query, [(id, position, position in positions) for position, id in enumerate(ids, start=1)]


def _read_id(value: JsonValue) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"an id is {value!r}; ids are strings or integers")
    return str(value)


def estimate_propensities(log: ClickLog) -> dict[int, float]:
    """Return position -> chance that people look there, relative to the first position.

    Two positions are compared on documents that the same query showed at both. The logarithms of all ratios
    are fitted by least squares, weighted by their precision. Positions without a connection to the first one
    are missing. All values lie between MIN_PROPENSITY and 1.
    """
    require("numpy", extra="eval")
    # Two positions -> sums over shared documents, per position: clicks, weighted click rate, its variance.
    shared: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0] * 6)
    for shown in log.counts.values():
        for places in shown.values():
            for pair in combinations(sorted(p for p in places if p <= MAX_POSITION), 2):
                seen = [places[position][0] for position in pair]
                weight = seen[0] * seen[1] / sum(seen)  # a rate from one impression says little
                for i, position in enumerate(pair):
                    clicks = places[position][1]
                    for j, value in enumerate((clicks, weight * clicks / seen[i], weight**2 * clicks / seen[i] ** 2)):
                        shared[pair][3 * i + j] += value
    ratios = {pair: sums for pair, sums in shared.items() if min(sums[0], sums[3]) >= MIN_SHARED_CLICKS}
    connected = {1}
    while grown := {p for pair in ratios for p in pair if connected & set(pair)} - connected:
        connected |= grown
    positions = sorted(connected)
    if len(positions) == 1:
        return {1: 1.0}
    column = {position: i - 1 for i, position in enumerate(positions)}  # the first position is fixed at 0
    rows, targets = [], []
    for pair, (_, rate, variance, _, other_rate, other_variance) in sorted(ratios.items()):
        if pair[0] not in connected:
            continue
        weight = 1 / math.sqrt(variance / rate**2 + other_variance / other_rate**2)
        row = [0.0] * (len(positions) - 1)
        for position, sign in zip(pair, (1.0, -1.0), strict=True):
            if position != 1:
                row[column[position]] = sign * weight
        rows.append(row)
        targets.append(weight * math.log(rate / other_rate))
    solution = np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)[0]
    logs = {1: 0.0} | {position: float(solution[i]) for position, i in column.items() if i >= 0}
    return {p: min(1.0, max(MIN_PROPENSITY, math.exp(value))) for p, value in logs.items()}


@dataclass(frozen=True, slots=True)
class ClickLabels:
    """Relevance of the documents of each query, from clicks divided by propensities.

    Documents that were shown and never clicked have 0. `ignored_clicks` were at positions without a
    propensity.
    """

    propensities: Mapping[int, float]
    relevance: Mapping[str, Mapping[str, float]]
    queries: Mapping[str, str]
    clicks: int
    impressions: int
    ignored_clicks: int = 0

    def collection(self, file: Path) -> Collection:
        """Return the queries with the clicked documents, for `record`."""
        clicked = {
            query: {id: int(value > 0) for id, value in shown.items()} for query, shown in self.relevance.items()
        }
        return Collection(file, "click-log", self.queries, clicked)


def label_clicks(log: ClickLog) -> ClickLabels:
    """Return corrected relevance; raises InputError with the numbers if the log is too small."""
    propensities = estimate_propensities(log)
    relevance: dict[str, dict[str, float]] = {}
    clicks_of: dict[str, int] = {}
    for query, shown in log.counts.items():
        values: dict[str, float] = {}
        used = 0
        for id, places in shown.items():
            known = [(count, propensities[p]) for p, count in places.items() if p in propensities]
            seen = sum(count[0] for count, _ in known)
            if seen:
                values[id] = math.fsum(count[1] / propensity for count, propensity in known) / seen
                used += sum(count[1] for count, _ in known)
        if used:
            relevance[query], clicks_of[query] = values, used
    used_clicks = sum(clicks_of.values())
    if len(propensities) < 2:
        moved = sum(len(places) > 1 for shown in log.counts.values() for places in shown.values())
        raise InputError(
            f"{log.file}: {log.clicks} clicks, and {moved} documents that one query showed at different "
            f"positions. Position bias is estimated from such documents: two positions need "
            f"{MIN_SHARED_CLICKS} clicks each on documents shown at both. Swap neighboring results for a "
            "small part of the traffic, or collect a longer log."
        )
    if len(relevance) < MIN_QUERIES or used_clicks < MIN_CLICKS:
        raise InputError(
            f"{log.file}: {len(relevance)} queries with {used_clicks} clicks are too few to tune on; at "
            f"least {MIN_QUERIES} queries and {MIN_CLICKS} clicks are needed. Collect a longer log, or rate "
            "hits yourself and use --clicks."
        )
    chosen = sorted(relevance, key=lambda query: (-clicks_of[query], query))[:MAX_QUERIES]
    return ClickLabels(
        propensities,
        {query: relevance[query] for query in chosen},
        {query: log.queries[query] for query in chosen},
        clicks=used_clicks,
        impressions=log.impressions,
        ignored_clicks=log.clicks - used_clicks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickLogFit:
    """The setting that fits a click log, and its gain over the default on held-out queries.

    The gain is in corrected clicks per query, discounted by rank, from 0 to 1. `reason` is set if the default
    stays.
    """

    best: Setting
    queries: int
    held_out: int
    gain: float
    interval: tuple[float, float]
    p: float
    reason: str = ""
    propensities: Mapping[int, float] = field(default_factory=dict)


def fit_click_log(recording: Recording, labels: ClickLabels) -> ClickLogFit:
    """Fit the weights of vector search and reranker on half of the queries, and test them on the other half.

    The default stays unless a paired randomization test on the held-out queries has p <= MAX_P.
    """
    train, test = split_by_hash(recording)
    start = default_setting(recording.header)
    steps = weight_steps(start, recording.header)
    replay = Replay(train)
    gains = gains_over(start, {setting: _values(train, replay.run(setting), labels) for setting in steps})
    best = best_after_cost(gains, steps)
    replay = Replay(test)
    after, before = (_values(test, replay.run(setting), labels) for setting in (best, start))
    differences = [a - b for a, b in zip(after, before, strict=True)]
    fit = ClickLogFit(
        best=best,
        queries=len(recording.queries),
        held_out=len(differences),
        gain=math.fsum(differences) / len(differences),
        interval=bootstrap_interval(differences),
        p=randomization_p(differences),
        propensities=labels.propensities,
    )
    if best == start:
        return replace(fit, reason="no other setting brings more than it costs")
    if fit.gain <= 0:
        return replace(fit, best=start, reason="no gain on held-out queries")
    if fit.p > MAX_P:
        return replace(fit, best=start, reason="the gain on held-out queries is not significant")
    return fit


def _values(recording: Recording, run: Mapping[str, Sequence[str]], labels: ClickLabels) -> list[float]:
    """Return per query the relevance discounted by rank, as a part of all relevance.

    Ranks count only documents that the log showed: nobody could click the others.
    """
    values = []
    for query in recording.queries:
        relevance = labels.relevance[query.query]
        ranks = {id: rank for rank, id in enumerate((id for id in run[query.query] if id in relevance), start=1)}
        total = math.fsum(relevance[id] / math.log2(rank + 1) for id, rank in ranks.items())
        values.append(total / math.fsum(relevance.values()))
    return values
