"""Cross-encoder reranking: a model reads query and document together, in the native engine or in PyTorch."""

from __future__ import annotations

import asyncio
import copy
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from resift._internal.forking import ForkSafeLock
from resift.deadline import Deadline
from resift.errors import DeadlineExceeded, InputError, ModelLoadError, ModelNotAllowedError
from resift.external.candidates import first_text
from resift.models.loading import Model, ModelFolder, load, model_option
from resift.models.local_models import open_folder
from resift.models.pairs import MAX_WINDOWS, Aggregate, PairModel, PairOptions, Progress
from resift.models.registry import ModelFiles, ModelSpec, builtin_ids, check_kind, locked_spec
from resift.rerankers.rescore import FusesThenScores
from resift.types import Hit, JsonObject, Languages, Scores, check_languages
from resift.validation import check_arguments, check_k, check_list, check_query, option

DEFAULT_MODEL = "cross-encoder/ms-marco-MiniLM-L-12-v2"
ALLOWED_MODELS = frozenset(builtin_ids("cross-encoder"))

PIPELINE_FIRST_PASS, PIPELINE_MAX_WINDOWS = 2, 3
"""Windows of a long text that the default pipeline scores: in the first pass, and at most (docs/how-it-works.md)."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CrossEncoderOptions(ModelFolder):
    """Options of a cross-encoder in a pipeline file."""

    model_name: str = model_option("cross-encoder", default=DEFAULT_MODEL)
    aggregate: Aggregate = option("Function that combines the window scores of a long document.", default="max")
    max_windows: int = option("Maximum number of windows per document.", default=PIPELINE_MAX_WINDOWS, min=1)
    first_pass_windows: int = option(
        "Score this many windows of a long document first, and the rest only if one of them is promising. "
        "Set it to the value of `max_windows` to score all of them.",
        default=PIPELINE_FIRST_PASS,
        min=1,
        aliases=("skim",),
    )


class CrossEncoderReranker(FusesThenScores):
    """Orders results by a cross-encoder's score for each (query, document) pair.

    Raises ValueError for a model that is not allowed, before anything is loaded, and for a model whose output is
    not that of a cross-encoder. Other load failures are logged and leave `_model` None: `rerank` then returns its
    input, and `score` raises, so that a pipeline reports `degraded`. With `lazy`, the first call of `score` loads
    the model, within its deadline.
    """

    Options = CrossEncoderOptions
    name = "cross-encoder"
    pointwise = True  # one pair per run, so a score does not depend on other hits

    @check_arguments
    def __init__(
        self,
        model_name: str = DEFAULT_MODEL,
        *,
        folder: Path | str | None = None,
        aggregate: Aggregate = "max",
        max_windows: int = MAX_WINDOWS,
        first_pass_windows: int | None = None,
        on_progress: Progress | None = None,
        lazy: bool = False,
        skim: int | None = None,
    ) -> None:
        if skim is not None:
            warnings.warn("skim= is now first_pass_windows=", DeprecationWarning, stacklevel=3)
            first_pass_windows = skim
        check_k(max_windows, name="max_windows", min=1)
        check_k(1 if first_pass_windows is None else first_pass_windows, name="first_pass_windows", min=1)
        self.model_name = model_name
        self.on_progress = on_progress
        self.failure = ""
        self._model: PairModel | None = None
        spec = check_kind(model_name, "cross-encoder")
        # Everything that a score depends on, apart from the texts. It is part of the key of a score cache.
        first_pass = "" if first_pass_windows is None else f" {first_pass_windows}"
        self.revision = f"{spec.revision} {aggregate} {max_windows}{first_pass}"
        self.model_digest = spec.model_digest
        self.info = spec.scorer_info(self.name)
        options = PairOptions(aggregate=aggregate, max_windows=max_windows, first_pass_windows=first_pass_windows)
        self._key: ModelKey = (model_name, spec, None if folder is None else str(folder), options)
        self._lazy = lazy
        if not lazy:
            self._load()

    @property
    def loaded_model(self) -> Model | None:
        """The loaded model with its tokenizer and spec, or None if it is not loaded."""
        return None if self._model is None else self._model.model

    def with_instruction(self, instruction: str) -> Self:
        """Return a copy that uses an instruction, if the model is a decoder that follows one; both share the model."""
        if not self.info.supports_instruction:
            return self
        name, spec, folder, options = self._key
        scorer = copy.copy(self)
        scorer._key = (name, spec, folder, replace(options, instruction=instruction))
        scorer._model = None if self._model is None else PairModel(self._model.model, scorer._key[3])
        scorer.revision = f"{self.revision} {instruction}"
        return scorer

    def rerank(self, query: str, results: Sequence[JsonObject], top_k: int = 5) -> list[JsonObject]:
        """Return copies of the best `top_k` results with their logit as `ce_score`; all of them without a model."""
        check_query(query, allow_empty=True)
        rows = check_list(results, "results", "dicts")
        if any(not isinstance(row, Mapping) for row in rows):
            raise InputError("results must contain only dicts with `content` or `title`.")
        check_k(top_k, name="top_k")
        if self._model is None or not rows:
            return rows
        scores = self._model.predict([(query, first_text(row, ("content", "title"))) for row in rows])
        scored = [{**row, "ce_score": float(score)} for row, score in zip(rows, scores, strict=True)]
        # Ties keep the input order, because sorted() is stable even with reverse=True.
        return sorted(scored, key=lambda row: row["ce_score"], reverse=True)[:top_k]

    async def score(
        self, query: str, hits: Sequence[Hit], *, deadline: Deadline, on_progress: Progress | None = None
    ) -> Scores:
        """Return a raw logit per hit, None if not scored in time; DeadlineExceeded if time ends during loading."""
        if self._lazy and self._model is None:
            self._model = _pair_models.get(self._key)
        if self._lazy and self._model is None:
            try:
                await asyncio.wait_for(asyncio.to_thread(self._load), deadline.timeout_s)
            except TimeoutError:
                # The thread keeps running, so that a later call finds the model loaded.
                raise DeadlineExceeded("the deadline passed while the model was loading") from None
        if self._model is None:
            raise ModelLoadError(self.failure)
        progress = on_progress or self.on_progress
        return await self._model.score(query, hits, self.info, deadline=deadline, on_progress=progress)

    def _load(self) -> None:
        try:
            with _lock:
                # A lazy reranker exists for one call, so it reuses a model that an earlier one loaded.
                if not self._lazy or self._key not in _pair_models:
                    _pair_models[self._key] = load_pair_model(self._key)
                self._model = _pair_models[self._key]
        except ModelNotAllowedError:
            raise
        # Without a model, the pipeline still returns a degraded ranking. `score` raises with the reason.
        except Exception as exc:
            self.failure = str(exc)
            log.warning("CrossEncoderReranker failed to load model '%s': %s", self.model_name, exc)


ModelKey = tuple[str, ModelSpec, str | None, PairOptions]
_lock = ForkSafeLock()
_pair_models: dict[ModelKey, PairModel] = {}


def load_pair_model(key: ModelKey) -> PairModel:
    """Load the model of a key and return it with the key's scoring options."""
    model_name, _, folder, options = key
    return PairModel(load(model_name, kind="cross-encoder", folder=folder), options)


