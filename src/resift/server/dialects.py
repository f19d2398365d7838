"""The rerank APIs that are served: what each calls its fields, its answer and its errors. Mostly data.

The words that client and server share (fields, rows, scores) are those of `rerankers/hosted/dialects.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from resift.rerankers.hosted.dialects import DIALECTS, Dialect
from resift.server import error_forms as errors
from resift.server import rerank_answers as answers
from resift.server.error_forms import ErrorForm
from resift.server.rerank_answers import Answer, AnswerForm, Row
from resift.server.schema import (
    RequestSchema,
    Schema,
    array,
    deadline_ms,
    either,
    lenient_flag,
    mapping,
    number,
    one_of,
    record,
    text,
    whole,
)
from resift.types import JsonMapping, JsonObject, JsonValue


@dataclass(frozen=True, slots=True)
class ServedDialect:
    """One API's words, as a server needs them: those that clients use too, and what only a server has.

    `optional` are further fields. `asks_for` is the field that asks for the documents in the answer;
    `documents_by_default` decides where a request leaves it out. `plain_document` returns documents as
    strings, and `objects` accepts them as objects.
    """

    name: str
    api: str
    answer: AnswerForm
    errors: ErrorForm
    optional: Mapping[str, Schema] = field(default_factory=dict)
    _: KW_ONLY
    objects: bool = False
    asks_for: str | None = "return_documents"
    documents_by_default: Callable[[JsonMapping], bool] = lambda request: False
    plain_document: bool = False

    @property
    def words(self) -> Dialect:
        """What clients and servers of this API share."""
        return DIALECTS[self.api]

    def request(
        self, *, most_documents: int, most_chars: int, strict: bool, least_cutoff: int = 1
    ) -> RequestSchema:
        """Return the schema of a request."""
        plain = text(most=most_chars)
        documents = either(plain, mapping()) if self.objects else plain
        fields: dict[str, Schema] = {
            "query": text(least=1, most=most_chars),
            self.words.documents_field: array(documents, least=1, most=most_documents),
            "model": text(most=400),
            "deadline_ms": deadline_ms(),
            **self.optional,
        }
        if self.words.cutoff_field:
            fields[self.words.cutoff_field] = whole(least=least_cutoff)
        if self.asks_for:
            fields[self.asks_for] = lenient_flag()
        return record(fields, required=("query", self.words.documents_field), closed=strict)

    def returns_documents(self, request: JsonMapping) -> bool:
        """Return whether the answer to a checked request holds the documents."""
        wanted = request.get(self.asks_for) if self.asks_for else None
        return self.documents_by_default(request) if wanted is None else bool(wanted)

    def rows(self, answer: Answer) -> list[JsonObject]:
        """Return the rows of an answer in this API's words."""
        return [self._row(row) for row in answer.rows]

    def _row(self, row: Row) -> JsonObject:
        found: JsonObject = {"index": row.index, self.words.score_field: row.score}
        if row.document is not None:
            # Left out, never null: some clients look into it whenever the key is there.
            key = "text" if self.words.documents_field == "texts" else "document"
            found[key] = row.document
        if row.spans is not None:
            found["relevant_spans"] = list(row.spans)
        return found


def _always(request: JsonMapping) -> bool:
    return True


def _unless_cohere(request: JsonMapping) -> bool:
    """Tell clients of Jina and vLLM, which expect the documents, from those of Cohere, which do not."""
    cohere_fields = ("rank_fields", "max_chunks_per_doc")
    named_as_cohere = str(request.get("model") or "").startswith(("rerank-", "cohere"))
    return not named_as_cohere and all(request.get(name) is None for name in cohere_fields)


_SPANS = record(
    {
        "mode": one_of("enabled", "disabled"),
        "threshold": number(least=0, most=1),
        "max_spans": whole(least=1),
    },
    closed=False,
)
_COHERE_V1 = {
    "rank_fields": array(text(), most=100),
    "max_chunks_per_doc": whole(least=1),
    "max_tokens_per_doc": whole(least=1),
}
_LENGTHS = {
    name: whole() for name in ("max_tokens_per_doc", "max_tokens_per_query", "truncate_prompt_tokens")
}

