"""Rerank in bulk: a question and its candidates become scores and an order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resift.batch.arrow import RecordBatch
from resift.batch.work import (
    NamesColumns,
    each_row,
    kind_of,
    load_model,
    model_digest,
    question_in,
    text_or_none,
    to_batch,
)
from resift.errors import InputError
from resift.external.records import check_text_keys, read_text
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.reranking import rerank
from resift.types import JsonMapping, JsonObject, JsonValue

COLUMNS = {
    "id": "text",
    "order": "places",
    "ids": "texts",
    "scores": "scores",
    "tier": "text",
    "degraded": "flag",
    "reason": "text",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankWork(NamesColumns):
    """Rows with a `query` and `candidates` (texts, or structs with text and an `id`), and perhaps an `id`.

    The text of a struct is its title and every other text field, joined, or the fields named by `text_keys`.

    Each becomes `order` (places of the candidates, best first), `ids` where candidates have them, `scores`
    beside the order (null: not judged), `tier`, `degraded` and `reason`.
    """

    model: str = DEFAULT_MODEL
    k: int | None = None
    query_column: str = "query"
    candidates_column: str = "candidates"
    text_keys: Sequence[str] | str | None = None

    kind = "rerank"

    def describe(self) -> JsonObject:
        """Return the options and the digest of the model."""
        return {
            "k": self.k,
            "columns": list(self.columns),
            "text_keys": list(check_text_keys(self.text_keys) or ()),
            **model_digest(self.model),
        }

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch of answers."""
        load_model(self.model, "cross-encoder")
        return to_batch(each_row(batch.to_pylist(), self._answers), COLUMNS)

    def _answers(self, row: JsonMapping) -> list[JsonObject]:
        query, candidates = question_in(row, self.query_column), row.get(self.candidates_column)
        if not isinstance(candidates, list):
            what = kind_of(candidates)
            raise InputError(f"{self.candidates_column} is {what}; give a list, or an empty one.")
        keys = check_text_keys(self.text_keys)
        texts = [_text(one, at, keys) for at, one in enumerate(candidates)]
        ids = [text_or_none(one.get("id")) if isinstance(one, Mapping) else None for one in candidates]
        ranking = rerank(query, texts, k=self.k, model=self.model)
        order = ranking.indices()
        return [
            {
                "id": text_or_none(row.get("id")),
                "order": order,
                "ids": [ids[at] for at in order] if any(one is not None for one in ids) else None,
                "scores": ranking.scores(),
                "tier": ranking.tier,
                "degraded": ranking.degraded,
                "reason": ranking.reason,
            }
        ]


def _text(candidate: JsonValue, at: int, keys: Sequence[str] | None) -> str:
    if isinstance(candidate, Mapping):
        return read_text(candidate, keys).text
    if candidate is not None and not isinstance(candidate, str):
        raise InputError(f"Candidate {at} is {kind_of(candidate)}; give texts, or structs with a text.")
    return candidate or ""
