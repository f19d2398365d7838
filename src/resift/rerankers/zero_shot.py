"""Zero-shot scoring: does the document entail a statement made from the query? By an NLI model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from resift._internal.arrays import Array
from resift.deadline import Deadline
from resift.errors import InputError, ModelLoadError
from resift.models.loading import Lazy, ModelFolder, load, model_option
from resift.models.pairs import PairModel, PairOptions, Progress
from resift.models.registry import check_kind
from resift.models.tokenizer import check_language
from resift.rerankers.cross_encoder import scores_of
from resift.rerankers.fusing import fuse_then_rescore
from resift.types import Hit, Scores
from resift.validation import check_arguments, option

DEFAULT_MODEL = "cross-encoder/nli-deberta-v3-xsmall"
HYPOTHESIS = "This text is about {}."


@dataclass(frozen=True, kw_only=True)
class ZeroShotOptions(ModelFolder):
    """What a pipeline file can say of zero-shot scoring."""

    model_name: str = model_option("nli", default=DEFAULT_MODEL)
    hypothesis: str = option("What a relevant text says; {} stands for the question.", default=HYPOTHESIS)


class ZeroShotReranker:
    """Orders hits by the probability that they entail the hypothesis, in which {} stands for the query.

    Needs no training on queries: the hypothesis says what relevant means. The model is loaded at the first
    use. Raises ValueError for a model that is not allowed and for a hypothesis without {}.
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
            raise InputError(f"The hypothesis {hypothesis!r} has no {{}} for the query.")
        self.model_name = model_name
        self.hypothesis = hypothesis
        self.on_progress = on_progress
        self.info = spec.scorer_info(self.name)
        # The hypothesis decides the scores, so a score cache must tell two of them apart.
        self.revision = f"{spec.revision} {hypothesis}"
        self._folder = folder
        self._loaded = Lazy(self._load)

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one probability of entailment per hit; None where the deadline came first."""
        model = await asyncio.to_thread(self._loaded)
        statement = self.hypothesis.replace("{}", query)
        texts = [hit.text for hit in hits]
        check_language(model.model.tokenizer, self.model_name, query, texts)
        call = await model.score(statement, texts, deadline=deadline, on_progress=self.on_progress)
        return scores_of(call, self.info)

    async def fuse(
        self, per_store: Sequence[Sequence[Hit]], *, k: int, query: str | None = None
    ) -> list[Hit]:
        """Pool the lists by reciprocal rank and return the best k of the pool by this model."""
        return await fuse_then_rescore(self, per_store, k=k, query=query)

    def _load(self) -> PairModel:
        model = load(self.model_name, kind="nli", folder=self._folder)
        at = model.spec.entailment_index
        if at is None or not 0 <= at < model.width:
            raise ModelLoadError(
                f"{self.model_name!r} has {model.width} labels and entailment_index {at}; "
                "say which label is entailment."
            )
        return PairModel(model, PairOptions(document_first=True, read_score=_probability_of(at)))


def _probability_of(label: int) -> Callable[[Array], float]:
    def read(logits: Array) -> float:
        highest = float(logits.max())
        powers = [math.exp(float(logit) - highest) for logit in logits.reshape(-1)]
        return powers[label] / math.fsum(powers)

    return read
