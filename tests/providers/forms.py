"""Requests and responses of each hosted provider, as its documentation describes them.

The fake server uses these forms. They share no code with the client, so that one checks the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from resift.types import JsonMapping, JsonObject, JsonValue

Check = Callable[[JsonValue], bool]
Rows = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The documented request and response of one provider."""

    paths: tuple[str, ...]
    required: Mapping[str, Check]
    optional: Mapping[str, Check] = field(default_factory=dict)
    answer: Callable[[JsonMapping, Rows], JsonValue]
    error: Callable[[str], JsonValue]
    documents: str = "documents"
    cutoff: str = ""
    max_documents: int = 1000
    bearer: bool = False

    def validate(self, body: object) -> tuple[int, str] | None:
        """Return the status and message of the first mistake in a request, or None."""
        if not isinstance(body, dict):
            return 422, "the body is not a JSON object"
        for name in self.required:
            if name not in body:
                return 422, f"field required: {name}"
        for name, value in body.items():
            check = self.required.get(name) or self.optional.get(name)
            if check is None:
                return 422, f"unknown field: {name}"
            if not check(value):
                return 422, f"wrong type or value: {name}"
        documents = body.get(self.documents, ())
        if len(documents) > self.max_documents:
            return 413, f"{len(documents)} documents exceed the limit of {self.max_documents}"
        return None

    def rows(self, body: JsonMapping) -> Rows:
        """Return (index, score), best first, up to the requested cutoff."""
        texts = [_text(document) for document in body.get(self.documents, ())]
        scored = [(i, overlap(body["query"], text)) for i, text in enumerate(texts)]
        scored.sort(key=lambda row: (-row[1], row[0]))
        return scored[: body.get(self.cutoff) or len(scored)]


def overlap(query: str, text: str) -> float:
    """Return the Jaccard similarity of the words of two texts."""
    query_words, text_words = (set(re.findall(r"\w+", part.lower())) for part in (query, text))
    return round(len(query_words & text_words) / (len(query_words | text_words) or 1), 6)


def _text(document: JsonValue) -> str:
    return document if isinstance(document, str) else str(document.get("text", ""))


def _string(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _positive(value: JsonValue) -> bool:
    return _whole(value) and value > 0


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _strings(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _strings_or_texts(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, str) or (isinstance(item, dict) and "text" in item) for item in value)
    )


def _messages(value: object) -> bool:
    roles = ("system", "user", "assistant", "developer", "tool")
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and item.get("role") in roles and "content" in item for item in value)
    )


def _relevance(rows: Rows, **more: JsonValue) -> list[JsonObject]:
    return [{"index": index, "relevance_score": score, **more} for index, score in rows]


def _plain(rows: Rows) -> list[JsonObject]:
    return [{"index": index, "score": score} for index, score in rows]


def _cohere(body: JsonMapping, rows: Rows) -> JsonValue:
    version = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
    return {"id": "00000000-0000-0000-0000-000000000000", "results": _relevance(rows), "meta": version}


def _detail(message: str) -> JsonValue:
    return {"detail": message}


def _message(message: str) -> JsonValue:
    return {"message": message}


def _tei_error(message: str) -> JsonValue:
    return {"error": message, "error_type": "Validation"}


def _openai_error(message: str) -> JsonValue:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


_USAGE = {"total_tokens": 1}

