"""Tune on a click log: impressions and clicks with positions, corrected for position bias.

The propensity of each position is estimated from documents that appeared at different positions for the same query
(intervention harvesting, Agarwal et al., WSDM 2019). Each click is divided by the propensity of its position (Joachims
et al., WSDM 2017).
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from resift._internal.arrays import np
from resift.errors import DataFormatError, InputError, require
from resift.evaluation.measures import bootstrap_interval, randomization_p
from resift.evaluation.readers import Collection, Run, json_rows, read_lines
from resift.evaluation.recording import Recording, Replay, Setting, default_setting
from resift.evaluation.tuning import best_after_cost, split_by_hash, weight_gains
from resift.external.candidates import content_id
from resift.types import JsonMapping, JsonValue
from resift.validation import check_arguments

MIN_QUERIES = 40  # minimum number of queries with a click. Smaller logs are rejected.

MIN_CLICKS = 200
MIN_SHARED_CLICKS = 5  # two positions are compared if each has at least this many clicks on documents shown at both

MIN_PROPENSITY = 0.1
"""Minimum propensity, so that no click counts more than ten times as much as one at the first position."""

MAX_POSITION = 50
MAX_QUERIES = 1000  # maximum number of queries to search. Those with the most clicks are used.

MAX_P = 0.05

_TRUE = {"1", "true", "yes", "1.0"}
_FALSE = {"0", "false", "no", "", "0.0"}
_EXPECTED = 'lines like {"query": "…", "results": ["a", "b"], "clicked": ["b"]}, or a CSV file'
_COLUMNS = ("query", "id", "position", "clicked")

Counts = dict[int, list[int]]  # position -> [impressions, clicks] of one document for one query


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
    """Read a click log. An invalid row raises DataFormatError with file and line.

    A line of JSONL is a result page (`query`, `results`, and `clicked` with ids or 1-based positions) or one impression
    (`query`, `id`, `position`, `clicked`). A row of CSV or TSV is an impression.
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
            raise DataFormatError(str(exc), file=path, line=line) from None
        digest = content_id(query)
        queries[digest] = query
        documents = counts.setdefault(digest, {})
        for id, position, clicked in impressions:
            for count in (documents.setdefault(id, {}).setdefault(position, [0, 0]), totals):
                count[0] += 1
                count[1] += clicked
    return ClickLog(path, queries, counts, *totals)


def _csv_rows(path: Path, suffix: str) -> Iterator[tuple[int, JsonMapping]]:
    reader = csv.reader(read_lines(path), delimiter="\t" if suffix == ".tsv" else ",", strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        missing = [name for name in _COLUMNS if name not in header]
        if missing:
            message = f"missing column {', '.join(missing)}; the header must contain query, id, position, clicked"
            raise DataFormatError(message, file=path, line=1)
        for row in reader:
            if row:
                if len(row) != len(header):
                    message = f"{len(row)} values in {len(header)} columns; quote values that contain commas"
                    raise DataFormatError(message, file=path, line=reader.line_num)
                yield reader.line_num, dict(zip(header, row, strict=True))
    except csv.Error as exc:
        raise DataFormatError(f"not CSV: {exc}", file=path, line=reader.line_num) from None


def _parse_row(row: JsonMapping) -> tuple[str, list[tuple[str, int, bool]]]:
    """Return the query and (id, position, clicked) for each impression. Raises ValueError with a message."""
    query = row.get("query")
    if not isinstance(query, str) or not query.strip():
        raise ValueError('"query" must be a non-empty string')
    if "results" not in row:
        text, click = str(row.get("position")), str(row.get("clicked")).strip().lower()
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f'"position" is {text}; it must be a positive integer, where 1 is the first result')
        if click not in _TRUE | _FALSE:
            raise ValueError(f'"clicked" is {click!r}; it must be true or false, or 1 or 0')
        return query, [(_read_id(row.get("id")), int(text), click in _TRUE)]
    results, clicked = row["results"], row.get("clicked", [])
    if not isinstance(results, list) or not results or not isinstance(clicked, list):
        raise ValueError('"results" must be a list of ids in the order shown, and "clicked" must be a list')
    ids = [_read_id(id) for id in results[:MAX_POSITION]]
    if len(set(ids)) < len(ids):
        raise ValueError('"results" contains an id twice; list each result once')
    positions = set()
    for click in clicked:
        at_position = isinstance(click, int) and not isinstance(click, bool) and click not in results
        if at_position and 1 <= click <= len(results):
            positions.add(int(click))
        elif not at_position and click in results:
            positions.add(results.index(click) + 1)
        else:
            raise ValueError(f'"clicked" contains {click!r}, which is neither an id nor a position in "results"')
    return query, [(id, position, position in positions) for position, id in enumerate(ids, start=1)]


def _read_id(value: JsonValue) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"an id is {value!r}; it must be a string or an integer")
    return str(value)


