"""Add models to the lock file: fetch and inspect the files, probe the scores, and pin the digests.

A model with a missing head or the wrong template still returns numbers. Twelve pairs with an obvious order detect it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from resift._internal.arrays import Array
from resift.errors import InputError, ModelNotAllowedError, ModelProbeError
from resift.events import Sink
from resift.models import registry
from resift.models.embedder import embed_tokens
from resift.models.hf_folder import ModelFolder, read_model_folder
from resift.models.known_models import known_models
from resift.models.loading import Model
from resift.models.local_models import open_folder
from resift.models.locate import download_repository
from resift.models.pairs import PairModel, PairOptions
from resift.models.registry import LockedModel, ModelFiles, ModelSpec
from resift.models.tokenizer import split_windows
from resift.models.verify import PinnedFile
from resift.types import Languages, check_languages

PrecisionChoice = Literal["auto", "int8", "fp32"]
Notify = Callable[[str], None]  # callback for progress messages, called with one line per step
MIN_LENGTH = 8  # lower limit of max_length in tokens: a query and a document need a few each


Score = Callable[[str, Sequence[str]], Sequence[float]]
"""Function that takes a query and documents and returns one raw score per document."""

MIN_ORDERED = 7
"""Minimum number of correct comparisons, out of eight, between a relevant and an unrelated document. Random
scores reach it in 3.5 % of cases."""

MIN_SPREAD = 1e-4  # minimum standard deviation of the scores; below it, a model counts as degenerate

MAX_INT8_ERROR = 0.15
"""Maximum difference between int8 and fp32 scores, as a share of the standard deviation of the fp32 scores."""

KNOWN_ANSWER_TOLERANCE = 0.35
"""Known scores were published for fp32 or fp16; int8 scores differ by a few tenths of a logit."""

_TEXTS = json.loads(Path(__file__).with_name("probe_texts.json").read_text(encoding="utf-8"))

PROBES: Mapping[str, Mapping[str, Sequence[str]]] = _TEXTS["probes"]
"""Language -> query -> the relevant document, then two unrelated ones."""

ENGLISH = PROBES["en"]

KNOWN_ANSWERS: Mapping[str, Sequence[tuple[str, str, float]]] = _TEXTS["known_answers"]
"""Model id -> (query, document, raw score), as published with the model."""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The outcome of a probe; `problems` is empty if the model passed."""

    ordered: int
    comparisons: int
    spread: float
    known_answers: int = 0
    problems: tuple[str, ...] = ()
    languages: Mapping[str, bool] = field(default_factory=dict)
    int8_error: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the model may be pinned."""
        return not self.problems

    def require_passed(self, model: str) -> None:
        """Raise ModelProbeError with all problems if there are any."""
        if self.problems:
            raise ModelProbeError(
                f"{model!r} does not pass the probe: {'; '.join(self.problems)}. It is not pinned. "
                "Check that its files are complete; use --no-probe for random weights."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedModel:
    """A newly pinned model, the location of its files, and the probe report (None if not probed)."""

    model: LockedModel
    contents: ModelFolder
    folder: Path
    lock: Path
    probe: ProbeReport | None


def add_model(
    source: str | Path,
    *,
    name: str | None = None,
    revision: str | None = None,
    lock: Path | None = None,
    precision: PrecisionChoice = "auto",
    probe: bool = True,
    languages: Languages | None = None,
    max_length: int | None = None,
    notify: Notify = lambda line: None,
    progress: Sink | None = None,
) -> AddedModel:
    """Pin a model from the hub (`org/name`) or a folder; "auto" is int8 unless its scores differ too much."""
    lock_path = lock or registry.default_lock_path()
    registry.read_lock(lock_path)  # report a damaged lock file before downloading anything
    folder, repo, commit = _get_files(source, revision, progress)
    model_id = registry.check_model_id(name or repo or f"local/{folder.name}")
    if registry.builtin_spec(model_id) is not None:
        raise ModelNotAllowedError(f"{model_id!r} is built in. Choose another name with --name.")
    contents = read_model_folder(folder)
    limit = contents.positions
    if max_length is not None and not MIN_LENGTH <= max_length <= limit:
        raise InputError(f"max_length is {max_length}; this model accepts {MIN_LENGTH} to {limit} tokens.")
    published = known_models().get(repo or model_id)
    model = lock_model(folder, model_id, contents)
    notify(f"{model.kind}, {model.architecture}, {model.parameters / 1e6:.1f} M parameters")
    # A folder below the lock file is stored as a relative path, so that a checkout can be moved.
    base = lock_path.absolute().parent.resolve()
    stored_folder = folder.relative_to(base).as_posix() if folder.is_relative_to(base) else str(folder)
    changes: dict[str, object] = {
        "revision": commit or "",
        "precision": "fp32" if model.engine != "native" else "int8" if precision == "auto" else precision,
        "repo": repo,
        "folder": None if repo else stored_folder,
        "probed": probe,
    }
    if published:
        changes |= {
            "license": published.license,
            "languages": published.languages,
            "max_length": min(model.max_length, published.max_length),
            "query_prefix": model.query_prefix or published.query_prefix,
            "document_prefix": model.document_prefix or published.document_prefix,
        }
    if languages:
        changes["languages"] = check_languages(languages)
    if max_length:
        changes["max_length"] = max_length
    model = msgspec.structs.replace(model, **changes)
    report = None
    if probe:
        model, report = _check_scores(model, folder, auto=precision == "auto", notify=notify)
    registry.write_lock(lock_path, {**registry.read_lock(lock_path), model.id: model})
    return AddedModel(model=model, contents=contents, folder=folder, lock=lock_path, probe=report)


def lock_model(folder: Path, model_id: str, contents: ModelFolder) -> LockedModel:
    """Pin the current files of a model in a folder. Nothing is probed, and no lock file is written."""
    files = []
    for name in contents.files:
        with (folder / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            files.append(PinnedFile(name=name, size=file.tell(), sha256=digest))
    return msgspec.structs.replace(contents.description, id=model_id, files=tuple(files))


def remove_model(model_id: str, *, lock: Path | None = None) -> Path:
    """Remove a model from the lock file and return the lock file's path. Downloads stay in the cache."""
    path = lock or registry.default_lock_path()
    models = registry.read_lock(path)
    if model_id not in models:
        pinned = ", ".join(sorted(models)) or "none"
        raise ModelNotAllowedError(f"{path} does not pin {model_id!r}. Pinned: {pinned}.")
    registry.write_lock(path, {id: model for id, model in models.items() if id != model_id})
    return path