FORMS: Mapping[str, Form] = {
    "voyage": Form(
        paths=("/v1/rerank",),
        required={"query": _string, "documents": _strings, "model": _string},
        optional={"top_k": _positive, "truncation": _flag, "return_documents": _flag},
        answer=lambda body, rows: {"object": "list", "data": _relevance(rows), "model": body["model"], "usage": _USAGE},
        error=_detail,
        cutoff="top_k",
        bearer=True,
    ),
    "cohere": Form(
        paths=("/v2/rerank",),
        required={"model": _string, "query": _string, "documents": _strings},
        optional={"top_n": _positive, "max_tokens_per_doc": _positive},
        answer=_cohere,
        error=_message,
        cutoff="top_n",
        bearer=True,
    ),
    "cohere-v1": Form(
        paths=("/v1/rerank",),
        required={"query": _string, "documents": _strings_or_texts},
        optional={
            "model": _string,
            "top_n": _positive,
            "rank_fields": _strings,
            "return_documents": _flag,
            "max_chunks_per_doc": _positive,
        },
        answer=_cohere,
        error=_message,
        cutoff="top_n",
        bearer=True,
    ),
    "jina": Form(
        paths=("/v1/rerank",),
        required={"model": _string, "query": _string, "documents": _strings_or_texts},
        optional={"top_n": _positive, "return_documents": _flag},
        answer=lambda body, rows: {"model": body["model"], "usage": _USAGE, "results": _relevance(rows)},
        error=_detail,
        cutoff="top_n",
        bearer=True,
    ),
    "mixedbread": Form(
        paths=("/v1/reranking",),
        required={"query": _string, "input": _strings},
        optional={"model": _string, "top_k": _positive, "return_input": _flag},
        answer=lambda body, rows: {
            "usage": _USAGE,
            "model": body.get("model", ""),
            "data": _plain(rows),
            "object": "list",
        },
        error=_detail,
        documents="input",
        cutoff="top_k",
        bearer=True,
    ),
    "tei": Form(
        paths=("/rerank",),
        required={"query": _string, "texts": _strings},
        optional={"truncate": _flag, "raw_scores": _flag, "return_text": _flag},
        answer=lambda body, rows: _plain(rows),
        error=_tei_error,
        documents="texts",
        max_documents=32,
    ),
    "vllm": Form(
        paths=("/rerank", "/v1/rerank", "/v2/rerank"),
        required={"query": _string, "documents": _strings},
        optional={"model": _string, "top_n": _whole},
        answer=lambda body, rows: {
            "id": "rerank-0",
            "model": body.get("model", ""),
            "usage": _USAGE,
            "results": [
                {"index": i, "document": {"text": body["documents"][i]}, "relevance_score": score} for i, score in rows
            ],
        },
        error=_openai_error,
        cutoff="top_n",
    ),
    "infinity": Form(
        paths=("/rerank",),
        required={"query": _string, "documents": _strings},
        optional={"model": _string, "top_n": _positive, "return_documents": _flag, "raw_scores": _flag},
        answer=lambda body, rows: {
            "object": "rerank",
            "results": _relevance(rows, document=None),
            "model": body.get("model", ""),
            "usage": _USAGE,
        },
        error=_openai_error,
        cutoff="top_n",
    ),
    "chat": Form(
        paths=("/v1/chat/completions",),
        required={"model": _string, "messages": _messages},
        optional={
            "temperature": _number,
            "top_p": _number,
            "max_tokens": _positive,
            "max_completion_tokens": _positive,
            "stream": _flag,
            "seed": _whole,
            "n": _positive,
            "stop": lambda value: True,
            "response_format": lambda value: isinstance(value, dict),
        },
        answer=lambda body, rows: {
            "id": "chatcmpl-0",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": ranked_reply(body["messages"])},
                }
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, **_USAGE},
        },
        error=_openai_error,
        documents="",
    ),
}


def ranked_reply(messages: Sequence[JsonMapping]) -> str:
    """Answer a listwise ranking prompt ("Query: …", "[1] …" lines) by word overlap: "[2] > [1]"."""
    text = "\n".join(str(message["content"]) for message in messages if message["role"] == "user")
    query = next(iter(re.findall(r"^Query: (.*)$", text, re.MULTILINE)), "")
    passages = re.findall(r"^\[(\d+)\] (.*)$", text, re.MULTILINE)
    order = sorted(passages, key=lambda passage: (-overlap(query, passage[1]), int(passage[0])))
    return " > ".join(f"[{number}]" for number, _ in order) or "There is nothing to rank."
