"""Data about published models: license, languages, prompts and quality. Their files are not pinned here."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec


class KnownModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published model; `mteb_retrieval` and `nanobeir` are the authors' mean nDCG@10 after reranking, if known."""

    id: str
    kind: str
    license: str
    languages: tuple[str, ...] | str
    max_length: int
    parameters_m: float
    query_prefix: str = ""
    document_prefix: str = ""
    mteb_retrieval: float | None = None
    nanobeir: float | None = None
    note: str = ""

    @property
    def add_command(self) -> str:
        """The command that downloads, checks and pins the model."""
        return f"resift models add {self.id}"


@functools.cache
def known_models() -> dict[str, KnownModel]:
    """Return the models by id, rerankers first."""
    rows = msgspec.json.decode(Path(__file__).with_name("known_models.json").read_bytes())["models"]
    return {model.id: model for model in msgspec.convert(rows, list[KnownModel])}


class DecoderPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt of a decoder reranker, whose score is logit(`positive`) − logit(`negative`) at the last token.

    White space next to a text belongs to the text, because tokenizers merge it with the text's tokens.
    """

    before: str
    query: str
    between: str
    document: str
    after: str
    positive: str
    negative: str | None = None
    instruction_line: str = ""
    instruction: str = ""

    def fixed_parts(self, instruction: str | None = None) -> tuple[str, str, str]:
        """Return the fixed text around query and document; `instruction` replaces the default one."""
        text = self.instruction if instruction is None else instruction
        line = self.instruction_line.replace("{}", text) if text else ""
        return self.before.replace("{instruction}", line), self.between, self.after


@functools.cache
def decoder_prompts() -> Mapping[str, DecoderPrompt]:
    """Return prompts by `model_type` in config.json: Qwen3-Reranker, mxbai-rerank-v2, bge-reranker-v2-gemma."""
    data = Path(__file__).with_name("decoder_prompts.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, DecoderPrompt])
