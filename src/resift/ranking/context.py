"""Context for a prompt: the final hits and their neighboring chunks, merged, within a token budget. No I/O.

A neighbor at distance d from the hit at rank r is added as if it had rank r + 3 × d, so that more context of a
good hit competes with worse hits for the same tokens. A chunk that does not fit is skipped, and shorter chunks
after it are tried. Adjacent chunks are merged into one passage, in which overlapping text appears once. Stores
provide the chunks (`resift.protocols.HasChunks`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from resift.deadline import Deadline
from resift.errors import InputError, redact
from resift.protocols import CountsTokens, HasChunks, Scorer
from resift.text.tokenization import sentence_spans
from resift.types import Hit, JsonObject, Metadata
from resift.validation import convert, option

NEIGHBOR_RANKS = 3  # ranks per unit of distance of a neighbor. Chosen on contextual-code, where 3 and 4 are best.

MAX_TOKENS = 2000
DOCUMENT_FIELDS = ("document", "document_id", "doc_id", "path", "source", "file", "url")
POSITION_FIELDS = ("position", "chunk_index")
PARENT_FIELDS = ("parent_id", "parent")

_BYTES_PER_TOKEN = 3
_MIN_OVERLAP = 12  # characters; a shorter overlap may be a coincidence
_MAX_OVERLAP = 4000
_MAX_HEADING = 600
_MAX_TITLE = 120
_SEPARATOR = "\n\n"

TokenCounter = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextOptions:
    """Options of the context: its token budget, and the chunks around a hit that it includes."""

    max_tokens: int = option("Maximum number of tokens in the context.", default=MAX_TOKENS, min=1)
    neighbors: int = option("Number of chunks before and after each hit.", default=1, min=0, max=20)
    parents: bool = option(
        "Use the parent of a hit, the document with the id in `parent_id`, if it fits.", default=True
    )


class Place(NamedTuple):
    """The document and the position of a chunk, and the metadata fields that contain them."""

    document_field: str
    document: str
    position_field: str
    position: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a chunk: `text` is the text of the chunk from `start` to `end`."""

    id: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Passage:
    """Pieces of one document, in document order. `ids` are the hits in the passage, best first."""

    ids: tuple[str, ...]
    pieces: tuple[Piece, ...]
    document: str = ""
    title: str = ""

    @property
    def text(self) -> str:
        """The pieces as one text, with an ellipsis where sentences of a chunk are omitted."""
        text = ""
        for i, piece in enumerate(self.pieces):
            last = self.pieces[i - 1]
            if not i:
                text = piece.text
            elif last.id == piece.id:
                text += f" … {piece.text}"
            elif text[-1:].isspace() or piece.text[:1].isspace():
                text += piece.text
            else:
                text += f"{' ' if piece.start else chr(10)}{piece.text}"
        return text.strip()

    def to_dict(self) -> JsonObject:
        """Return plain data; `from_dict` turns it back into an equal passage."""
        return {**asdict(self), "ids": list(self.ids), "pieces": [asdict(piece) for piece in self.pieces]}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Passage:
        """Return the passage for the output of `to_dict`."""
        passage = convert(data, cls, name="a passage")
        if not passage.pieces:
            raise InputError("pieces of a passage is empty; it must contain at least one piece.")
        return passage


@dataclass(frozen=True, slots=True)
class Source:
    """A numbered source in a context; its passage is `text[start:end]` of the context.

    `id` is its best hit, and `ids` are all hits in it. `pieces` lists the chunks with the offsets of the parts
    that are used. `document` is the value of the metadata field that names the document, or the id.
    """

    number: int
    id: str
    ids: tuple[str, ...]
    document: str
    title: str
    start: int
    end: int
    pieces: tuple[Piece, ...]

    def to_dict(self) -> JsonObject:
        """Return plain data."""
        data: JsonObject = {**asdict(self), "ids": list(self.ids)}
        del data["pieces"]
        return data | {"spans": [{"id": piece.id, "start": piece.start, "end": piece.end} for piece in self.pieces]}


