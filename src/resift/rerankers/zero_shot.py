"""Zero-shot scoring: an NLI model estimates whether a document entails a statement built from the query."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from resift._internal.arrays import Array
from resift.deadline import Deadline
from resift.errors import InputError, ModelLoadError
from resift.models.loading import Lazy, ModelFolder, load, model_option
from resift.models.pairs import PairModel, PairOptions, Progress
from resift.models.registry import check_kind
from resift.models.tokenizer import check_language
from resift.rerankers.rescore import FusesThenScores
from resift.types import Hit, Scores
from resift.validation import check_arguments, option

DEFAULT_MODEL = "cross-encoder/nli-deberta-v3-xsmall"
HYPOTHESIS = "This text is about {}."


@dataclass(frozen=True, kw_only=True)
class ZeroShotOptions(ModelFolder):
    """Options of zero-shot scoring in a pipeline file."""

    model_name: str = model_option("nli", default=DEFAULT_MODEL)
    hypothesis: str = option("Statement that a relevant text entails; {} is replaced by the query.", default=HYPOTHESIS)


class ZeroShotReranker(FusesThenScores):
    """Orders hits by the probability that they entail the hypothesis, in which {} is replaced by the query.

    Raises ValueError for a model that is not allowed and for a hypothesis without {}.
    """

    Options = ZeroShotOptions
    name = "zero-shot"
    pointwise = True

    @check_arguments
    def __init__(
        self,
        model_name: str = DEFAULT_MODEL,
        *,
        hypothesis: str = HYPOTHESIS,
        folder: Path | str | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        spec = check_kind(model_name, "nli")
        if "{}" not in hypothesis:
            raise InputError(f"The hypothesis {hypothesis!r} has no {{}} placeholder for the query.")
        self.model_name = model_name
        self.hypothesis = hypothesis
        self.on_progress = on_progress
        self.info = spec.scorer_info(self.name)
        # Scores depend on the hypothesis, so it is part of the key of a score cache.
        self.revision = f"{spec.revision} {hypothesis}"
        self._model = Lazy(lambda: _load_model(model_name, folder))

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one entailment probability per hit, or None for hits that were not scored before the deadline."""
        model = await asyncio.to_thread(self._model)
        statement = self.hypothesis.replace("{}", query)
        check_language(model.model.tokenizer, self.model_name, query, [hit.text for hit in hits])
        return await model.score(statement, hits, self.info, deadline=deadline, on_progress=self.on_progress)


def _load_model(model_name: str, folder: Path | str | None) -> PairModel:
    model = load(model_name, kind="nli", folder=folder)
    label = model.spec.entailment_index
    if label is None or not 0 <= label < model.width:
        raise ModelLoadError(
            f"{model_name!r} has {model.width} labels and entailment_index {label}; "
            "pass the index of the entailment label."
        )

    def softmax_of_label(logits: Array) -> float:
        highest = float(logits.max())
        powers = [math.exp(float(logit) - highest) for logit in logits.reshape(-1)]
        return powers[label] / math.fsum(powers)

    return PairModel(model, PairOptions(document_first=True, read_score=softmax_of_label))