_RAW = {"raw_scores": lenient_flag()}
_COHERE_V2 = {
    "max_tokens_per_doc": whole(least=1),
    "priority": whole(least=0, most=999),
    "relevant_spans": _SPANS,
}
_TEI = {
    "truncate": lenient_flag(),
    "truncation_direction": one_of("left", "Left", "right", "Right"),
    **_RAW,
    "top_n": whole(),
}
_VLLM = {**_LENGTHS, "truncation_side": text(), "use_activation": lenient_flag()}

SERVED: Mapping[str, ServedDialect] = {
    dialect.name: dialect
    for dialect in (
        ServedDialect("cohere-v2", "cohere", answers.COHERE_V2, errors.COHERE, _COHERE_V2, asks_for=None),
        ServedDialect("cohere-v1", "cohere-v1", answers.COHERE_V1, errors.COHERE, _COHERE_V1, objects=True),
        ServedDialect("jina", "jina", answers.JINA, errors.JINA, objects=True, documents_by_default=_always),
        ServedDialect(
            "voyage",
            "voyage",
            answers.VOYAGE,
            errors.VOYAGE,
            {"truncation": lenient_flag()},
            plain_document=True,
        ),
        ServedDialect(
            "tei", "tei", answers.TEI, errors.TEI, _TEI, asks_for="return_text", plain_document=True
        ),
        ServedDialect(
            "vllm",
            "vllm",
            answers.OPENAI,
            errors.OPENAI,
            # vLLM knows no return_documents; its answers always hold them.
            {**_VLLM, "return_documents": lenient_flag()},
            objects=True,
            asks_for=None,
            documents_by_default=_always,
        ),
        ServedDialect("infinity", "infinity", answers.OPENAI, errors.OPENAI, _RAW, plain_document=True),
        ServedDialect(
            "cohere-v1-or-jina",
            "jina",
            answers.COHERE_AND_JINA,
            errors.JOINED,
            {**_COHERE_V1, **_LENGTHS, **_RAW},
            objects=True,
            documents_by_default=_unless_cohere,
        ),
        ServedDialect(
            "jina-or-vllm",
            "jina",
            answers.OPENAI,
            errors.JOINED,
            {**_LENGTHS, **_RAW},
            objects=True,
            documents_by_default=_always,
        ),
    )
}
"""Served dialects by name; the last two answer at the root, where clients of several APIs call."""


def at_rerank(body: object) -> ServedDialect:
    """Return the dialect of a body that was sent to `/rerank`."""
    return SERVED["tei" if isinstance(body, dict) and "texts" in body else "jina-or-vllm"]


def at_v1_rerank(body: object) -> ServedDialect:
    """Return the dialect of a body that was sent to `/v1/rerank`."""
    voyage = isinstance(body, dict) and ("top_k" in body or "truncation" in body)
    return SERVED["voyage" if voyage else "cohere-v1-or-jina"]


Chosen = Callable[[JsonValue], ServedDialect]


def _only(name: str) -> tuple[Chosen, tuple[ServedDialect, ...]]:
    return lambda body: SERVED[name], (SERVED[name],)


ROUTES: Mapping[str, tuple[Chosen, tuple[ServedDialect, ...]]] = {
    "/cohere/v2/rerank": _only("cohere-v2"),
    "/cohere/v1/rerank": _only("cohere-v1"),
    "/jina/v1/rerank": _only("jina"),
    "/voyage/v1/rerank": _only("voyage"),
    "/tei/rerank": _only("tei"),
    "/tei/": _only("tei"),
    "/vllm/rerank": _only("vllm"),
    "/vllm/v1/rerank": _only("vllm"),
    "/vllm/v2/rerank": _only("vllm"),
    "/infinity/rerank": _only("infinity"),
    "/v2/rerank": _only("cohere-v2"),
    "/v1/rerank": (at_v1_rerank, (SERVED["cohere-v1-or-jina"], SERVED["voyage"])),
    "/rerank": (at_rerank, (SERVED["jina-or-vllm"], SERVED["tei"])),
    "/": _only("tei"),
}
"""Where rerank requests arrive, how the dialect of a body is found, and which ones are possible there."""
