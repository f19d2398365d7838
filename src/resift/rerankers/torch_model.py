"""Rerankers that the native engine cannot run, through `transformers` and PyTorch (extra `torch`).

A model for sequence classification with one label, and decoders that answer "yes" or "no" at the end of a
prompt. The files come from a folder; no code from the folder runs and no pickle is loaded. Nothing else in
Resift imports torch.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from resift._internal.arrays import np
from resift.deadline import Deadline
from resift.errors import InputError, ModelFileError, ModelLoadError, require
from resift.models.inspection import parse_json
from resift.models.local_models import open_folder
from resift.models.probe import ProbeReport, probe_scores
from resift.rerankers.rescore import FusesThenScores
from resift.types import Hit, JsonObject, Languages, ScorerInfo, Scores
from resift.validation import check_arguments, check_k


@dataclass(frozen=True, slots=True)
class DecoderTemplate:
    """Prompt of a decoder reranker; only `middle` is truncated.

    The score is logit(`positive`) − logit(`negative`) at the last token; without `negative`, the first alone.
    """

    prefix: str
    middle: str
    suffix: str
    positive: str
    negative: str | None
    instruction: str = ""
    optional_instruction: bool = False

    @property
    def takes_instruction(self) -> bool:
        """Whether the prompt has a place for an instruction."""
        return self.optional_instruction or "{i}" in self.middle

    def fill(self, query: str, document: str, instruction: str | None) -> str:
        """Return the part of the prompt that depends on the texts."""
        text = instruction if instruction is not None else self.instruction
        lead = f"instruction: {text}\n" if self.optional_instruction and text else ""
        return lead + self.middle.format(i=text, q=query, d=document)


TEMPLATES = {
    "qwen3": DecoderTemplate(
        prefix="<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
        'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
        "<|im_start|>user\n",
        middle="<Instruct>: {i}\n<Query>: {q}\n<Document>: {d}",
        suffix="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        positive="yes",
        negative="no",
        instruction="Given a web search query, retrieve relevant passages that answer the query",
    ),
    "qwen2": DecoderTemplate(
        prefix="<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
        "<|im_end|>\n<|im_start|>user\n",
        middle="query: {q}\ndocument: {d}",
        suffix="\nYou are a search relevance expert who evaluates how well documents match search queries. "
        "For each query-document pair, carefully analyze the semantic relationship between them, then "
        "provide your binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:<|im_end|>\n"
        "<|im_start|>assistant\n",
        positive="1",
        negative="0",
        optional_instruction=True,
    ),
    "gemma": DecoderTemplate(
        prefix="<bos>",
        middle="A: {q}\nB: {d}",
        suffix="\nGiven a query A and a passage B, determine whether the passage contains an answer to the "
        "query by providing a prediction of either 'Yes' or 'No'.",
        positive="Yes",
        negative=None,
    ),
}
"""Templates by the model type in config.json: Qwen3-Reranker, mxbai-rerank-v2 and bge-reranker-v2-gemma."""


class TorchReranker(FusesThenScores):
    """Scores query–document pairs with a model of a folder through transformers.

    `device` is a torch device such as "cpu", "cuda" or "mps". `instruction` replaces the default one of a
    decoder. Raises ModelFileError for a folder that is not such a reranker, and ModelProbeError if its
    scores look wrong; `probe=False` skips that check, for weights without meaning.
    """

    name = "torch"
    pointwise = True  # one pair per run: a score does not depend on the other hits

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
        config = parse_json("config.json", self._read("config.json"))
        names = config.get("architectures") if isinstance(config, dict) else None
        architecture = str(names[0]) if isinstance(names, list) and names else ""
        model_type = str(config.get("model_type", "")) if isinstance(config, dict) else ""
        self.template: DecoderTemplate | None = None
        if architecture.endswith("ForCausalLM"):
            if model_type not in TEMPLATES:
                known = ", ".join(TEMPLATES)
                raise ModelFileError(
                    f"{self.folder} is a decoder of type {model_type!r}; prompts are known for {known}."
                )
            self.template = TEMPLATES[model_type]
        elif not architecture.endswith("ForSequenceClassification"):
            raise ModelFileError(
                f"{self.folder} has the architecture {architecture or 'none'!r}; a reranker is a model for "
                "sequence classification or a decoder (ForCausalLM)."
            )
        takes_instruction = self.template is not None and self.template.takes_instruction
        if instruction is not None and not takes_instruction:
            raise InputError("instruction= is for decoders whose prompt has one; this model takes none.")
        self.instruction, self.max_length, self.device = instruction, max_length, device
        self._lock = threading.Lock()
        self._load()
        digest = self._digest()
        self.revision = f"{digest} {instruction or ''} {max_length}"
        self.info = ScorerInfo(
            name=self.name,
            score_scale="logit",
            languages=languages,
            max_length=max_length,
            model_digest=digest,
            supports_instruction=takes_instruction,
            pointwise=True,
        )
        self.probe: ProbeReport | None = None
        if probe:
            self.probe = probe_scores(self.predict, languages=languages)
            self.probe.require_passed(str(self.folder))

    def with_instruction(self, instruction: str) -> Self:
        """Return this reranker with an instruction, if its prompt has one; both share the model."""
        if not self.info.supports_instruction:
            return self
        scorer = copy.copy(self)
        scorer.instruction = instruction
        scorer.revision = f"{self.info.model_digest} {instruction} {self.max_length}"
        return scorer

    def predict(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return one raw logit per text."""
        return [score for score in self._score(query, texts, Deadline.never()) if score is not None]

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one raw logit per hit; None if the deadline came first."""
        values = await asyncio.to_thread(self._score, query, [hit.text for hit in hits], deadline)
        missing = sum(value is None for value in values)
        reason = f"deadline: {len(values) - missing} of {len(values)} hits scored" if missing else None
        return Scores(values, self.name, degraded=missing > 0, reason=reason, scorer=self.info)

    def _score(self, query: str, texts: Sequence[str], deadline: Deadline) -> list[float | None]:
        cached: dict[str, float] = {}
        with self._lock, self._torch.inference_mode():
            for text in dict.fromkeys(texts):
                if deadline.expired:
                    break
                cached[text] = self._score_text(query, text)
        return [cached.get(text) for text in texts]

    def _score_text(self, query: str, text: str) -> float:
        if self.template is None:
            encoded = self._tokenizer(
                query, text, truncation="longest_first", max_length=self.max_length, return_tensors="pt"
            ).to(self.device)
            return float(self._model(**encoded).logits[0, 0])
        middle = self._encode(self.template.fill(query, text, self.instruction))
        room = self.max_length - len(self._prefix) - len(self._suffix)
        ids = [*self._prefix, *middle[:room], *self._suffix]
        states = self._model.base_model(
            input_ids=self._torch.tensor([ids], device=self.device), use_cache=False
        ).last_hidden_state
        # Only the difference of two rows of the output embedding is needed, never the whole vocabulary.
        return float(states[0, -1] @ self._direction)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _load(self) -> None:
        self._torch: Any = require("torch", extra="torch")
        transformers: Any = require("transformers", extra="torch")
        kind = "AutoModelForCausalLM" if self.template else "AutoModelForSequenceClassification"
        options: JsonObject = {"local_files_only": True, "trust_remote_code": False}
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(str(self.folder), **options)
            model = getattr(transformers, kind).from_pretrained(str(self.folder), use_safetensors=True, **options)
            self._model = model.to(self.device).eval()
        except (OSError, ValueError, RuntimeError, KeyError, ImportError) as exc:
            raise ModelLoadError(f"{self.folder} does not load with transformers: {exc}") from exc
        if self.template is None:
            labels = int(model.config.num_labels)
            if labels != 1:
                raise ModelFileError(f"{self.folder} has {labels} labels; a reranker has one.")
            return
        self._prefix, self._suffix = (self._encode(text) for text in (self.template.prefix, self.template.suffix))
        if self.max_length <= len(self._prefix) + len(self._suffix):
            raise InputError(
                f"max_length is {self.max_length}; the prompt alone has {len(self._prefix) + len(self._suffix)} tokens."
            )
        rows = self._model.get_output_embeddings().weight.detach()
        self._direction = rows[self._answer(self.template.positive)]
        if self.template.negative is not None:
            self._direction = self._direction - rows[self._answer(self.template.negative)]

    def _answer(self, word: str) -> int:
        ids = self._encode(word)
        if len(ids) != 1:
            raise ModelFileError(f"The answer {word!r} is {len(ids)} tokens of this tokenizer; one is needed.")
        return ids[0]

    def _read(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except OSError as exc:
            raise ModelFileError(f"{self.folder} lacks {name!r}.") from exc

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for path in sorted(self.folder.glob("*.safetensors")):
            data = np.memmap(path, dtype=np.uint8, mode="r")
            digest.update(hashlib.sha256(data.data).digest())
        return digest.hexdigest()