def probe_model(files: ModelFiles) -> ProbeReport:
    """Run the probe on a pinned model, loaded exactly as in production."""
    return _probe(_make_scorer(files), files.spec)


def _probe(score: Score, spec: ModelSpec) -> ProbeReport:
    model_id = spec.hub.repo if spec.hub else spec.id
    return probe_scores(score, model_id=model_id, languages=spec.languages, check_order=spec.kind != "nli")


def _get_files(source: str | Path, revision: str | None, progress: Sink | None) -> tuple[Path, str | None, str | None]:
    """Return the folder with the files and, for a hub model, its repository and commit."""
    text = str(source)
    if isinstance(source, Path) or text.startswith((".", "/", "~")) or Path(text).is_dir():
        if revision is not None:
            raise InputError("A revision applies only to models from the hub; a local folder has none.")
        return open_folder(source), None, None
    repo, _, tagged = text.partition("@")
    registry.check_model_id(repo)
    folder, commit = download_repository(repo, revision or tagged or "main", progress=progress)
    return folder, repo, commit


def _check_scores(model: LockedModel, folder: Path, *, auto: bool, notify: Notify) -> tuple[LockedModel, ProbeReport]:
    scorers = {}
    for precision in ("fp32", "int8") if model.engine == "native" else ("fp32",):
        spec = registry.locked_spec(msgspec.structs.replace(model, precision=precision))
        scorers[precision] = _make_scorer(ModelFiles(spec=spec, folder=folder, source="local"))
    error = None
    if not spec.is_static and model.engine == "native":
        error = compare_precisions(scorers["int8"], scorers["fp32"])
        if auto and error > MAX_INT8_ERROR:
            notify(f"int8 changes scores by up to {error:.0%} of their spread, so the model is pinned as fp32")
            model = msgspec.structs.replace(model, precision="fp32")
        elif error > MAX_INT8_ERROR:
            notify(f"warning: {model.precision} was requested, but int8 changes scores by up to {error:.0%}")
    # The published scores are for full precision.
    report = dataclasses.replace(_probe(scorers["fp32"], spec), int8_error=error)
    report.require_passed(model.id)
    return model, report


