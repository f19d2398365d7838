"""Ranking: the final order of the hits, with a trace of the stages that produced it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, overload

from resift._internal.sync import sync_method
from resift.errors import InputError, require
from resift.types.hit import Hit, JsonMapping, JsonObject, Metadata
from resift.types.trace import FusedHits, StageKind, Step, Trace
from resift.validation import check_k, check_list, check_query, check_text, convert

if TYPE_CHECKING:
    from resift.explain import Explanation
    from resift.ranking.context import Passage, PassageReader, PromptContext, TokenCounter
    from resift.text.snippets import Snippet

INTERNAL_METADATA = frozenset({"score", "ce_score", "rerank_score", "rerank_provider", "probability"})


@dataclass(frozen=True, slots=True)
class Ranking(Sequence[Hit]):
    """Hits in their final order, with a trace of the stages that produced it.

    `cut` contains the dropped hits, which `why` can explain. `unscored` lists the ids without a reranker
    score. `failures` has an error message per failed store, and `trace` one record per stage. `warnings` are
    likely mistakes in the request, such as a filter on a key that no document has. `timings` are milliseconds
    per stage. `passages` are the results of the stages `context` and `prune`, and `reader` has the stores
    from which `context` reads neighbors. `input_ids` and `inputs` are the ids and objects of the reranked
    list, in their original order. Comparisons ignore query, timings, inputs and reader.
    """

    hits: tuple[Hit, ...] = ()
    degraded: bool = False
    reason: str | None = None
    tier: str | None = None
    unscored: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict, compare=False)
    cut: tuple[Hit, ...] = ()
    trace: Trace = field(default_factory=Trace)
    query: str = field(default="", compare=False)
    warnings: tuple[str, ...] = ()
    input_ids: tuple[str, ...] = field(default=(), compare=False)
    inputs: Sequence[object] = field(default=(), compare=False)
    passages: tuple[Passage, ...] = ()
    reader: PassageReader | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.hits) is not tuple:
            check_list(self.hits, "hits", "Hits")
        # Copy the lists, because the caller may change them later.
        object.__setattr__(self, "hits", tuple(self.hits))
        object.__setattr__(self, "cut", tuple(self.cut))
        object.__setattr__(self, "unscored", tuple(self.unscored))
        object.__setattr__(self, "warnings", tuple(self.warnings))

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def __repr__(self) -> str:
        # Only ids and scores: this appears in logs and tracebacks, which must not contain documents.
        source = f", by {self.tier}" if self.tier else ""
        degraded = f", degraded: {self.reason}" if self.degraded else ""
        warned = "".join(f", warning: {warning}" for warning in self.warnings)
        count = f"{len(self.hits)} from {len(self.hits) + len(self.cut)}"
        lines = [f"<Ranking of {count}{source}{degraded}{warned}>"]
        for rank, hit in enumerate(self.hits[:3], start=1):
            score = "–" if hit.score is None else f"{hit.score:.4g}"
            lines.append(f"{rank:>3}  {score:>8}  {hit.id!r}")
        if len(self.hits) > 3:
            lines.append(f"     … and {len(self.hits) - 3} more")
        return "\n".join(lines)

    def __str__(self) -> str:
        """Return a readable list of the hits with score, title and a snippet of the text."""
        from resift.explain.flow import hit_body, hit_title
        from resift.text.snippets import clip, snippet

        head = repr(self).partition("\n")[0]
        lines = [head]
        for rank, hit in enumerate(self.hits, start=1):
            score = "–" if hit.score is None else f"{hit.score:.4g}"
            lines.append(f"{rank:>3}  {score:>8}  {clip(hit_title(hit), 80)}")
            text = snippet(hit_body(hit), self.query, length=160).text
            if text and text != hit_title(hit):
                lines.append(f"               {clip(text, 100)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: a table of the hits, and the rank flow below it."""
        from resift.explain.page import notebook_table

        explanation = self.explain()
        return notebook_table(explanation.flow) + explanation._repr_html_()

    def __len__(self) -> int:
        return len(self.hits)

    def __contains__(self, item: object) -> bool:
        if isinstance(item, str):
            return any(hit.id == item for hit in self.hits)
        return item in self.hits

    @property
    def ids(self) -> list[str]:
        """The ids in order."""
        return [hit.id for hit in self.hits]

    def indices(self) -> list[int]:
        """Return the position of each hit in the reranked list, best first: `[2, 0, 1]`.

        Raises InputError for the results of a search, which come from stores and not from a list.
        """
        positions = self._input_positions()
        return [positions[hit.id] for hit in self.hits]

    def scores(self) -> list[float | None]:
        """Return the score of each hit, best first; None for an unscored hit."""
        unscored = frozenset(self.unscored)
        return [None if hit.id in unscored else hit.score for hit in self.hits]

    def original(self, hit: Hit | str) -> Any:
        """Return the object that was passed to `rerank` or `fuse` for a hit or an id.

        Raises InputError if the ranking has no such object. Stored rankings do not contain these objects.
        """
        id = hit.id if isinstance(hit, Hit) else check_text(hit, "The id")
        if self.inputs:
            position = self._input_positions().get(id)
            if position is not None and position < len(self.inputs):
                return self.inputs[position]
        # Fused lists have no single input, but each hit refers to its original object.
        match = next((each for each in (*self.hits, *self.cut) if each.id == id), None)
        if match is None or match.original is None:
            raise InputError(
                f"There is no original object for {id!r}. A ranking keeps the objects that were passed to "
                "rerank or fuse, until it is stored."
            )
        return match.original

    def originals(self) -> list[Any]:
        """Return the objects that were passed to `rerank` or `fuse`, in the new order."""
        if self.inputs:
            return [self.inputs[position] for position in self.indices()]
        return [self.original(hit) if hit.original is None else hit.original for hit in self.hits]

    def _input_positions(self) -> dict[str, int]:
        ids = self.input_ids
        rerank_stages = [i for i, record in enumerate(self.trace) if record.kind is StageKind.RERANK]
        if not ids and rerank_stages and self.trace[0].source == "input":
            # In a stored ranking, the list is the order before the last rerank stage.
            ids = Trace(self.trace[: rerank_stages[-1]]).order()
        if not ids and self.hits:
            raise InputError("These hits do not come from a reranked list; use their ids.")
        return {id: position for position, id in enumerate(ids)}

    def to_dicts(self) -> list[JsonObject]:
        """Return one dict per hit, best first: rank, id, score (None if unscored), text, source, metadata."""
        return [
            {
                "rank": rank,
                "id": hit.id,
                "score": score,
                "text": hit.text,
                "source": hit.source,
                "metadata": dict(hit.metadata),
            }
            for rank, (hit, score) in enumerate(zip(self.hits, self.scores(), strict=True), start=1)
        ]

    def to_frame(self, library: Literal["pandas", "polars"] | None = None) -> Any:
        """Return a DataFrame with one row per hit, best first, and one column per metadata key.

        The default library is pandas, or polars if pandas is not installed. A metadata key with the name of
        another column becomes `metadata.<key>`. Raises MissingExtraError if the library is not installed.
        """
        if library not in (None, "pandas", "polars"):
            raise InputError(f"library is {library!r}; pass 'pandas' or 'polars'.")
        if library is None:
            library = next((name for name in ("pandas", "polars") if find_spec(name)), "pandas")
        base_columns = ("rank", "id", "score", "text", "source")
        rows = self.to_dicts()
        keys = dict.fromkeys(key for row in rows for key in row["metadata"])
        columns: dict[str, list[object]] = {name: [row[name] for row in rows] for name in base_columns}
        for key in keys:
            column = f"metadata.{key}" if key in base_columns else str(key)
            columns[column] = [row["metadata"].get(key) for row in rows]
        frames = require(str(library), package=str(library))
        # Metadata may mix types, which polars rejects in strict mode.
        return frames.DataFrame(columns, **({"strict": False} if library == "polars" else {}))

    @property
    def partial(self) -> bool:
        """Whether some, but not all, hits were scored."""
        return 0 < len(self.unscored) < len(self.hits) + len(self.cut)

    def path(self, id: str) -> tuple[Step, ...]:
        """Return all steps of a hit: stage, rank, score and note."""
        return self.trace.path(check_text(id, "The id"))

    def why(self, id: str) -> str:
        """Explain in words why a hit has its rank, or why it was dropped."""
        from resift.explain.reasons import why

        return why(self, check_text(id, "The id"))

    def why_all(self) -> dict[str, str]:
        """Return the `why` of every hit, by id; faster than one call per hit."""
        from resift.explain.reasons import why_all

        return why_all(self)

    def snippet(self, id: str, *, length: int = 200) -> Snippet:
        """Return the part of a hit's text with the most query words; `.marked()` highlights them.

        Raises InputError for an id that is not in the ranking.
        """
        from resift.text.snippets import snippet

        check_text(id, "The id")
        hit = next((hit for hit in (*self.hits, *self.cut) if hit.id == id), None)
        if hit is None:
            raise InputError(f"{id!r} is not in this ranking; use the id of one of its hits.")
        return snippet(hit.text, self.query, length=length)

    async def acontext(
        self,
        max_tokens: int = 2000,
        *,
        neighbors: int = 1,
        parents: bool = True,
        prune: bool = False,
        count_tokens: TokenCounter | None = None,
        deadline_s: float | None = None,
    ) -> PromptContext:
        """Return context for a prompt with numbered sources, at most `max_tokens` long; `str()` gives the text.

        Each hit adds `neighbors` chunks before and after it, or its parent, if its store has them. Adjacent
        chunks are merged. `prune` keeps only the sentences that answer the query, scored by the reranker of
        the search. Tokens are counted with `count_tokens`, or with the tokenizer of a loaded model; otherwise
        they are estimated. If something is missing, the context is `degraded` with the reason.
        """
        from resift.ranking.prune import make_context

        return await make_context(
            self,
            max_tokens=max_tokens,
            neighbors=neighbors,
            parents=parents,
            prune_sentences=prune,
            count_tokens=count_tokens,
            deadline_s=deadline_s,
        )

    context = sync_method(acontext)

    def explain(self, *, query: str = "", top: int = 10) -> Explanation:
        """Return the path of each hit through the stages; print it, or `.save("page.html")`."""
        from resift.explain import Explanation, read_flow

        check_query(query, allow_empty=True)
        check_k(top, name="top")
        return Explanation(read_flow(self, query=query or self.query), top=top)

    def replay(self) -> list[str]:
        """Return the ids in the order that the trace alone implies; it equals `ids`."""
        return list(self.trace.order())

    def public(self) -> list[JsonObject]:
        """Return the hits for end users, without scores, trace and provider."""
        return [
            {
                "id": hit.id,
                "text": hit.text,
                "source": hit.source,
                "metadata": {
                    key: value
                    for key, value in hit.metadata.items()
                    # A score without its scale is misleading, and the provider is internal.
                    if key not in INTERNAL_METADATA and not str(key).startswith("_")
                },
            }
            for hit in self.hits
        ]

    def citations(self) -> list[tuple[str, float | None, str, Metadata]]:
        """Return (doc_id, score, source_store, metadata) per hit; `Hit.from_citation` is the inverse."""
        return [(hit.id, hit.score, hit.source, hit.metadata) for hit in self.hits]

    def to_dict(self, *, timings: bool = False) -> JsonObject:
        """Return plain data; `from_dict` turns it back into an equal ranking.

        Timings differ from run to run, so they are not included by default.
        """
        times = {"timings": dict(self.timings)} if timings else {}
        query = {"query": self.query} if self.query else {}
        warnings = {"warnings": list(self.warnings)} if self.warnings else {}
        passages = {"passages": [each.to_dict() for each in self.passages]} if self.passages else {}
        return {
            **passages,
            **query,
            **warnings,
            **times,
            "hits": [hit.to_dict() for hit in self.hits],
            "degraded": self.degraded,
            "reason": self.reason,
            "tier": self.tier,
            "unscored": list(self.unscored),
            "failures": dict(self.failures),
            "cut": [hit.to_dict() for hit in self.cut],
            "trace": [record.to_dict() for record in self.trace],
        }

    @classmethod
    def from_dict(cls, data: JsonMapping) -> Ranking:
        """Return the ranking for the output of `to_dict`; raises InputError for anything else."""
        from resift.ranking.context import Passage
        from resift.types.stored import RankingData

        stored = convert(data, RankingData, name="a ranking")
        values = {name: getattr(stored, name) for name in RankingData.__struct_fields__}
        for name in ("hits", "cut"):
            values[name] = tuple(map(Hit.from_dict, values[name]))
        values["trace"] = Trace.from_dict(stored.trace)
        values["passages"] = tuple(map(Passage.from_dict, stored.passages))
        return cls(**values)

    def to_json(self, *, indent: int | None = None, timings: bool = False) -> str:
        """Return canonical JSON: equal rankings give the same bytes, except for timings."""
        return to_json(self.to_dict(timings=timings), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Ranking:
        """Return the ranking for the output of `to_json`; raises InputError for anything else."""
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as exc:
            # Not chained: the exception contains the whole text.
            raise InputError(
                f"Not a ranking in JSON format ({type(exc).__name__}). Pass the output of Ranking.to_json."
            ) from None
        return cls.from_dict(data)


def get_trace(hits: Sequence[Hit]) -> Trace:
    """Return the trace of a ranking or of fused hits, or an empty trace for any other list."""
    if isinstance(hits, Ranking):
        return hits.trace
    return Trace(hits.records) if isinstance(hits, FusedHits) else Trace()


def to_json(data: object, *, indent: int | None = None) -> str:
    """Return canonical JSON: sorted keys, unescaped UTF-8, no NaN; dates and array scalars as plain values."""
    try:
        return json.dumps(data, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=indent, default=_to_plain)
    except (TypeError, ValueError, RecursionError) as exc:
        raise InputError(f"Not JSON: {exc}. Use only strings, numbers, lists and dicts in metadata.") from exc


def _to_plain(value: object) -> object:
    for method in ("isoformat", "tolist"):  # dates; numpy scalars and arrays
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is not JSON serializable")
