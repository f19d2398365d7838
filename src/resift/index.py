"""`resift.Index`: hybrid search, reranking and explanations over one file.

It combines a SQLite store, the file readers and the default pipeline. Each method has an async version whose
name starts with `a`. The plain method waits for the async one, even inside a running event loop.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

from resift._internal.sync import run_sync, sync_method
from resift.deadline import Deadline
from resift.errors import InputError, StoreError
from resift.external.candidates import find_results, has_id, is_columns, list_documents, read_hits
from resift.external.records import check_fields, no_text
from resift.ingest.indexing import open_index
from resift.pipeline.pipeline import Pipeline
from resift.ranking.calibration import drop_below
from resift.rerankers.rescore import Calibration, ScoreFormat, calibrator_for, check_scale, score_and_calibrate
from resift.stores.sqlite import SQLiteStore
from resift.types import Hit, JsonObject, Metadata, Ranking, Where
from resift.validation import check_arguments, check_list, check_path, check_query

if TYPE_CHECKING:
    from resift.agent.multi_doc import Writer
    from resift.external.candidates import Candidate, Candidates
    from resift.ingest.indexing import IndexReport

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class IndexStats:
    """Size and embedder of an index."""

    path: str
    documents: int
    files: int
    bytes: int
    embedder: str
    dimension: int


class Index:
    """Documents in one file, with hybrid search, reranking and explanations.

    If the file does not exist, the first `add` or `add_files` creates it, and reading raises StoreError. A
    new file stores the name of its embedder: `embedder`, or the default one if the extra `local` is
    installed. Without an embedder, only keyword search is available. `reranker` names another cross-encoder,
    built in or pinned by `resift models add`. `pipeline` is a YAML file or a `Pipeline` that replaces the
    default one. Close the index when you are done, or use a `with` block.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        embedder: str | None = None,
        reranker: str | None = None,
        text_only: bool = False,
        pipeline: str | os.PathLike[str] | Pipeline | None = None,
        rerank: bool = True,
        read_only: bool = False,
    ) -> None:
        self.path = Path(check_path(path, "The index file"))
        self._embedder = embedder
        self._text_only = text_only
        self._read_only = read_only
        self._lock = threading.Lock()
        self._store: SQLiteStore | None = None
        if read_only or self.path.exists():
            self._store = self._open()
        elif embedder is not None and not text_only:
            from resift.models.registry import check_kind

            check_kind(embedder, "bi-encoder")  # report an unknown name now, not at the first add
        if reranker is not None:
            from resift.models.registry import check_kind

            if pipeline is not None or not rerank:
                other = "pipeline" if pipeline is not None else "rerank=False"
                raise InputError(f"reranker={reranker!r} conflicts with {other}. Pass only one of them.")
            check_kind(reranker, "cross-encoder")
        self._rerank = rerank
        self._reranker = reranker
        self._pipelines: dict[str, Pipeline] = {}
        self._pipeline = pipeline

    @property
    def store(self) -> SQLiteStore:
        """The store behind the index; raises StoreError if the file does not exist yet."""
        return self._store or self._open_store(create=False)

    def _open_store(self, *, create: bool) -> SQLiteStore:
        with self._lock:
            if self._store is None:
                if not create and not self.path.exists():
                    raise StoreError(
                        f"{self.path} does not exist. Correct the path, or create it by adding documents "
                        "(Index.add, Index.add_files).",
                        store="sqlite",
                    )
                self._store = self._open()
            return self._store

    def _open(self) -> SQLiteStore:
        can_embed = all(find_spec(name) for name in ("numpy", "tokenizers"))
        text_only = self._text_only or (self._embedder is None and not self.path.exists() and not can_embed)
        return open_index(self.path, embedder=self._embedder, text_only=text_only, read_only=self._read_only)

    @check_arguments
    async def aadd(
        self,
        documents: Candidates | Candidate,
        *,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Metadata] | None = None,
        fields: Sequence[str] | Mapping[str, float] | None = None,
        text_keys: Sequence[str] | str | None = None,
    ) -> list[str]:
        """Store strings, dicts, Hits, or the rows of a DataFrame, and return their ids.

        A document replaces a stored one with the same id. The id of a document without one is derived from
        its text, so adding the same text twice keeps one document. The text of a dict is its title and all
        other text fields, joined. `fields` names the fields to read instead, and each is labeled with its
        name; with weights (`{"title": 3, "body": 1}`) the heaviest comes first. `text_keys` joins fields
        without labels. Returns after the documents are on disk.
        """
        hits = _read_documents(documents, ids, metadata, check_fields(fields, text_keys))
        # If a text without an id is repeated, the last document is kept, as if it had been added later.
        last = {hit.id: hit for hit in hits if hit.id == _hash_text(hit.text)}
        await self._open_store(create=True).add([hit for hit in hits if last.get(hit.id, hit) is hit])
        return [hit.id for hit in hits]

    add = sync_method(aadd)

    @check_arguments
    async def aadd_files(
        self, paths: Paths, *, prune: bool = False, progress: bool = False, text_keys: Sequence[str] | str | None = None
    ) -> IndexReport:
        """Update the index from files and folders; unchanged files are not read again.

        The report names the files that could not be read. `prune` removes the documents of files that no
        longer exist, `progress` draws a bar on stderr, and `text_keys` names the text fields of records.
        """
        from resift.ingest.indexing import index_paths
        from resift.ingest.walking import check_paths

        path_list = [paths] if isinstance(paths, (str, os.PathLike)) else check_list(paths, "paths", "paths")
        files = [Path(check_path(path, "A path")) for path in path_list]
        check_paths(files)
        return await index_paths(
            self._open_store(create=True),
            files,
            text_keys=text_keys,
            prune=prune,
            progress=_draw_progress if progress else lambda *_: None,
        )

    add_files = sync_method(aadd_files)

    @check_arguments
    async def adelete(self, ids: Iterable[str] | str) -> int:
        """Delete documents and return how many were deleted."""
        return await self.store.delete([ids] if isinstance(ids, str) else ids)

    delete = sync_method(adelete)

    @check_arguments
    async def aget(self, ids: Iterable[str] | str) -> list[Hit]:
        """Return the documents with these ids, in this order; missing ids are skipped."""
        return await self.store.get([ids] if isinstance(ids, str) else ids)

    get = sync_method(aget)

    async def asearch(
        self,
        query: str,
        *,
        k: int = 10,
        where: Where | None = None,
        deadline_s: float | None = None,
        pipeline: str | os.PathLike[str] | Pipeline | None = None,
        scores: ScoreFormat = "raw",
        calibration: Calibration | None = None,
        min_score: float | None = None,
    ) -> Ranking:
        """Return the best k documents for a query: hybrid search, then reranking and blending.

        `where` keeps only documents with this metadata. At `deadline_s` the search returns the hits it has,
        as a `degraded` ranking with the reason. It raises only for invalid arguments or an unreadable file.

        By default, scores only order the hits. `scores="probability"` replaces them with the probability of
        relevance, from the calibration that ships with the model or from `calibration`, a file written by
        `resift calibrate`; the order stays the same. Hits below `min_score` are moved to `cut`.
        """
        check_query(query)  # before the file is opened, which may not exist yet
        active = self._pipeline_for(self._pipeline if pipeline is None else pipeline)
        if scores == "raw" and calibration is None and min_score is None:
            return await active.search(query, k=k, where=where, deadline_s=deadline_s)
        return await search_with_scores(
            active,
            query,
            k=k,
            where=where,
            deadline_s=deadline_s,
            scores=scores,
            calibration=calibration,
            min_score=min_score,
        )

    search = sync_method(asearch)

    @check_arguments
    async def aask(
        self,
        question: str,
        *,
        k: int = 5,
        where: Where | None = None,
        deadline_s: float | None = None,
        writer: Writer | None = None,
        explain: bool = False,
    ) -> JsonObject:
        """Answer a question from the documents in the index.

        The result has the keys `answer`, `sources`, `found`, `confidence`, `degraded`, `reason` and more.
        Without a writer (`resift.agent.ChatWriter`), the answer quotes sentences from the sources.
        If no document answers the question, `found` is False and `sources` is empty.
        """
        from resift.agent.multi_doc import MultiDocSynthesizer, answer_from_ranking, clean_question, not_found
        from resift.agent.writers import ExtractiveWriter

        deadline = Deadline.after(deadline_s)
        text, notes = clean_question(question)
        if not text:
            return not_found(Ranking(), ["the question is empty"], explain=explain)
        ranking = await self.asearch(text, k=k, where=where, deadline_s=deadline.timeout_s)
        extractive = ExtractiveWriter(scorer=self.pipeline.scorer, embedder=self.store.embedder)
        return await answer_from_ranking(
            text,
            ranking,
            MultiDocSynthesizer(extractive, writer=writer, max_documents=k),
            embedder=self.store.metadata().embedder,
            deadline=deadline,
            notes=notes,
            explain=explain,
        )

    ask = sync_method(aask)

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of `search`: the configured one, or the default."""
        return self._pipeline_for(self._pipeline)

    def _pipeline_for(self, pipeline: str | os.PathLike[str] | Pipeline | None) -> Pipeline:
        if isinstance(pipeline, Pipeline):
            return pipeline
        key = "" if pipeline is None else os.fspath(pipeline)
        if key not in self._pipelines:
            # `text_only` applies even if the file has vectors.
            store = self.store.text if self._text_only else self.store
            self._pipelines[key] = (
                Pipeline.default(store, rerank=self._rerank, reranker=self._reranker)
                if pipeline is None
                else Pipeline.from_yaml(key)
            )
        return self._pipelines[key]

    async def astats(self) -> IndexStats:
        """Return the number of documents and files in the index, its size, and its embedder."""
        metadata = self.store.metadata()
        return IndexStats(
            path=str(self.path),
            documents=await self.store.count(),
            files=len(await self.store.sources()),
            bytes=_size(self.path),
            embedder=metadata.embedder,
            dimension=metadata.dimension,
        )

    stats = sync_method(astats)

    async def aclose(self) -> None:
        """Wait for running work and close the file."""
        for pipeline in self._pipelines.values():
            await pipeline.close()
        if self._store is not None:
            await self._store.close()

    close = sync_method(aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __len__(self) -> int:
        # `if index:` calls this, so a missing file counts as 0 documents instead of raising an error.
        if self._store is None and not self.path.exists():
            return 0
        return run_sync(self.store.count())

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r})"


async def search_with_scores(
    pipeline: Pipeline,
    query: str,
    *,
    k: int | None = None,
    where: Where | None = None,
    deadline_s: float | None = None,
    scores: ScoreFormat = "raw",
    calibration: Calibration | None = None,
    min_score: float | None = None,
) -> Ranking:
    """Search, replace scores with probabilities if requested, and drop hits below `min_score`."""
    as_probability = check_scale(scores, calibration)
    scorer = pipeline.scorer
    if as_probability and scorer is None:
        raise InputError(
            "Probabilities come from a reranker, and this pipeline has none. Add one, or use scores='raw'."
        )
    calibrator = calibrator_for(scorer, calibration) if as_probability and scorer is not None else None
    # The search and the scoring of the remaining hits share one deadline.
    deadline = pipeline.deadline_after(deadline_s)
    ranking = await pipeline.search(query, k=k, where=where, deadline=deadline)
    if scorer is not None and calibrator is not None:
        ranking = await score_and_calibrate(ranking, scorer, calibrator, deadline=deadline)
    return ranking if min_score is None else drop_below(ranking, min_score)


def _read_documents(
    documents: Candidates | Candidate,
    ids: Sequence[str] | None,
    metadata: Sequence[Metadata] | None,
    text_keys: Sequence[str] | None,
) -> list[Hit]:
    single = isinstance(documents, (str, Hit)) or (
        isinstance(documents, Mapping) and not is_columns(documents) and find_results(documents, "documents") is None
    )
    rows: list[object] = [documents] if single else list_documents(documents, "documents")
    for name, values in (("ids", ids), ("metadata", metadata)):
        if values is not None and (isinstance(values, str) or len(values) != len(rows)):
            raise InputError(f"{name} needs one entry per document: {len(rows)} documents were given.")
    hits = []
    for i, row in enumerate(rows):
        [hit] = read_hits([row], name="documents", text_keys=text_keys)
        if not hit.text.strip():
            why = (
                no_text([hit.metadata], text_keys, "fields= or text_keys=")
                if isinstance(row, Mapping)
                else "it is empty."
            )
            raise InputError(f"Document {i} has no text, so it cannot be searched: {why}")
        id = ids[i] if ids is not None else hit.id if has_id(row) else _hash_text(hit.text)
        extra = metadata[i] if metadata is not None else {}
        hits.append(Hit(id, hit.text, source=hit.source, metadata={**hit.metadata, **extra}))
    return hits


def _hash_text(text: str) -> str:
    """Return an id derived from the text; equal texts get the same id."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _draw_progress(done: int, total: int) -> None:
    """Draw a progress bar on stderr if it is a terminal or a notebook."""
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        share = done / total if total else 1.0
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\rindexing {'█' * round(24 * share):<24} {share:4.0%}{end}")
        sys.stderr.flush()


def _size(path: Path) -> int:
    """Return the size of an index in bytes, including its write-ahead log."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