@dataclass(frozen=True, slots=True)
class PromptContext:
    """Text for a prompt with numbered sources; `str()` returns the text.

    `tokens` never exceeds `max_tokens`. `estimated` means that no tokenizer was loaded. `dropped` are the
    hits that did not fit.
    """

    text: str
    sources: tuple[Source, ...]
    tokens: int
    max_tokens: int
    estimated: bool
    dropped: tuple[str, ...] = ()
    degraded: bool = False
    reason: str | None = None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        # Without the text: this appears in logs and tracebacks, which must not contain documents.
        return f"<PromptContext of {len(self.sources)} sources, {self.tokens} of {self.max_tokens} tokens>"

    def to_dict(self) -> JsonObject:
        """Return plain data."""
        sources = [source.to_dict() for source in self.sources]
        return {**asdict(self), "sources": sources, "dropped": list(self.dropped)}


class PassageReader:
    """The stores and the reranker of a search, which a ranking keeps to build its context. They are not pickled."""

    def __init__(self, stores: Iterable[object] = (), scorer: Scorer | None = None) -> None:
        self.stores = tuple({id(store): store for store in stores}.values())
        self.scorer = scorer

    def __reduce__(self) -> tuple[type[PassageReader], tuple[()]]:
        return PassageReader, ()

    def token_counter(self) -> TokenCounter | None:
        """Return the token counter of a loaded model: the reranker, or the embedder of a store; None without one."""
        for scorer in (self.scorer, *(tier.scorer for tier in getattr(self.scorer, "tiers", ()))):
            tokenizer = getattr(getattr(scorer, "loaded_model", None), "tokenizer", None)
            if callable(getattr(tokenizer, "count", None)):
                return tokenizer.count  # type: ignore[union-attr, no-any-return]
        for store in self.stores:
            embedder = getattr(store, "embedder", None)
            if isinstance(embedder, CountsTokens):
                return lambda text, count=embedder.count_tokens: count([text])  # type: ignore[misc]
        return None

    async def read(
        self, hits: Sequence[Hit], options: ContextOptions, *, deadline: Deadline | None = None
    ) -> tuple[dict[str, list[Hit]], dict[str, Hit], str | None]:
        """Return the chunks around each hit, the parents of hits, and the reason why some are missing."""
        chunks: dict[str, list[Hit]] = {}
        parents: dict[str, Hit] = {}
        readers = [store for store in self.stores if isinstance(store, HasChunks)]
        reach = options.neighbors
        try:
            for hit in hits if reach else ():
                if deadline is not None and deadline.expired:
                    return chunks, parents, f"context: no time for the neighbors of {hit.id!r} and later hits"
                for store in readers:
                    if around := await store.get_chunks(hit, before=reach, after=reach):
                        chunks[hit.id] = around
                        break
            parent_ids = {hit.id: parent for hit in hits if options.parents and (parent := parent_id(hit))}
            for other in self.stores if parent_ids else ():
                if hasattr(other, "get"):
                    by_id = {parent.id: parent for parent in await other.get(sorted(set(parent_ids.values())))}
                    parents |= {id: by_id[parent] for id, parent in parent_ids.items() if parent in by_id}
        # Catches all exceptions: the store may be third-party code or closed, and the hits alone are still useful.
        except Exception as exc:
            return chunks, parents, f"context: no neighbors: {redact(exc)}"
        reason = None
        if reach and not readers and any(find_place(hit.metadata) for hit in hits):
            reason = "context: no neighbors: no store of this ranking can return the chunks of a document"
        elif reach and any("chunk" in hit.metadata and not find_place(hit.metadata) for hit in hits):
            reason = "context: no neighbors: the index has no positions; index its files again"
        return chunks, parents, reason


async def read_passages(
    hits: Sequence[Hit],
    reader: PassageReader | None,
    options: ContextOptions,
    *,
    count: TokenCounter,
    deadline: Deadline | None = None,
) -> tuple[list[Passage], str | None]:
    """Return the passages of these hits within the budget, and the reason why neighbors are missing."""
    # Once the texts of the first hits fill the budget, neighbors of later hits cannot fit and are not read.
    count = cache(count)
    room, reachable = options.max_tokens, 0
    while room > 0 and reachable < len(hits):
        room -= count(f"{hits[reachable].text}{_SEPARATOR}")
        reachable += 1
    source = reader or PassageReader()
    chunks, parents, reason = await source.read(hits[:reachable], options, deadline=deadline)
    return expand(hits, chunks, max_tokens=options.max_tokens, count=count, parents=parents), reason


