"""`resift.Index`: one file that finds by words and by meaning, reranks, and says why.

Put together from what stands below: a SQLite store, the readers of files, the default pipeline.
Each method has an async twin, with an `a` before its name, that does the work; the plain one waits for it,
also inside a running loop.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from resift._internal.sync import run_sync, synced
from resift.deadline import Deadline
from resift.errors import InputError, StoreError
from resift.external.candidates import hits_from
from resift.external.records import ID_KEYS, check_text_keys, is_columns, list_documents, no_text
from resift.ingest.opening import open_index
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.scored_search import scorer_of, search_with_scores
from resift.rerankers.probability import Calibration, ScoreFormat
from resift.stores.sqlite import SQLiteStore
from resift.types import Hit, JsonObject, Metadata, Ranking, Where
from resift.validation import check_arguments, check_list, check_path

if TYPE_CHECKING:
    from resift.agent.multi_doc import Writer
    from resift.external.candidates import Candidate, Candidates
    from resift.ingest.indexing import IndexReport, OnProgress

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class IndexStats:
    """What an index holds."""

    path: str
    documents: int
    files: int
    bytes: int
    embedder: str
    dimension: int


class Index:
    """Documents in one file, searched by words and vectors, fused, reranked and explained.

    The first `add` or `add_files` creates a missing file; reading one raises StoreError. A new file remembers
    its embedder: the default one where the extra `local` is installed, none otherwise (then words alone are
    found), or the `embedder` named here. `pipeline` is a YAML file or a `Pipeline` to search with instead of
    the default one. Close it, or use a `with` block.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        embedder: str | None = None,
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

            check_kind(embedder, "bi-encoder")  # a wrong name is reported now, not at the first add
        self._rerank = rerank
        self._pipelines: dict[str, Pipeline] = {}
        self._pipeline = pipeline

    @property
    def store(self) -> SQLiteStore:
        """The store behind the index; raises StoreError while the file does not exist."""
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
        words_only = self._text_only or (
            self._embedder is None and not self.path.exists() and not _models_installed()
        )
        return open_index(self.path, embedder=self._embedder, text_only=words_only, read_only=self._read_only)

    @check_arguments
    async def aadd(
        self,
        documents: Candidates | Candidate,
        *,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Metadata] | None = None,
        text_keys: Sequence[str] | str | None = None,
    ) -> list[str]:
        """Store strings, dicts, Hits, or the rows of a DataFrame, and return their ids.

        A document with the id of a stored one replaces it. A document without an id gets one from its text,
        so adding the same text twice keeps one document. The text of a dict is its title and every other text
        field, joined; `text_keys` names the fields to read instead. Returns after the documents reached the
        disk.
        """
        hits = _documents(documents, ids, metadata, check_text_keys(text_keys))
        await self._open_store(create=True).add(_without_repeats(hits))
        return [hit.id for hit in hits]

    add = synced(aadd)

    @check_arguments
    async def aadd_files(
        self,
        paths: Paths,
        *,
        prune: bool = False,
        progress: bool = False,
        text_keys: Sequence[str] | str | None = None,
    ) -> IndexReport:
        """Bring the index up to date with files and folders; what did not change is not read again.

        One file that cannot be read never stops the others: the report names each. `prune` forgets files that
        are gone, `progress` draws a bar on stderr, and `text_keys` names the fields of records to
        read.
        """
        from resift.ingest.indexing import index_paths
        from resift.ingest.walking import check_paths

        given = [paths] if isinstance(paths, (str, os.PathLike)) else check_list(paths, "paths", "paths")
        report = _progress_bar() if progress else _no_progress
        files = [Path(check_path(path, "A path")) for path in given]
        check_paths(files)
        return await index_paths(
            self._open_store(create=True), files, text_keys=text_keys, prune=prune, progress=report
        )

    add_files = synced(aadd_files)

    @check_arguments
    async def adelete(self, ids: Iterable[str] | str) -> int:
        """Remove documents and return how many were there."""
        return await self.store.delete([ids] if isinstance(ids, str) else ids)

    delete = synced(adelete)

    @check_arguments
    async def aget(self, ids: Iterable[str] | str) -> list[Hit]:
        """Return the documents of these ids that are there, in the order asked for."""
        return await self.store.get([ids] if isinstance(ids, str) else ids)

    get = synced(aget)

    @check_arguments
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
        """Return the best k documents for a question: words and vectors fused, the best reranked, blended.

        `where` keeps only documents with this metadata. Within `deadline_s` it answers with what is there by
        then and says `degraded` and why; it raises only for a mistake of the caller or an unreadable file.

        Scores are the pipeline's own and say nothing by themselves. `scores="probability"` gives each hit the
        probability that its reranker sees, from 0 to 1, by the calibration that ships with the model or by
        `calibration`, a file of `resift calibrate`; the order stays the pipeline's. Hits under `min_score`
        are left out (`cut` keeps them).
        """
        chosen = self.pipeline if pipeline is None else self._pipeline_for(pipeline)
        if scores == "raw" and calibration is None and min_score is None:
            return await chosen.search(query, k=k, where=where, deadline_s=deadline_s)
        return await search_with_scores(
            chosen,
            query,
            k=k,
            where=where,
            deadline_s=deadline_s,
            scores=scores,
            calibration=calibration,
            min_score=min_score,
        )

    search = synced(asearch)

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
        """Answer a question: `answer`, `sources`, `found`, `confidence`, `degraded`, `reason` and more.

        Without a writer (`resift.agent.ChatWriter`) the answer quotes sentences of the sources word for word.
        Where nothing in the index answers, `found` is False and there are no sources.
        """
        from resift.agent.answers import answer_from_ranking, clean_question, not_found
        from resift.agent.multi_doc import MultiDocSynthesizer
        from resift.agent.writers import ExtractiveWriter

        deadline = Deadline.after(deadline_s)
        asked, notes = clean_question(question)
        if not asked:
            return not_found(Ranking(), ["the question is empty"], explain=explain)
        ranking = await self.asearch(asked, k=k, where=where, deadline_s=deadline.timeout_s)
        quoting = ExtractiveWriter(scorer=scorer_of(self.pipeline), embedder=self.store.embedder)
        return await answer_from_ranking(
            asked,
            ranking,
            MultiDocSynthesizer(quoting, writer=writer, max_documents=k),
            embedder=self.store.facts().embedder,
            deadline=deadline,
            notes=notes,
            explain=explain,
        )

    ask = synced(aask)

    @property
    def pipeline(self) -> Pipeline:
        """What `search` asks: the pipeline given, or the default one."""
        return self._pipeline_for(self._pipeline)

    def _pipeline_for(self, asked: str | os.PathLike[str] | Pipeline | None) -> Pipeline:
        if isinstance(asked, Pipeline):
            return asked
        key = "" if asked is None else os.fspath(asked)
        if key not in self._pipelines:
            # Words alone are searched if asked for, even if the file has vectors.
            searched = self.store.text if self._text_only else self.store
            self._pipelines[key] = (
                Pipeline.default(searched, rerank=self._rerank) if asked is None else Pipeline.from_yaml(key)
            )
        return self._pipelines[key]

    async def astats(self) -> IndexStats:
        """Return how many documents and files the index holds, its size, and its embedder."""
        facts = self.store.facts()
        return IndexStats(
            path=str(self.path),
            documents=await self.store.count(),
            files=len(await self.store.sources()),
            bytes=_size(self.path),
            embedder=facts.embedder,
            dimension=facts.dimension,
        )

    stats = synced(astats)

    async def aclose(self) -> None:
        """Finish running work and close the file."""
        for pipeline in self._pipelines.values():
            await pipeline.close()
        if self._store is not None:
            await self._store.close()

    close = synced(aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __len__(self) -> int:
        # 0 and not an error while there is no file: `if index:` calls this.
        if self._store is None and not self.path.exists():
            return 0
        return run_sync(self.store.count())

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r})"


