"""What a rerank request found, and the form that each API gives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from resift.server.schema import Schema, array, mapping, number, record, text, whole
from resift.types import JsonMapping, JsonObject, JsonValue

Form = Callable[["Answer", list[JsonObject]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One document of an answer."""

    index: int
    score: float
    document: JsonValue = None
    spans: Sequence[JsonMapping] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a rerank request found, before a dialect gives it a form."""

    id: str
    model: str
    rows: Sequence[Row]
    tokens: int = 0
    documents: int = 0
    created: int = 0
    warnings: Sequence[str] = ()


def _usage(answer: Answer) -> dict[str, int]:
    return {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens}


def _meta(answer: Answer, version: str) -> JsonObject:
    # Cohere bills a search unit per hundred documents.
    units = {"search_units": -(-answer.documents // 100)}
    meta: JsonObject = {"api_version": {"version": version}, "billed_units": units}
    if answer.warnings:
        meta["warnings"] = list(answer.warnings)
    return meta


def _warned(answer: Answer, body: JsonObject) -> JsonObject:
    return {**body, "warnings": list(answer.warnings)} if answer.warnings else body


def cohere_form(version: str) -> Form:
    """Return the form of Cohere's answers, of one version."""
    return lambda answer, rows: {"id": answer.id, "results": rows, "meta": _meta(answer, version)}


def jina_form(answer: Answer, rows: list[JsonObject]) -> Any:
    """Return Jina's answer."""
    return _warned(answer, {"model": answer.model, "usage": _usage(answer), "results": rows})


def joined_form(answer: Answer, rows: list[JsonObject]) -> Any:
    """Return what Cohere v1 and Jina clients both understand."""
    return {"id": answer.id, **jina_form(answer, rows), "meta": _meta(answer, "1")}


def voyage_form(answer: Answer, rows: list[JsonObject]) -> Any:
    """Return Voyage's answer."""
    usage = {"total_tokens": answer.tokens}
    return _warned(answer, {"object": "list", "data": rows, "model": answer.model, "usage": usage})


def openai_form(answer: Answer, rows: list[JsonObject]) -> Any:
    """Return the answer of vLLM and infinity."""
    body = {"id": answer.id, "object": "rerank", "created": answer.created, "model": answer.model}
    return _warned(answer, {**body, "usage": _usage(answer), "results": rows})


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How an API writes its answer, and the schema of that for the description of the API."""

    body: Form
    schema: Schema


_ROW = {
    "index": whole(least=0),
    "relevance_score": number(),
    "document": {},
    "relevant_spans": array(mapping()),
}
_RESULTS = array(record(_ROW, required=("index", "relevance_score"), nullable=False))
_USAGE = mapping(whole(least=0))
_COHERE = record({"id": text(), "results": _RESULTS, "meta": mapping()}, required=("id", "results", "meta"))

COHERE_V1 = AnswerForm(cohere_form("1"), _COHERE)
COHERE_V2 = AnswerForm(cohere_form("2"), _COHERE)
JINA = AnswerForm(
    jina_form,
    record(
        {"model": text(), "usage": _USAGE, "results": _RESULTS, "warnings": array(text())},
        required=("model", "usage", "results"),
    ),
)
COHERE_AND_JINA = AnswerForm(
    joined_form,
    record(
        {
            "id": text(), "model": text(), "usage": _USAGE, "results": _RESULTS, "meta": mapping(),
            "warnings": array(text()),
        },
        required=("id", "model", "usage", "results", "meta"),
    ),
)  # fmt: skip
VOYAGE = AnswerForm(
    voyage_form,
    record(
        {"object": text(), "data": _RESULTS, "model": text(), "usage": _USAGE, "warnings": array(text())},
        required=("object", "data", "model", "usage"),
    ),
)
OPENAI = AnswerForm(
    openai_form,
    record(
        {
            "id": text(), "object": text(), "created": whole(), "model": text(), "usage": _USAGE,
            "results": _RESULTS, "warnings": array(text()),
        },
        required=("id", "model", "usage", "results"),
    ),
)  # fmt: skip
TEI = AnswerForm(
    lambda answer, rows: rows,
    array(record({"index": whole(least=0), "score": number(), "text": text()}, required=("index", "score"))),
)
