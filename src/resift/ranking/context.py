"""Text for a prompt: the final hits with their neighboring chunks, merged, within a token budget. No I/O.

A neighbor at distance d of the hit at rank r is added as if it had rank r + 3 × d, so that more context of a
good hit competes with worse hits for the same tokens. What does not fit is skipped, and shorter chunks after
it are tried. Chunks that touch become one passage, and text that two of them share appears once. Stores
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

NEIGHBOR_RANKS = 3
"""Ranks per distance of a neighbor. Chosen on contextual-code, where 3 and 4 are best."""

MAX_TOKENS = 2000
DOCUMENT_FIELDS = ("document", "document_id", "doc_id", "path", "source", "file", "url")
POSITION_FIELDS = ("position", "chunk_index")
PARENT_FIELDS = ("parent_id", "parent")

_BYTES_PER_TOKEN = 3
_MIN_OVERLAP = 12  # characters; a shorter one may be chance
_MAX_OVERLAP = 4000
_MAX_HEADING = 600
_MAX_TITLE = 120
_SEPARATOR = "\n\n"

TokenCounter = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextOptions:
    """Options of the context: its budget, and which chunks around a hit belong to it."""

    max_tokens: int = option("Maximum number of tokens of the context.", default=MAX_TOKENS, min=1)
    neighbors: int = option("Chunks before and after each hit.", default=1, min=0, max=20)
    parents: bool = option(
        "Use the parent of a hit, the document with the id in `parent_id`, if it fits.", default=True
    )


class Place(NamedTuple):
    """The document and the position of a chunk, and the fields of its metadata that name them."""

    document_field: str
    document: str
    position_field: str
    position: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a chunk: `text` is its text from `start` to `end`."""

    id: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Passage:
    """Pieces of one document in its order. `ids` are the hits in it, best first."""

    ids: tuple[str, ...]
    pieces: tuple[Piece, ...]
    document: str = ""
    title: str = ""

    @property
    def text(self) -> str:
        """The pieces as one text, with an ellipsis where sentences of a chunk are left out."""
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
        """Return plain data that `from_dict` turns back into an equal passage."""
        return {**asdict(self), "ids": list(self.ids), "pieces": [asdict(piece) for piece in self.pieces]}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Passage:
        """Return the passage that `to_dict` described."""
        passage = convert(data, cls, name="a passage")
        if not passage.pieces:
            raise InputError("pieces of a passage is empty; it must have one or more.")
        return passage


@dataclass(frozen=True, slots=True)
class Source:
    """One numbered source of a context; `text[start:end]` of the context is its passage.

    `id` is its best hit and `ids` all hits in it. `pieces` name each chunk with the offsets of the part that
    is used. `document` is the value of the metadata field that names the document, or the id.
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
        # Without the text: logs and tracebacks show this, and must not contain documents.
        return f"<PromptContext of {len(self.sources)} sources, {self.tokens} of {self.max_tokens} tokens>"

    def to_dict(self) -> JsonObject:
        """Return plain data."""
        sources = [source.to_dict() for source in self.sources]
        return {**asdict(self), "sources": sources, "dropped": list(self.dropped)}


class PassageReader:
    """The stores and the reranker of a search, which a ranking keeps for its context. It is not pickled."""

    def __init__(self, stores: Iterable[object] = (), scorer: Scorer | None = None) -> None:
        self.stores = tuple({id(store): store for store in stores}.values())
        self.scorer = scorer

    def __reduce__(self) -> tuple[type[PassageReader], tuple[()]]:
        return PassageReader, ()

    def token_counter(self) -> TokenCounter | None:
        """Return the tokenizer of a model that is loaded: the reranker, or the embedder of a store."""
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
        """Return the chunks around each hit, the parents of hits, and why some are missing."""
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
            wanted = {hit.id: parent for hit in hits if options.parents and (parent := parent_id(hit))}
            for other in self.stores if wanted else ():
                if hasattr(other, "get"):
                    found = {parent.id: parent for parent in await other.get(sorted(set(wanted.values())))}
                    parents |= {id: found[parent] for id, parent in wanted.items() if parent in found}
        # Every exception: the store may be foreign or closed, and the hits alone are better than nothing.
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
    """Return the passages of these hits within the budget, and why neighbors are missing."""
    # Hits after those that fill the budget alone cannot get neighbors, so theirs are not read.
    count = cache(count)
    room, reachable = options.max_tokens, 0
    while room > 0 and reachable < len(hits):
        room -= count(f"{hits[reachable].text}{_SEPARATOR}")
        reachable += 1
    source = reader or PassageReader()
    chunks, parents, reason = await source.read(hits[:reachable], options, deadline=deadline)
    return expand(hits, chunks, max_tokens=options.max_tokens, count=count, parents=parents), reason


def estimate_tokens(text: str) -> int:
    """Return one token per three bytes of UTF-8, rounded up: more than most tokenizers need for prose."""
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def find_place(metadata: Metadata) -> Place | None:
    """Return the document and position of a chunk; None if its metadata lacks one of them."""
    document_field = _first_field(metadata, DOCUMENT_FIELDS, (str, int))
    position_field = _first_field(metadata, POSITION_FIELDS, (int,))
    if document_field is None or position_field is None:
        return None
    return Place(document_field, metadata[document_field], position_field, metadata[position_field])


def parent_id(hit: Hit) -> str | None:
    """Return the id of the document that a hit is a part of, if its metadata has one."""
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
    """Return the chunks of the hit's document within these distances, in its order: for `get_chunks`."""
    place = find_place(hit.metadata)
    if place is None:
        return []
    found: dict[int, Hit] = {}
    for chunk in sorted(chunks, key=lambda chunk: chunk.id):
        other = find_place(chunk.metadata)
        if other is None or other.document != place.document:
            continue
        if -before <= other.position - place.position <= after:
            found.setdefault(other.position, chunk)
    found[place.position] = hit
    return [found[position] for position in sorted(found)]


