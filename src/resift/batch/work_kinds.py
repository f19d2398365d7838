"""Kinds of work: embed texts, index documents, rerank candidates, run a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from resift._internal.sync import run_sync
from resift.batch.inputs import OutputRow, describe_type
from resift.batch.shards import ERROR, Row, StopJobError, map_rows, text_or_none, to_batch
from resift.errors import InputError, ResiftError
from resift.evaluation.evaluated_systems import System, find_system
from resift.evaluation.runner import cache_key, code_digest
from resift.external.candidates import content_id
from resift.external.records import ID_KEYS, JOIN, RecordText, check_text_keys, no_text, read_metadata, read_text
from resift.ingest.chunking import ChunkSize, chunks
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder, EmbedKind
from resift.models.loading import load
from resift.models.registry import Kind, find_spec
from resift.pipeline.pipeline import Pipeline
from resift.protocols import CanReopenVectors
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.reranking import rerank
from resift.types import Ranking, to_json

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray
    from pyarrow import RecordBatch

TextKeys = Sequence[str] | str | None

STATUS_COLUMNS = {"tier": "text", "degraded": "boolean", "reason": "text"}


def ranking_status(ranking: Ranking) -> OutputRow:
    """Return the values of the status columns."""
    return {"tier": ranking.tier, "degraded": ranking.degraded, "reason": ranking.reason}


def require_text(row: Row, keys: Sequence[str] | None) -> RecordText:
    """Return the text of a row. Raises InputError with the row's fields if it has no text."""
    text = read_text(row, keys)
    if not text.text.strip():
        fields = {key: value for key, value in row.items() if key != "row" and value is not None}
        raise InputError(f"no text: {no_text([fields], keys, '--text-key')}")
    return text


def require_query(row: Row, column: str) -> str:
    """Return the query of a row. Raises InputError if it is missing or empty."""
    query = row.get(column)
    if not isinstance(query, str) or not query.strip():
        problem = "empty" if isinstance(query, str) else describe_type(query)
        raise InputError(f"{column} is {problem}; it must be a non-empty string.")
    return query


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedWork:
    """Embeds the text of each row. The output is `vector` (float32, unit length) and the row's `id`, if any.

    The text is the title and every other text field of a row, joined, or the fields named by `text_keys`.
    """

    model: str = DEFAULT_EMBEDDER
    text_keys: TextKeys = None
    embed_kind: EmbedKind = "document"

    kind = "embed"
    columns = ()

    def describe(self) -> dict[str, object]:
        """Return the options and the digests of the model."""
        keys = list(check_text_keys(self.text_keys) or ())
        return {"text_keys": keys, "as": self.embed_kind, **_pinned_files(self.model)}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the vectors."""
        rows, keys = batch.to_pylist(), check_text_keys(self.text_keys)
        texts = [text for row in rows if (text := read_text(row, keys).text).strip()]
        # Embed all texts at once, so that the model's threads do not wait for one another.
        vectors = dict(zip(texts, _embed(texts, self.model, self.embed_kind), strict=True))

        def embed_row(row: Row) -> list[OutputRow]:
            return [{"id": text_or_none(row.get("id")), "vector": vectors[require_text(row, keys).text]}]

        return to_batch(map_rows(rows, embed_row), {"id": "text", "vector": "vector"})


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexWork:
    """Splits documents into chunks and embeds them. `load_shards` then writes them to a store.

    The text is that of `EmbedWork`, and all other fields become metadata. Each chunk is a row: `id`, `text`,
    `metadata` (JSON) and `vector`. Its id is the document's id, or else a hash of the content, and a number.
    """

    model: str = DEFAULT_EMBEDDER
    text_keys: TextKeys = None
    words: int = ChunkSize().words
    overlap: int = ChunkSize().overlap

    kind = "index"
    columns = ()

    def describe(self) -> dict[str, object]:
        """Return the options and the digests of the model."""
        keys = list(check_text_keys(self.text_keys) or ())
        return {"text_keys": keys, "words": self.words, "overlap": self.overlap, **_pinned_files(self.model)}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the chunks with their vectors."""
        rows = map_rows(batch.to_pylist(), self.split)
        passages = [row for row in rows if ERROR not in row]
        for row, vector in zip(passages, _embed([str(row["text"]) for row in passages], self.model), strict=True):
            row["vector"] = vector
        return to_batch(rows, INDEX_COLUMNS)

    def split(self, row: Row) -> list[OutputRow]:
        """Return the chunks of a document, without vectors."""
        text = require_text(row, check_text_keys(self.text_keys))
        # In a batch, every row has the keys of all rows, with null for missing values.
        fields = read_metadata(row, text, without=("row",))
        metadata = {key: value for key, value in fields.items() if value is not None}
        id = text_or_none(next((row[key] for key in ID_KEYS if row.get(key) is not None), None))
        if not id:
            # Include the metadata, because the same text at two addresses is two documents.
            content = f"{text.body}\0{to_json(metadata)}" if metadata else text.body
            id = content_id(content)
        pieces = list(chunks(text.body, ChunkSize(self.words, self.overlap)))
        return [
            {
                "id": id if len(pieces) == 1 else f"{id}#{number}",
                "text": f"{text.title.strip()}{JOIN}{piece}" if text.title else piece,
                "metadata": to_json({**metadata, **({"chunk": number} if len(pieces) > 1 else {})}),
            }
            for number, piece in enumerate(pieces, start=1)
        ]


