"""Measure runs with ir-measures (same values as trec_eval), and the reliability of calibrated scores."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral

from resift._internal.arrays import Array, np
from resift.errors import InputError, require
from resift.evaluation.readers import Qrels
from resift.ranking.calibration import Calibrator
from resift.validation import check_arguments, check_list, type_name

DEFAULT_MEASURES = ("nDCG@10", "AP", "RR", "R@100", "P@10")

_NAMES = {
    "ndcg": "nDCG", "map": "AP", "ap": "AP", "mrr": "RR", "rr": "RR", "recall": "R", "r": "R",
    "precision": "P", "p": "P", "rprec": "Rprec", "success": "Success", "bpref": "Bpref",
}  # fmt: skip
_NEEDS_CUTOFF = {"R", "P", "Success"}
_NO_CUTOFF = {"Rprec", "Bpref"}


@dataclass(frozen=True, slots=True)
class Quality:
    """The values of a run per measure and query, and the judged queries missing from the run."""

    per_query: Mapping[str, Mapping[str, float]]
    missing: tuple[str, ...]
    unjudged: tuple[str, ...]

    def mean(self, measure: str, *, complete: bool = False) -> float:
        """Return the mean over answered queries. `complete` counts missing queries as 0, like trec_eval -c."""
        values = self.per_query[measure]
        total = len(values) + (len(self.missing) if complete else 0)
        return math.fsum(values.values()) / total if total else 0.0

    def means(self, *, complete: bool = False) -> dict[str, float]:
        """Return measure -> mean."""
        return {measure: self.mean(measure, complete=complete) for measure in self.per_query}


@check_arguments
def measure_name(text: str) -> str:
    """Return a measure's canonical name: ndcg@10 -> nDCG@10, MAP -> AP, recall@100 -> R@100."""
    match = re.fullmatch(r"([A-Za-z]+)(?:@([1-9]\d{0,4}))?", text.strip())
    name = _NAMES.get(match[1].lower()) if match else None
    cutoff = match[2] if match else None
    if name is None or (name in _NEEDS_CUTOFF and not cutoff) or (name in _NO_CUTOFF and cutoff):
        raise InputError(
            f"Unknown measure {text!r}. Known: nDCG@10 (any cut-off), AP (MAP), RR (MRR), R@100 (recall), "
            "P@10 (precision), Success@5, Rprec, Bpref."
        )
    return f"{name}@{cutoff}" if cutoff else name


class Judge:
    """Measures runs against one set of judgments. Build it once to measure many runs."""

    def __init__(self, qrels: Qrels, measures: Sequence[str] = DEFAULT_MEASURES) -> None:
        if not isinstance(qrels, Mapping) or not qrels:
            problem = "are empty" if isinstance(qrels, Mapping) else f"are {type_name(qrels)}"
            raise InputError(f"The judgments {problem}; pass query -> {{document: grade}}, as returned by read_qrels.")
        _check_ids(qrels)
        for query, judged in qrels.items():
            grades: Iterable[object] = judged.values() if isinstance(judged, Mapping) else [None]
            if not all(isinstance(grade, Integral) and not isinstance(grade, bool) for grade in grades):
                raise InputError(f"The judgments for query {query!r} must be {{document: integer grade}}.")
            _check_ids(judged)
        names = check_list(measures, "measures", "names such as nDCG@10")
        library = require("ir_measures", extra="eval")
        self.measures = tuple(dict.fromkeys(measure_name(measure) for measure in names))
        if not self.measures:
            raise InputError("The list of measures is empty; pass at least one, for example nDCG@10.")
        self.queries = tuple(qrels)
        # The library's parser uses ast.Num, which was removed in Python 3.14.
        parts = [measure.partition("@") for measure in self.measures]
        parsed = [getattr(library, name) @ int(k) if k else getattr(library, name) for name, _, k in parts]
        # Grades below 0 (spam) count as 0, because the library rejects them.
        judgments = {query: {id: max(0, int(grade)) for id, grade in row.items()} for query, row in qrels.items()}
        self._evaluator = library.evaluator(parsed, judgments)
        self._names = {measure: str(measure) for measure in parsed}

    def quality(self, run: Mapping[str, Sequence[str]]) -> Quality:
        """Measure a run: query -> document ids, best first."""
        judged = set(self.queries)
        if not isinstance(run, Mapping):
            raise InputError(f"The run is {type_name(run)}; pass query -> ids, best first.")
        for ranked in run.values():
            _check_ids(check_list(ranked, "A ranking of the run", "ids"))
        scored = {
            # Iterate from the end, so that a duplicate id counts at its best rank.
            query: {ids[i]: float(len(ids) - i) for i in reversed(range(len(ids)))}
            for query, ids in run.items()
            if query in judged
        }
        # trec_eval skips queries without documents. Here an empty result list counts as 0.
        answered = [query for query in self.queries if query in scored]
        per_query = {measure: dict.fromkeys(answered, 0.0) for measure in self.measures}
        for metric in self._evaluator.iter_calc({query: ids for query, ids in scored.items() if ids}):
            if scored.get(metric.query_id):
                per_query[self._names[metric.measure]][metric.query_id] = float(metric.value)
        missing = tuple(query for query in self.queries if query not in scored)
        return Quality(per_query, missing, tuple(query for query in run if query not in judged))


def _check_ids(ids: Iterable[str]) -> None:
    """Reject ids that are not valid UTF-8, because trec_eval's C code would terminate the process."""
    try:
        text = "".join(ids)
        text.encode("utf-8")
    except (TypeError, UnicodeEncodeError):
        text = "\0"
    if "\0" in text:
        raise InputError(
            "An id cannot be encoded as UTF-8: it contains a lone surrogate or a NUL, or is not a string. "
            "Rename it in the run and in the judgments."
        )


