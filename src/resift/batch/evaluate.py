"""Ask in bulk: questions become answers of a pipeline, with their trace, ready to be measured."""

from __future__ import annotations

from dataclasses import dataclass

from resift.batch.arrow import RecordBatch
from resift.batch.pipelines import identity_of_pipeline, opened
from resift.batch.work import NamesColumns, each_row, question_in, text_or_none, to_batch
from resift.types import JsonMapping, JsonObject, to_json

COLUMNS = {
    "id": "text",
    "ids": "texts",
    "scores": "scores",
    "tier": "text",
    "degraded": "flag",
    "reason": "text",
    "trace": "text",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateWork(NamesColumns):
    """Rows with a `query`, and perhaps an `id`. Each becomes `ids` and `scores`, best first, and `trace`.

    `pipeline` is a YAML file. `trace` is the whole ranking as JSON: `Ranking.from_json` reads it back, for
    `why`, `explain` and recordings.
    """

    pipeline: str
    k: int = 100
    query_column: str = "query"

    kind = "eval"

    def describe(self) -> JsonObject:
        """Return the options and the digest of the pipeline and its stores."""
        return {"k": self.k, "query": self.query_column, **identity_of_pipeline(self.pipeline)}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch of answers."""
        return to_batch(each_row(batch.to_pylist(), self._answer), COLUMNS)

    def _answer(self, row: JsonMapping) -> list[JsonObject]:
        query = question_in(row, self.query_column)
        ranking = opened(self.pipeline).rank(query, k=self.k)
        return [
            {
                "id": text_or_none(row.get("id")),
                "ids": ranking.ids,
                "scores": [hit.score for hit in ranking],
                "tier": ranking.tier,
                "degraded": ranking.degraded,
                "reason": ranking.reason,
                "trace": to_json({"query": query, **ranking.to_dict()}),
            }
        ]