class TorchReranker(FusesThenScores):
    """Scores query–document pairs with the unpinned model in a folder, through transformers.

    `device` is a torch device such as "cuda". `instruction` replaces that of a decoder. Raises ModelFileError for a
    folder without a supported reranker, and ModelProbeError for implausible scores unless `probe=False`.
    """

    name = "torch"
    pointwise = True  # one pair per run, so a score does not depend on other hits

    @check_arguments
    def __init__(
        self,
        folder: Path | str,
        *,
        device: str = "cpu",
        instruction: str | None = None,
        max_length: int = 512,
        languages: Languages = ("en",),
        probe: bool = True,
    ) -> None:
        from resift.models import pinning
        from resift.models.hf_folder import read_model_folder

        check_k(max_length, name="max_length", min=16)
        self.folder = open_folder(folder)
        contents = read_model_folder(self.folder, engine="torch")
        spec = replace(
            locked_spec(pinning.lock_model(self.folder, "local/torch", contents)),
            max_length=max_length,
            languages=check_languages(languages),
        )
        self.info = spec.scorer_info(self.name)
        if instruction is not None and not self.info.supports_instruction:
            raise InputError("instruction= requires a decoder whose prompt has one; this model's prompt does not.")
        model = Model(ModelFiles(spec=spec, folder=self.folder, source="local"), device=device)
        self._model = PairModel(model, PairOptions(instruction=instruction))
        self.revision = f"{spec.model_digest} {instruction or ''} {max_length}"
        self.probe: pinning.ProbeReport | None = None
        if probe:
            self.probe = pinning.probe_scores(self.predict, languages=languages)
            self.probe.require_passed(str(self.folder))

    def with_instruction(self, instruction: str) -> Self:
        """Return a copy that uses an instruction, or this reranker if its prompt has none; both share the model."""
        if not self.info.supports_instruction:
            return self
        scorer = copy.copy(self)
        scorer._model = PairModel(self._model.model, PairOptions(instruction=instruction))
        scorer.revision = f"{self.info.model_digest} {instruction} {self.info.max_length}"
        return scorer

    def predict(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return one raw logit per text."""
        return self._model.predict([(query, text) for text in texts])

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one raw logit per hit, or None for hits that were not scored before the deadline."""
        return await self._model.score(query, hits, self.info, deadline=deadline)