FOLDS, BINS = 5, 10

FitCalibrator = Callable[[Sequence[float], Sequence[bool]], Calibrator]


@dataclass(frozen=True, slots=True)
class Bin:
    """Pairs with a predicted probability from low to high: count, mean prediction and share of relevant pairs."""

    low: float
    high: float
    count: int
    predicted: float
    observed: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """The bins, the expected calibration error (Naeini et al., 2015), Brier score and log loss."""

    bins: tuple[Bin, ...]
    error: float
    brier: float
    log_loss: float
    held_out: bool


def reliability(fit: FitCalibrator, scores: Sequence[float], relevant: Sequence[bool]) -> Reliability:
    """Measure a calibrator by cross-validation, or on all pairs if fewer than two have the same label."""
    labels = np.array(relevant, dtype=bool)
    folds = min(FOLDS, int(labels.sum()), int((~labels).sum()))
    if folds < 2:
        calibrator = fit(scores, relevant)
        predicted = [calibrator.probability(score) for score in scores]
        return measure_reliability(predicted, relevant, held_out=False)
    # Relevant and non-relevant pairs are assigned to folds separately, so that each fold contains both.
    pair_folds = np.zeros(len(labels), dtype=int)
    for members in (np.flatnonzero(labels), np.flatnonzero(~labels)):
        pair_folds[members] = np.arange(len(members)) % folds
    predicted = [0.0] * len(scores)
    for fold in range(folds):
        training = np.flatnonzero(pair_folds != fold).tolist()
        calibrator = fit([scores[i] for i in training], [relevant[i] for i in training])
        for i in np.flatnonzero(pair_folds == fold).tolist():
            predicted[i] = calibrator.probability(scores[i])
    return measure_reliability(predicted, relevant, held_out=True)


def measure_reliability(predicted: Sequence[float], relevant: Sequence[bool], *, held_out: bool) -> Reliability:
    """Compare predicted probabilities with the labels."""
    values, labels = np.array(predicted, dtype=float), np.array(relevant, dtype=bool)
    numbers = np.minimum(BINS - 1, (values * BINS).astype(int))
    bins = []
    for number in np.unique(numbers).tolist():
        members = numbers == number
        means = float(values[members].mean()), float(labels[members].mean())
        bins.append(Bin(number / BINS, (number + 1) / BINS, int(members.sum()), *means))
    return Reliability(
        tuple(bins),
        error=math.fsum(row.count * abs(row.predicted - row.observed) for row in bins) / len(values),
        brier=float(((values - labels) ** 2).mean()),
        log_loss=-float(np.log(np.maximum(1e-15, np.where(labels, values, 1 - values))).mean()),
        held_out=held_out,
    )


SEED = 20090719
ROUNDS = 50_000
EXACT_UP_TO = 16  # up to this many differences, all 2ⁿ sign patterns are enumerated instead of sampled

# Rounds per batch. Batches keep memory use independent of the number of rounds.
_BATCH = 2_000
_NOISE = 1e-12


def randomization_p(differences: Sequence[float], *, rounds: int = ROUNDS, seed: int = SEED) -> float:
    """Return the two-sided p-value of a paired randomization test on the mean (Smucker et al., CIKM 2007).

    If all differences are 0, p is 1. Sampled p-values include the observed pattern, so they are never 0.
    """
    require("numpy", extra="eval")
    values = np.array([value for value in differences if value != 0.0])
    if not len(values):
        return 1.0
    # Sums that should be equal may differ in the last bit.
    observed = abs(float(values.sum())) - _NOISE
    if len(values) <= EXACT_UP_TO:
        # Each value doubles the number of patterns: once with its own sign, once with the opposite sign.
        sums = np.zeros(1)
        for value in values:
            sums = np.concatenate([sums + value, sums - value])
        return float((np.abs(sums) >= observed).mean())
    generator = np.random.default_rng(seed)
    exceeded = 0
    for start in range(0, rounds, _BATCH):
        size = min(_BATCH, rounds - start)
        signs = generator.integers(0, 2, size=(size, len(values)), dtype=np.int8) * 2 - 1
        exceeded += int((np.abs(signs @ values) >= observed).sum())
    return (exceeded + 1) / (rounds + 1)


def format_p(p: float) -> str:
    """Return a p-value with four decimal places, or "<0.0001"."""
    return f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def bootstrap_interval(
    differences: Sequence[float], *, level: float = 0.95, rounds: int = 10_000, seed: int = SEED
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean difference (Efron, 1979)."""
    if not 0 < level < 1 or rounds < 1 or seed < 0:
        raise InputError(f"level {level}, rounds {rounds}, seed {seed}: pass 0 < level < 1, rounds ≥ 1, seed ≥ 0.")
    require("numpy", extra="eval")
    values = np.array(differences, dtype=float)
    if not len(values):
        return 0.0, 0.0
    generator = np.random.default_rng(seed)
    means: list[Array] = []
    for start in range(0, rounds, _BATCH):
        size = min(_BATCH, rounds - start)
        means.append(values[generator.integers(0, len(values), size=(size, len(values)))].mean(axis=1))
    edge = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [edge, 1 - edge])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple tests, in the same order (Holm, 1979)."""
    p = np.array(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, np.arange(len(p), 0, -1) * p[order])
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(scaled)  # never below the corrected value of a smaller p
    return [float(value) for value in corrected]