def estimate_tokens(text: str) -> int:
    """Return one token per three bytes of UTF-8, rounded up; most tokenizers need fewer for prose."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def find_place(metadata: Metadata) -> Place | None:
    """Return the document and position of a chunk; None if one of them is missing in its metadata."""
    document_field = _first_field(metadata, DOCUMENT_FIELDS, (str, int))
    position_field = _first_field(metadata, POSITION_FIELDS, (int,))
    if document_field is None or position_field is None:
        return None
    return Place(document_field, metadata[document_field], position_field, metadata[position_field])


def parent_id(hit: Hit) -> str | None:
    """Return the id of the document that a hit is part of, or None if its metadata does not name one."""
    name = _first_field(hit.metadata, PARENT_FIELDS, (str, int))
    return None if name is None or str(hit.metadata[name]) == hit.id else str(hit.metadata[name])


def _first_field(metadata: Metadata, names: Sequence[str], types: tuple[type, ...]) -> str | None:
    return next(
        (
            name
            for name in names
            if isinstance(value := metadata.get(name), types) and not isinstance(value, bool) and value != ""
        ),
        None,
    )


def sort_chunks(hit: Hit, chunks: Iterable[Hit], *, before: int, after: int) -> list[Hit]:
    """Return the chunks of the hit's document within these distances, in document order; used by `get_chunks`."""
    place = find_place(hit.metadata)
    if place is None:
        return []
    by_position: dict[int, Hit] = {}
    for chunk in sorted(chunks, key=lambda chunk: chunk.id):
        other = find_place(chunk.metadata)
        if other is None or other.document != place.document:
            continue
        if -before <= other.position - place.position <= after:
            by_position.setdefault(other.position, chunk)
    by_position[place.position] = hit
    return [by_position[position] for position in sorted(by_position)]


def expand(
    hits: Sequence[Hit],
    chunks: Mapping[str, Sequence[Hit]],
    *,
    max_tokens: int,
    count: TokenCounter = estimate_tokens,
    parents: Mapping[str, Hit] | None = None,
) -> list[Passage]:
    """Return passages of these hits and the chunks around them, within the budget, best hit first.

    `chunks` maps the id of a hit to the chunks around it, in document order, including the hit itself. If
    there is room left at the end, the best hit that did not fit is shortened to its first sentences.
    """
    draft = _Draft(hits, chunks, max_tokens=max_tokens, count=count)
    queue: list[tuple[int, int, int, Hit]] = []
    for rank, hit in enumerate(hits):
        queue.append((rank, 0, rank, hit))
        around = chunks.get(hit.id, ())
        center = next((i for i, chunk in enumerate(around) if chunk.id == hit.id), None)
        if center is not None:
            queue += [
                (rank + abs(i - center) * NEIGHBOR_RANKS, 1, rank, chunk)
                for i, chunk in enumerate(around)
                if i != center
            ]
    skipped: list[Hit] = []
    for _, is_neighbor, rank, chunk in sorted(queue, key=lambda entry: entry[:3]):
        parent = None if is_neighbor else (parents or {}).get(chunk.id)
        if (parent is not None and draft.add(parent, hit=chunk)) or draft.add(chunk) or is_neighbor:
            continue
        if rank == 0 and draft.add_beginning(chunk):  # worse hits do not replace the best one
            return draft.passages()
        skipped.append(chunk)
    if skipped and skipped[0].id not in draft.chosen:
        draft.add_beginning(skipped[0])
    return draft.passages()