def _documents(
    given: Candidates | Candidate,
    ids: Sequence[str] | None,
    metadata: Sequence[Metadata] | None,
    text_keys: Sequence[str] | None,
) -> list[Hit]:
    single = isinstance(given, (str, Hit)) or (isinstance(given, Mapping) and not is_columns(given))
    rows: list[Any] = [given] if single else list_documents(given, "documents")
    for name, values in (("ids", ids), ("metadata", metadata)):
        if values is not None and (isinstance(values, str) or len(values) != len(rows)):
            raise InputError(f"{name} must be one per document: {len(rows)} documents were given.")
    hits = []
    for at, row in enumerate(rows):
        [hit] = hits_from([row], name="documents", text_keys=text_keys)
        if not hit.text.strip():
            why = (
                no_text([hit.metadata], text_keys, "text_keys=")
                if isinstance(row, Mapping)
                else "it is empty."
            )
            raise InputError(f"Document {at} has no text, so no search could find it: {why}")
        own = ids[at] if ids is not None else hit.id if _has_id(row) else _id_from(hit.text)
        extra = metadata[at] if metadata is not None else {}
        hits.append(Hit(own, hit.text, source=hit.source, metadata={**hit.metadata, **extra}))
    return hits


def _without_repeats(hits: Sequence[Hit]) -> list[Hit]:
    """Leave out texts that come again without an id: one document, the last metadata, as when added later."""
    last = {hit.id: hit for hit in hits if hit.id == _id_from(hit.text)}
    return [hit for hit in hits if last.get(hit.id, hit) is hit]


def _has_id(row: Candidate) -> bool:
    return isinstance(row, Hit) or (isinstance(row, Mapping) and any(row.get(key) for key in ID_KEYS))


def _id_from(text: str) -> str:
    """Name a text by its content: the same text is the same document."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _models_installed() -> bool:
    from importlib.util import find_spec

    return all(find_spec(name) for name in ("numpy", "tokenizers"))


def _no_progress(_done: int, _total: int) -> None:
    return


def _progress_bar() -> OnProgress:
    """Return a callback that draws how much was read, on stderr, where that is a terminal."""

    def show(done: int, total: int) -> None:
        if sys.stderr.isatty():
            share = done / total if total else 1.0
            end = "\n" if done >= total else ""
            sys.stderr.write(f"\rindexing {'█' * round(24 * share):<24} {share:4.0%}{end}")
            sys.stderr.flush()

    return show


def _size(path: Path) -> int:
    """Return the bytes of an index, those included that SQLite has not moved into the file yet."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