INDEX_COLUMNS = {"id": "text", "text": "text", "metadata": "text", "vector": "vector"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankWork:
    """Reranks the `candidates` of each row, texts or structs with a text field, for its `query`.

    The output is `order` (positions of the candidates, best first), `ids` if candidates have them, `scores` in that
    order (null if not scored), `tier`, `degraded` and `reason`.
    """

    model: str = DEFAULT_MODEL
    k: int | None = None
    query_column: str = "query"
    candidates_column: str = "candidates"
    text_keys: TextKeys = None

    kind = "rerank"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the input must have."""
        return (self.query_column, self.candidates_column)

    def describe(self) -> dict[str, object]:
        """Return the options and the digests of the model."""
        keys = list(check_text_keys(self.text_keys) or ())
        return {"k": self.k, "columns": list(self.columns), "text_keys": keys, **_pinned_files(self.model)}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the rankings."""
        _load_model(self.model, "cross-encoder")
        columns = {"id": "text", "order": "positions", "ids": "texts", "scores": "scores", **STATUS_COLUMNS}
        return to_batch(map_rows(batch.to_pylist(), self._rerank), columns)

    def _rerank(self, row: Row) -> list[OutputRow]:
        query, candidates = require_query(row, self.query_column), row.get(self.candidates_column)
        if not isinstance(candidates, list):
            kind = describe_type(candidates)
            raise InputError(f"{self.candidates_column} is {kind}; pass a list, which may be empty.")
        keys = check_text_keys(self.text_keys)
        texts = [candidate_text(candidate, index, keys) for index, candidate in enumerate(candidates)]
        ids = [text_or_none(each.get("id")) if isinstance(each, Mapping) else None for each in candidates]
        ranking = rerank(query, texts, k=self.k, model=self.model)
        order = ranking.indices()
        return [
            {
                "id": text_or_none(row.get("id")),
                "order": order,
                "ids": [ids[index] for index in order] if any(id is not None for id in ids) else None,
                "scores": ranking.scores(),
                **ranking_status(ranking),
            }
        ]


def candidate_text(candidate: object, index: int, keys: Sequence[str] | None) -> str:
    """Return the text of a candidate, or "" for null."""
    if isinstance(candidate, Mapping):
        return read_text(candidate, keys).text
    if candidate is not None and not isinstance(candidate, str):
        raise InputError(f"Candidate {index} is {describe_type(candidate)}; pass texts or structs with a text field.")
    return candidate or ""


_embedders: dict[str, Embedder] = {}


def _embed(texts: list[str], model: str, kind: EmbedKind = "document") -> list[NDArray[float32]]:
    """Return one vector per text. The embedder is cached per process."""
    if not texts:
        return []
    _load_model(model, "bi-encoder")
    return list(run_sync(_embedders.setdefault(model, Embedder(model)).embed(texts, kind=kind)))


def _load_model(model: str, kind: Kind) -> None:
    """Load a model before the first row. If this fails, the job stops, because every row would fail."""
    try:
        load(model, kind=kind)
    except ResiftError as exc:
        raise StopJobError(str(exc)) from exc


def _pinned_files(model: str) -> dict[str, object]:
    """Return the pinned digests of a model's files, because a job must not resume with other weights."""
    return {"model": model, "files": {pinned.name: pinned.sha256 for pinned in find_spec(model).files}}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateWork:
    """Runs a pipeline file on each `query`; the output is `ids`, `scores` and `trace`, for `Ranking.from_json`."""

    pipeline: str
    k: int = 100
    query_column: str = "query"

    kind = "eval"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the input must have."""
        return (self.query_column,)

    def describe(self) -> dict[str, object]:
        """Return the options and a digest of everything else that could change the results."""
        pipeline, system = _open_pipeline(self.pipeline)
        # An index file counts its writes, including those that are still in the write-ahead log.
        owners = [ref.owner for ref in pipeline.stores]
        writes = [owner.metadata().generation if isinstance(owner, CanReopenVectors) else None for owner in owners]
        key = cache_key(code_digest(), system.identity["file"], writes)
        return {"k": self.k, "query": self.query_column, "pipeline": system.name, "key": key}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the rankings with their traces."""
        columns = {"id": "text", "ids": "texts", "scores": "scores", **STATUS_COLUMNS, "trace": "text"}
        return to_batch(map_rows(batch.to_pylist(), self._search), columns)

    def _search(self, row: Row) -> list[OutputRow]:
        query = require_query(row, self.query_column)
        ranking = _open_pipeline(self.pipeline)[0].rank(query, k=self.k)
        return [
            {
                "id": text_or_none(row.get("id")),
                "ids": ranking.ids,
                "scores": [hit.score for hit in ranking],
                **ranking_status(ranking),
                "trace": to_json({"query": query, **ranking.to_dict()}),
            }
        ]


@cache
def _open_pipeline(file: str) -> tuple[Pipeline, System]:
    """Return the pipeline defined in a file, whose stores must exist. It is cached per process."""
    system = find_system(file)
    if system.needs_corpus:
        raise InputError(f"{file}: pass a pipeline file whose stores exist, each with its path.")
    return system.open(None), system