class _Draft:
    """The chunks chosen so far, in runs of adjacent chunks."""

    def __init__(
        self, hits: Sequence[Hit], chunks: Mapping[str, Sequence[Hit]], *, max_tokens: int, count: TokenCounter
    ) -> None:
        self._room = max_tokens
        self._count = cache(count)
        self._ranks = {hit.id: rank for rank, hit in reversed(list(enumerate(hits)))}
        self._following: dict[str, str] = {}  # id -> id of the next chunk of its document
        places = {place: hit.id for hit in hits if (place := find_place(hit.metadata))}
        for place, id in places.items():
            if following := places.get(place._replace(position=place.position + 1)):
                self._following[id] = following
        for around in chunks.values():
            self._following |= {a.id: b.id for a, b in pairwise(around)}
        self._covered: dict[str, list[str]] = {}  # id of a parent -> ids of its hits
        self._runs: list[list[Hit]] = []
        self._beginnings: list[Passage] = []
        self.chosen: set[str] = set()

    def add(self, chunk: Hit, *, hit: Hit | None = None) -> bool:
        """Add a chunk, or the parent of `hit`, and return whether it fits."""
        if chunk.id not in self.chosen and chunk.text.strip():
            before = next((run for run in self._runs if self._following.get(run[-1].id) == chunk.id), [])
            after = next((run for run in self._runs if self._following.get(chunk.id) == run[0].id), [])
            run = [*before, chunk, *(after if after is not before else [])]
            cost = self._cost(run) - sum(self._cost(old) for old in (before, after) if old)
            if cost > self._room:
                return False
            self._room -= cost
            self._runs = [*(old for old in self._runs if old is not before and old is not after), run]
            self.chosen.add(chunk.id)
        if hit is not None:
            self._covered.setdefault(chunk.id, []).append(hit.id)
        return True

    def add_beginning(self, hit: Hit) -> bool:
        """Add the first sentences of a hit that fit as a separate passage, and return whether any fit."""
        passage = first_sentences(make_passage([hit], (hit.id,)), self._room, self._count)
        if passage:
            self._beginnings.append(passage)
        return passage is not None

    def passages(self) -> list[Passage]:
        """Return the passages; the one with the best hit comes first."""
        passages = [self._passage(run) for run in self._runs] + self._beginnings
        return sorted(
            passages, key=lambda passage: min((self._ranks[id] for id in passage.ids), default=len(self._ranks))
        )

    def _cost(self, run: Sequence[Hit]) -> int:
        return _passage_cost(self._passage(run), self._count)

    def _passage(self, run: Sequence[Hit]) -> Passage:
        hits = {id for chunk in run for id in (chunk.id, *self._covered.get(chunk.id, ())) if id in self._ranks}
        return make_passage(run, tuple(sorted(hits, key=self._ranks.__getitem__)), ranks=self._ranks)


def make_passage(chunks: Sequence[Hit], ids: tuple[str, ...], *, ranks: Mapping[str, int] | None = None) -> Passage:
    """Return the passage of adjacent chunks without repeated text; title and document are those of the best chunk."""
    pieces: list[Piece] = []
    for i, chunk in enumerate(chunks):
        start = _shared_length(chunks[i - 1].text, chunk.text) if i else 0
        if start < len(chunk.text):
            pieces.append(Piece(chunk.id, chunk.text[start:], start, len(chunk.text)))
    first = min(chunks, key=lambda chunk: (ranks or {}).get(chunk.id, len(ranks or ())))
    document = _first_field(first.metadata, DOCUMENT_FIELDS, (str, int))
    name = first.id if document is None else str(first.metadata[document])
    titles = [str(first.metadata.get(key) or "").strip() for key in ("title", "heading")]
    return Passage(ids, tuple(pieces), name, " › ".join(title for title in dict.fromkeys(titles) if title))


def _shared_length(text: str, following: str) -> int:
    """Return how many characters at the beginning of a chunk repeat the previous one: a heading and the overlap."""
    heading, separator, _ = following.partition("\n\n")
    skipped = 0
    if separator and len(heading) <= _MAX_HEADING and text.startswith(heading + separator):
        skipped = len(heading) + len(separator)
    body = following[skipped : skipped + _MAX_OVERLAP]
    if len(body) < _MIN_OVERLAP:
        return skipped
    start = max(0, len(text) - len(body))
    # Search from the left, so that the longest overlap is found first.
    while (start := text.find(body[:_MIN_OVERLAP], start)) >= 0:
        inside_word = start > 0 and text[start - 1].isalnum() and text[start].isalnum()
        if not inside_word and body.startswith(text[start:]):
            return skipped + len(text) - start
        start += 1
    return skipped