def estimate_propensities(log: ClickLog) -> dict[int, float]:
    """Return position -> probability that users look there, relative to the first position.

    Positions are compared on documents shown at both for the same query. The logarithms of all ratios are fitted by
    least squares, weighted by their precision. Positions that no chain of comparisons connects to the first are
    omitted.
    """
    require("numpy", extra="eval")
    # Pair of positions -> for each of the two: clicks on shared documents, weighted click rate and its variance.
    shared: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0] * 6)
    for documents in log.counts.values():
        for counts in documents.values():
            for pair in combinations(sorted(p for p in counts if p <= MAX_POSITION), 2):
                views = [counts[position][0] for position in pair]
                weight = views[0] * views[1] / sum(views)  # a click rate from few impressions is unreliable
                for i, position in enumerate(pair):
                    clicks = counts[position][1]
                    for j, value in enumerate((clicks, weight * clicks / views[i], weight**2 * clicks / views[i] ** 2)):
                        shared[pair][3 * i + j] += value
    ratios = {pair: sums for pair, sums in shared.items() if min(sums[0], sums[3]) >= MIN_SHARED_CLICKS}
    connected = {1}
    while reachable := {p for pair in ratios for p in pair if connected & set(pair)} - connected:
        connected |= reachable
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
    """Relevance labels per query and document: clicks divided by propensities, 0 if shown but never clicked."""

    propensities: Mapping[int, float]
    relevance: Mapping[str, Mapping[str, float]]
    queries: Mapping[str, str]
    clicks: int
    impressions: int
    ignored_clicks: int = 0

    def collection(self, file: Path) -> Collection:
        """Return the queries and their clicked documents as a collection for `record`."""
        qrels = {query: {id: int(value > 0) for id, value in row.items()} for query, row in self.relevance.items()}
        return Collection(file, "click-log", self.queries, qrels)


def label_clicks(log: ClickLog) -> ClickLabels:
    """Return relevance labels corrected for position bias. Raises InputError, with counts, if the log is too small."""
    propensities = estimate_propensities(log)
    relevance: dict[str, dict[str, float]] = {}
    query_clicks: dict[str, int] = {}
    for query, documents in log.counts.items():
        values: dict[str, float] = {}
        clicks = 0
        for id, counts in documents.items():
            pairs = [(count, propensities[p]) for p, count in counts.items() if p in propensities]
            views = sum(count[0] for count, _ in pairs)
            if views:
                values[id] = math.fsum(count[1] / propensity for count, propensity in pairs) / views
                clicks += sum(count[1] for count, _ in pairs)
        if clicks:
            relevance[query], query_clicks[query] = values, clicks
    used_clicks = sum(query_clicks.values())
    if len(propensities) < 2:
        moved = sum(len(counts) > 1 for documents in log.counts.values() for counts in documents.values())
        raise InputError(
            f"{log.file}: {log.clicks} clicks, and {moved} documents shown at different positions for the same "
            f"query. Position bias is estimated from such documents: each of two positions needs at least "
            f"{MIN_SHARED_CLICKS} clicks on documents shown at both. Swap adjacent results for a small share "
            "of the traffic, or collect a longer log."
        )
    if len(relevance) < MIN_QUERIES or used_clicks < MIN_CLICKS:
        raise InputError(
            f"{log.file}: {len(relevance)} queries with {used_clicks} clicks are too few to tune on; at "
            f"least {MIN_QUERIES} queries and {MIN_CLICKS} clicks are needed. Collect a longer log, or rate "
            "hits yourself and use --clicks."
        )
    most_clicked = sorted(relevance, key=lambda query: (-query_clicks[query], query))[:MAX_QUERIES]
    return ClickLabels(
        propensities,
        {query: relevance[query] for query in most_clicked},
        {query: log.queries[query] for query in most_clicked},
        clicks=used_clicks,
        impressions=log.impressions,
        ignored_clicks=log.clicks - used_clicks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickLogFit:
    """The setting fitted to a click log, and its gain on held-out queries; `reason` is set if the default was kept."""

    best: Setting
    queries: int
    held_out: int
    gain: float
    interval: tuple[float, float]
    p: float
    reason: str = ""
    propensities: Mapping[int, float] = field(default_factory=dict)


def fit_click_log(recording: Recording, labels: ClickLabels) -> ClickLogFit:
    """Fit the weights on half of the queries; keep them only if a test on the other half gives p <= MAX_P."""
    train, test = split_by_hash(recording)
    start = default_setting(recording.header)
    best = best_after_cost(*weight_gains(train, start, lambda run: _discounted_relevance(train, run, labels)))
    replay = Replay(test)
    after, before = (_discounted_relevance(test, replay.run(setting), labels) for setting in (best, start))
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
        return replace(fit, reason="no other setting gains more than it costs")
    if fit.gain <= 0:
        return replace(fit, best=start, reason="no gain on held-out queries")
    if fit.p > MAX_P:
        return replace(fit, best=start, reason="the gain on held-out queries is not significant")
    return fit


def _discounted_relevance(recording: Recording, run: Run, labels: ClickLabels) -> list[float]:
    """Return each query's relevance, discounted by rank among the documents in the log, as a share of the total."""
    values = []
    for query in recording.queries:
        relevance = labels.relevance[query.query]
        ranks = {id: rank for rank, id in enumerate((id for id in run[query.query] if id in relevance), start=1)}
        total = math.fsum(relevance[id] / math.log2(rank + 1) for id, rank in ranks.items())
        values.append(total / math.fsum(relevance.values()))
    return values
