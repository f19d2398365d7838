"""Cross-encoder reranking: query and document read together by one model on this machine."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from resift.deadline import Deadline
from resift.errors import InputError, ModelLoadError, ModelNotAllowedError
from resift.external.candidates import first_text
from resift.models.loading import Model, ModelFolder, load, model_option
from resift.models.pairs import MAX_WINDOWS, Aggregate, PairCall, PairModel, PairOptions, Progress
from resift.models.registry import builtin_ids, check_kind
from resift.rerankers.fusing import fuse_then_rescore
from resift.types import Hit, JsonObject, ScorerInfo, Scores
from resift.validation import check_arguments, check_k, check_list, check_query, option

DEFAULT_MODEL = "cross-encoder/ms-marco-MiniLM-L-12-v2"
ALLOWED_MODELS = builtin_ids("cross-encoder")

SKIM, WINDOWS = 2, 3
"""Windows of a long text that the default pipeline reads first, and at most (docs/blending.md)."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CrossEncoderOptions(ModelFolder):
    """What a pipeline file can say of a cross-encoder."""

    model_name: str = model_option("cross-encoder", default=DEFAULT_MODEL)
    aggregate: Aggregate = option("What a long document's windows add up to.", default="max")
    max_windows: int = option("Most windows of one document that are read.", default=WINDOWS, min=1)
    skim: int = option(
        "Read this many windows of a long document first, the others only if one of them is not hopeless. "
        "The value of `max_windows` reads all of them.",
        default=SKIM,
        min=1,
    )


class CrossEncoderReranker:
    """Orders results by a cross-encoder's judgement of each (query, document) pair.

    Raises ValueError for a model that is not allowed, before anything is loaded, and for one whose output is
    not that of a cross-encoder. Any other failure to load is logged and leaves `_model` None: `rerank` then
    returns its input, and `score` raises, so that a pipeline says `degraded`.
    """

    Options = CrossEncoderOptions
    name = "cross-encoder"
    pointwise = True  # one pair per run: a score does not depend on its neighbours

    @check_arguments
    def __init__(
        self,
        model_name: str = DEFAULT_MODEL,
        *,
        folder: Path | str | None = None,
        aggregate: Aggregate = "max",
        max_windows: int = MAX_WINDOWS,
        skim: int | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        self.model_name = model_name
        self.on_progress = on_progress
        self.failure = ""
        self._model: PairModel | None = None
        spec = check_kind(model_name, "cross-encoder")
        # All that a score depends on besides the texts: what a score cache must tell apart.
        self.revision = f"{spec.revision} {aggregate} {max_windows}{'' if skim is None else f' {skim}'}"
        self.model_digest = spec.pin(spec.onnx).sha256
        self.info = spec.scorer_info(self.name)
        options = PairOptions(aggregate=aggregate, max_windows=max_windows, first_pass_windows=skim)
        try:
            self._model = PairModel(load(model_name, kind="cross-encoder", folder=folder), options)
        except ModelNotAllowedError:
            raise
        # Without a model the pipeline still answers, degraded; the reason waits for the first score.
        except Exception as exc:
            self.failure = str(exc)
            log.warning("CrossEncoderReranker failed to load model '%s': %s", model_name, exc)

    @property
    def loaded_model(self) -> Model | None:
        """The loaded model, with its tokenizer and what is known of it; None where it did not load."""
        return None if self._model is None else self._model.model

    def rerank(self, query: str, results: Sequence[JsonObject], top_k: int = 5) -> list[JsonObject]:
        """Return copies of the best top_k results with `ce_score` (raw logit), best first.

        Without a model: all results unchanged, not truncated.
        """
        check_query(query, allow_empty=True)
        rows = check_list(results, "results", "dicts")
        if any(not isinstance(row, Mapping) for row in rows):
            raise InputError("results holds something else than dicts; pass dicts with `content` or `title`.")
        check_k(top_k, name="top_k")
        if self._model is None or not rows:
            return rows
        scores = self._model.predict([(query, first_text(row, ("content", "title"))) for row in rows])
        scored = [{**row, "ce_score": float(score)} for row, score in zip(rows, scores, strict=True)]
        # Equal scores keep the order of the input: sorted() is stable, also in reverse.
        return sorted(scored, key=lambda row: row["ce_score"], reverse=True)[:top_k]

    async def score(
        self, query: str, hits: Sequence[Hit], *, deadline: Deadline, on_progress: Progress | None = None
    ) -> Scores:
        """Return one raw logit per hit; None where the deadline came first."""
        if self._model is None:
            raise ModelLoadError(self.failure)
        texts = [hit.text for hit in hits]
        progress = on_progress or self.on_progress
        call = await self._model.score(query, texts, deadline=deadline, on_progress=progress)
        notes = {hit.id: call.text_notes[hit.text] for hit in hits if hit.text in call.text_notes}
        return replace(scores_of(call, self.info), notes=notes)

    async def fuse(
        self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None
    ) -> list[Hit]:
        """Pool the lists by reciprocal rank and return the best k of the pool by this model."""
        return await fuse_then_rescore(self, per_store, k=k, query=query)


def scores_of(call: PairCall, info: ScorerInfo) -> Scores:
    """Return a call's values as scores that say how many the deadline left out."""
    values = call.result()
    missing = sum(value is None for value in values)
    reason = f"deadline: {len(values) - missing} of {len(values)} hits scored" if missing else None
    return Scores(
        values,
        info.name,
        degraded=missing > 0,
        reason=reason,
        note=call.note,
        tokens=call.tokens,
        scorer=info,
    )