def _make_scorer(files: ModelFiles) -> Score:
    """Return a function that scores documents with a model: by its logit, or by the cosine of its embeddings."""
    model = Model(files)
    if files.spec.kind == "bi-encoder":

        def embed(text: str) -> Array:
            ids = model.tokenizer.ids(text) or []
            _, end = split_windows(len(ids), files.spec.max_length - model.tokenizer.template.size)[0]
            return embed_tokens(model, ids[:end])

        def cosines(query: str, documents: Sequence[str]) -> list[float]:
            vector = embed(files.spec.query_prefix + query)
            return [float(vector @ embed(files.spec.document_prefix + document)) for document in documents]

        return cosines
    label = files.spec.entailment_index or 0
    pairs = PairModel(model, PairOptions(read_score=lambda output: float(output.reshape(-1)[label])))
    return lambda query, documents: pairs.predict([(query, document) for document in documents])


def probe_scores(
    score: Score, *, model_id: str = "", languages: Languages = ("en",), check_order: bool = True
) -> ProbeReport:
    """Score the probe pairs and report problems. `check_order` is off for NLI models, which compare statements."""
    ordered = comparisons = 0
    values: list[float] = []
    by_language: dict[str, bool] = {}
    codes = [code for code in PROBES if languages == "any" or code in languages] or ["en"]
    for code in codes:
        correct = total = 0
        for query, documents in PROBES[code].items():
            relevant, *others = score(query, documents)
            values += [relevant, *others]
            correct += sum(relevant > other for other in others)
            total += len(others)
        by_language[code] = correct == total
        # A multilingual model may be weak in one language, so only English or the sole language decides.
        if code == "en" or len(codes) == 1:
            ordered, comparisons = ordered + correct, comparisons + total
    problems = []
    spread = _standard_deviation(values)
    if not all(math.isfinite(value) for value in values):
        problems.append("some scores are NaN or infinite, so its weights are damaged")
    elif spread < MIN_SPREAD:
        problems.append("all scores are the same; the scoring head or its weights are missing")
    elif check_order and comparisons and ordered / comparisons < MIN_ORDERED / 8:
        problems.append(
            f"it ranks unrelated documents above the answer in {comparisons - ordered} of {comparisons} "
            "comparisons; the head is missing, or the pooling or the pair template is wrong"
        )
    known = KNOWN_ANSWERS.get(model_id, ())
    for query, document, expected in known:
        actual = score(query, [document])[0]
        if abs(actual - expected) > KNOWN_ANSWER_TOLERANCE:
            problems.append(f"it scores a known pair {actual:.2f} instead of {expected:.2f}")
    return ProbeReport(ordered, comparisons, spread, len(known), tuple(problems), by_language)


def compare_precisions(int8: Score, fp32: Score) -> float:
    """Return the maximum difference between int8 and fp32 scores, as a share of the fp32 scores' spread."""
    exact: list[float] = []
    error = 0.0
    for query, documents in ENGLISH.items():
        reference, rounded = list(fp32(query, documents)), list(int8(query, documents))
        exact += reference
        error = max(error, *(abs(a - b) for a, b in zip(reference, rounded, strict=True)))
    spread = _standard_deviation(exact)
    return error / spread if spread > 0 else math.inf


def _standard_deviation(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