def expand(
    hits: Sequence[Hit],
    chunks: Mapping[str, Sequence[Hit]],
    *,
    max_tokens: int,
    count: TokenCounter = estimate_tokens,
    parents: Mapping[str, Hit] | None = None,
) -> list[Passage]:
    """Return passages of these hits and the chunks around them, within the budget, best hit first.

    `chunks` has the chunks around each hit by its id, in the order of the document, with the hit itself. The
    best hit that does not fit is shortened to its first sentences if there is room for them in the end.
    """
    draft = _Draft(hits, chunks, max_tokens=max_tokens, count=count)
    queue: list[tuple[int, int, int, Hit]] = []
    for rank, hit in enumerate(hits):
        queue.append((rank, 0, rank, hit))
        around = chunks.get(hit.id, ())
        own = next((i for i, chunk in enumerate(around) if chunk.id == hit.id), None)
        if own is not None:
            queue += [
                (rank + abs(i - own) * NEIGHBOR_RANKS, 1, rank, chunk) for i, chunk in enumerate(around) if i != own
            ]
    left_out: list[Hit] = []
    for _, is_neighbor, rank, chunk in sorted(queue, key=lambda entry: entry[:3]):
        parent = None if is_neighbor else (parents or {}).get(chunk.id)
        if (parent is not None and draft.add(parent, hit=chunk)) or draft.add(chunk) or is_neighbor:
            continue
        if rank == 0 and draft.add_beginning(chunk):  # worse hits do not replace the best one
            return draft.passages()
        left_out.append(chunk)
    if left_out and left_out[0].id not in draft.chosen:
        draft.add_beginning(left_out[0])
    return draft.passages()


class _Draft:
    """The chunks chosen so far, in runs of chunks that touch."""

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
        """Add a chunk, or a parent for this hit, and return whether it fits."""
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
        """Add as many sentences from the beginning of a hit as fit, as a passage of its own, if one fits."""
        passage = first_sentences(make_passage([hit], (hit.id,)), self._room, self._count)
        if passage:
            self._beginnings.append(passage)
        return passage is not None

    def passages(self) -> list[Passage]:
        """Return the passages, the one with the best hit first."""
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
    """Return the passage of chunks that touch, without text that two of them share.

    Document and title are those of the chunk with the best rank.
    """
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
    """Return how many characters at the beginning of a chunk the chunk before it has already.

    These are a heading that both begin with, and the overlap of the two.
    """
    heading, separator, _ = following.partition("\n\n")
    skipped = 0
    if separator and len(heading) <= _MAX_HEADING and text.startswith(heading + separator):
        skipped = len(heading) + len(separator)
    body = following[skipped : skipped + _MAX_OVERLAP]
    if len(body) < _MIN_OVERLAP:
        return skipped
    start = max(0, len(text) - len(body))
    # From the left, so that the longest overlap is found first.
    while (start := text.find(body[:_MIN_OVERLAP], start)) >= 0:
        inside_word = start > 0 and text[start - 1].isalnum() and text[start].isalnum()
        if not inside_word and body.startswith(text[start:]):
            return skipped + len(text) - start
        start += 1
    return skipped


def _header(passage: Passage, number: int) -> str:
    words = " ".join((passage.title or passage.document or passage.ids[0]).split())
    return f"[{number}] {words if len(words) <= _MAX_TITLE else f'{words[: _MAX_TITLE - 1]}…'}\n"


def _passage_cost(passage: Passage, count: TokenCounter) -> int:
    """Return the tokens of a passage with its header, or a few more: pieces are counted one by one."""
    return count(_header(passage, 10)) + sum(count(f"{piece.text}{_SEPARATOR}") for piece in passage.pieces)


def first_sentences(passage: Passage, max_tokens: int, count: TokenCounter) -> Passage | None:
    """Return as many sentences from the beginning of a passage as fit, or None if the first does not fit."""
    ends = [(i, end) for i, piece in enumerate(passage.pieces) for _, end in sentence_spans(piece.text)]

    def beginning(sentences: int) -> Passage:
        i, end = ends[sentences - 1]
        piece = passage.pieces[i]
        last = replace(piece, text=piece.text[:end], end=piece.start + end)
        return replace(passage, pieces=(*passage.pieces[:i], last))

    # More sentences need more tokens.
    fitting = bisect_right(range(1, len(ends) + 1), max_tokens, key=lambda n: _passage_cost(beginning(n), count))
    return beginning(fitting) if fitting else None


def passage_tokens(passages: Sequence[Passage], count: TokenCounter = estimate_tokens) -> int:
    """Return the tokens of the text of these passages, with their headers."""
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
    """Return passages as text with numbered sources, without the last ones if they exceed the budget.

    `hits` are the ids of all hits, to name those that are left out.
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
    """Return the first passages that fit into the budget, and the first sentences of the next one."""
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
    """Return a note for each hit: its source number and how many other chunks the source has."""
    notes = dict.fromkeys(ids, "did not fit into the context")
    for number, passage in enumerate(passages, start=1):
        others = len({piece.id for piece in passage.pieces} - set(passage.ids))
        more = f", with {others} neighboring chunk{'s' if others > 1 else ''}" if others else ""
        notes |= dict.fromkeys(passage.ids, f"source {number} of the context{more}")
    return notes