def _header(passage: Passage, number: int) -> str:
    title = " ".join((passage.title or passage.document or passage.ids[0]).split())
    return f"[{number}] {title if len(title) <= _MAX_TITLE else f'{title[: _MAX_TITLE - 1]}…'}\n"


def _passage_cost(passage: Passage, count: TokenCounter) -> int:
    """Return the number of tokens in a passage with its header, or slightly more: pieces are counted separately."""
    return count(_header(passage, 10)) + sum(count(f"{piece.text}{_SEPARATOR}") for piece in passage.pieces)


def first_sentences(passage: Passage, max_tokens: int, count: TokenCounter) -> Passage | None:
    """Return the first sentences of a passage that fit into the budget, or None if not even one fits."""
    ends = [(i, end) for i, piece in enumerate(passage.pieces) for _, end in sentence_spans(piece.text)]

    def beginning(sentences: int) -> Passage:
        i, end = ends[sentences - 1]
        piece = passage.pieces[i]
        last = replace(piece, text=piece.text[:end], end=piece.start + end)
        return replace(passage, pieces=(*passage.pieces[:i], last))

    # Bisection works because more sentences need more tokens.
    fitting = bisect_right(range(1, len(ends) + 1), max_tokens, key=lambda n: _passage_cost(beginning(n), count))
    return beginning(fitting) if fitting else None


def passage_tokens(passages: Sequence[Passage], count: TokenCounter = estimate_tokens) -> int:
    """Return the number of tokens in these passages, including their headers."""
    text, _ = _join_blocks(passages)
    return count(text) if text else 0


def render(
    passages: Sequence[Passage],
    *,
    max_tokens: int,
    count: TokenCounter = estimate_tokens,
    estimated: bool = True,
    hits: Sequence[str] = (),
    reason: str | None = None,
) -> PromptContext:
    """Return passages as text with numbered sources; the last passages are omitted if they exceed the budget.

    `hits` are the ids of all hits; those that are omitted are listed in `dropped`.
    """
    kept = list(passages)
    while True:
        text, sources = _join_blocks(kept)
        tokens = count(text) if text else 0
        if tokens <= max_tokens:
            break
        kept.pop()
    used = {id for source in sources for id in (*source.ids, *(piece.id for piece in source.pieces))}
    dropped = tuple(id for id in dict.fromkeys(hits) if id not in used)
    if not sources and hits:
        reason = reason or f"no passage fits into {max_tokens} tokens"
    return PromptContext(
        text, sources, tokens, max_tokens, estimated, dropped, degraded=reason is not None, reason=reason
    )


def _join_blocks(passages: Sequence[Passage]) -> tuple[str, tuple[Source, ...]]:
    text, sources = "", []
    for number, passage in enumerate(passages, start=1):
        text += _header(passage, number)
        start, body = len(text), passage.text
        text += f"{body}{_SEPARATOR}"
        id = passage.ids[0] if passage.ids else passage.pieces[0].id
        sources.append(
            Source(number, id, passage.ids, passage.document, passage.title, start, start + len(body), passage.pieces)
        )
    return text.rstrip(), tuple(sources)


def shorten(passages: Sequence[Passage], *, max_tokens: int, count: TokenCounter = estimate_tokens) -> list[Passage]:
    """Return the first passages that fit into the budget, plus the first sentences of the next passage."""
    if passage_tokens(passages, count) <= max_tokens:
        return list(passages)
    kept: list[Passage] = []
    for passage in passages:
        cost = _passage_cost(passage, count)
        if cost > max_tokens:
            shorter = first_sentences(passage, max_tokens, count)
            return [*kept, shorter] if shorter else kept
        kept.append(passage)
        max_tokens -= cost
    return kept


def describe(passages: Sequence[Passage], ids: Sequence[str]) -> dict[str, str]:
    """Return a note for each hit: its source number and the number of other chunks in that source."""
    notes = dict.fromkeys(ids, "did not fit into the context")
    for number, passage in enumerate(passages, start=1):
        others = len({piece.id for piece in passage.pieces} - set(passage.ids))
        more = f", with {others} neighboring chunk{'s' if others > 1 else ''}" if others else ""
        notes |= dict.fromkeys(passage.ids, f"source {number} of the context{more}")
    return notes
