"""Rerank with an unpinned model folder in PyTorch (extra `torch`), for a GPU or with an instruction."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from resift.deadline import Deadline
from resift.errors import InputError
from resift.models.hf_folder import read_model_folder
from resift.models.loading import Model
from resift.models.local_models import open_folder
from resift.models.pairs import PairModel, PairOptions
from resift.models.pinning import lock_model
from resift.models.probe import ProbeReport, probe_scores
from resift.models.registry import ModelFiles, locked_spec
from resift.rerankers.cross_encoder import scored_in_time
from resift.rerankers.rescore import FusesThenScores
from resift.types import Hit, Languages, Scores, check_languages
from resift.validation import check_arguments, check_k


class TorchReranker(FusesThenScores):
    """Scores query–document pairs with the model in a folder, through transformers.

    `device` is a torch device such as "cpu", "cuda" or "mps". `instruction` replaces a decoder's default
    instruction. Raises ModelFileError for a folder without a supported reranker, and ModelProbeError for
    implausible scores; `probe=False` skips that check, for example for random weights.
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
        check_k(max_length, name="max_length", min=16)
        self.folder = open_folder(folder)
        description = read_model_folder(self.folder, engine="torch").description
        spec = dataclasses.replace(
            locked_spec(lock_model(self.folder, "local/torch", description)),
            max_length=max_length,
            languages=check_languages(languages),
        )
        self.info = spec.scorer_info(self.name)
        if instruction is not None and not self.info.supports_instruction:
            raise InputError("instruction= requires a decoder whose prompt has one; this model's prompt does not.")
        model = Model(ModelFiles(spec=spec, folder=self.folder, source="local"), device=device)
        self._model = PairModel(model, PairOptions(instruction=instruction))
        self.revision = f"{spec.model_digest} {instruction or ''} {max_length}"
        self.probe: ProbeReport | None = None
        if probe:
            self.probe = probe_scores(self.predict, languages=languages)
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
        call = await self._model.score(query, [hit.text for hit in hits], deadline=deadline)
        return scored_in_time(call.result(), self.info, note=call.note, tokens=call.tokens)
