"""Near-duplicates: the same text from several sources takes one slot and keeps all its provenance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from resift.errors import InputError
from resift.events import Sink
from resift.ranking.shape.shaped import Shaped, shaped
from resift.text import jaccard
from resift.text.tokenization import words
from resift.types import Hit

STAGE = "fold"
_WORDS = 2


def fold(hits: Sequence[Hit], *, threshold: float = 1.0, sink: Sink | None = None) -> Shaped:
    """Keep the best placed of each group of equal texts; the others go to `cut`.

    The kept one lists the others under metadata["folded"]: id, source and metadata of each. A threshold of
    1.0 means the same words in the same order, whatever their case and spacing; below that it is the
    Jaccard similarity of the word sets. Hits without text are never folded.
    """
    if not 0 < threshold <= 1:
        raise InputError(f"threshold is {threshold}; use a similarity above 0 and up to 1.")
    leaders = _same(hits) if threshold == 1 else _similar(hits, threshold)
    groups: dict[int, list[int]] = {}
    for at, leader in enumerate(leaders):
        groups.setdefault(leader, []).append(at)
    notes: dict[str, str] = {}
    for leader, members in groups.items():
        if len(members) > 1:
            notes[hits[leader].id] = f"stands for {len(members) - 1} more with the same text"
            notes |= {hits[at].id: f"same text as {hits[leader].id!r}" for at in members[1:]}
    kept = [_leading(hits, members) for members in groups.values()]
    cut = [hit for at, hit in enumerate(hits) if leaders[at] != at]
    return shaped(STAGE, hits, kept, cut, by_id=notes, sink=sink)


def _leading(hits: Sequence[Hit], members: list[int]) -> Hit:
    leader = hits[members[0]]
    if len(members) == 1:
        return leader
    others = [
        {"id": hits[at].id, "source": hits[at].source, "metadata": dict(hits[at].metadata)}
        for at in members[1:]
    ]
    return leader.with_metadata(folded=[*leader.metadata.get("folded", ()), *others])


def _same(hits: Sequence[Hit]) -> list[int]:
    """Return for each hit the place of the first hit with the same normalised text."""
    leaders = list(range(len(hits)))
    begin = [_opening(hit.text) for hit in hits]
    # Nearly always all differ, and no text has to be read whole.
    if len(set(begin)) == len(begin):
        return leaders
    openings: dict[str, list[int]] = {}
    for at, opening in enumerate(begin):
        openings.setdefault(opening, []).append(at)
    for opening, members in openings.items():
        if not opening or len(members) == 1:
            continue
        first: dict[str, int] = {}
        for at in members:
            leaders[at] = first.setdefault(" ".join(hits[at].text.casefold().split()), at)
    return leaders


def _opening(text: str) -> str:
    """Return the first words, which equal texts share: most texts are told apart without reading on."""
    return " ".join(text.split(None, _WORDS)[:_WORDS]).casefold()


def _similar(hits: Sequence[Hit], threshold: float) -> list[int]:
    """Return for each hit the place of the first leader whose words are similar enough.

    Two sets as similar as the threshold share a word among the rarest (1 − threshold) of either, so only
    hits that share such a word are compared (prefix filtering; Bayardo et al., 2007).
    """
    bags = [frozenset(words(hit.text)) for hit in hits]
    frequency: dict[str, int] = {}
    for bag in bags:
        for word in bag:
            frequency[word] = frequency.get(word, 0) + 1
    leaders = list(range(len(hits)))
    index: dict[str, list[int]] = {}
    for at, bag in enumerate(bags):
        rare = sorted(bag, key=lambda word: (frequency[word], word))
        prefix = rare[: len(rare) - int(threshold * len(rare)) + 1]
        found = next(
            (one for one in _candidates(prefix, index) if jaccard(bags[one], bag) >= threshold), None
        )
        if found is not None:
            leaders[at] = found
            continue
        for word in prefix:
            index.setdefault(word, []).append(at)
    return leaders


def _candidates(prefix: Sequence[str], index: dict[str, list[int]]) -> Iterator[int]:
    yield from sorted({at for word in prefix for at in index.get(word, ())})
