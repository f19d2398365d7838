"""Documents on their way in and hits on their way out: the checks and the order that all stores share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from resift.errors import InputError, StoreError
from resift.external.candidates import Candidates, hits_from
from resift.external.records import ID_KEYS, list_documents
from resift.stores.filtering import conditions
from resift.types import Hit, Metadata, Where
from resift.validation import check_k, check_list, check_query


class Found(NamedTuple):
    """One match before it has a rank."""

    id: str
    text: str
    score: float
    metadata: Metadata


class DamagedDocument(StoreError):
    """The text or metadata of a hit, loaded after the search, is not what was written."""


APPROXIMATE = "approximate"
"""What a trace notes of a list that an index found which may pass over some hits."""


class SearchHits(list[Hit]):
    """A list of hits that says whether better ones may have been passed over."""

    def __init__(self, hits: Iterable[Hit] = (), *, approximate: bool = False) -> None:
        super().__init__(hits)
        self.approximate = approximate


def is_approximate(hits: Sequence[Hit]) -> bool:
    """Say whether an index that may pass over some hits was used to find these."""
    return isinstance(hits, SearchHits) and hits.approximate


def documents_from(candidates: Candidates) -> list[Hit]:
    """Return the documents to store; each must bring its own id, once.

    Raises InputError for a document without an id: numbers would overwrite each other between calls.
    """
    given = list_documents(candidates, "documents")
    for number, candidate in enumerate(given):
        _refuse_nameless(candidate, number)
    return hits_from(given, flags={})


def ids_from(ids: Iterable[str | int]) -> list[str]:
    """Return the ids as a list without repetitions; one bare string is a mistake, not a list of letters."""
    return list(dict.fromkeys(map(_id, check_list(ids, "ids", "ids"))))


def nothing_to_find(query: str, k: int, where: Where | None = None) -> bool:
    """Say whether the answer is empty without looking; refuses what no query, k or filter can be."""
    conditions(where)
    asked = check_query(query, allow_empty=True)
    return check_k(k) == 0 or not asked.strip()


def ranked(found: Iterable[Found], *, k: int, source: str) -> list[Hit]:
    """Return the best k as hits in the order (-score, id)."""
    best = sorted(found, key=lambda one: (-one.score, one.id))[:k]
    return [Hit(one.id, one.text, one.score, source, one.metadata) for one in best]


def in_order(ids: Sequence[str], documents: Mapping[str, Hit]) -> list[Hit]:
    """Return the documents of these ids in the order asked; unknown ids are left out."""
    return [documents[id] for id in ids if id in documents]


def _id(id: object) -> str:
    """Return an id as documents keep it: a number is the string that it is written as, as in `add`."""
    if isinstance(id, str):
        return id
    if isinstance(id, int) and not isinstance(id, bool):
        return str(id)
    raise InputError(f"ids holds a {type(id).__name__}; ids are strings.")


def _refuse_nameless(candidate: object, number: int) -> None:
    if isinstance(candidate, str):
        raise InputError(f"Document {number} is a bare string; pass a dict with id and text, or a Hit.")
    if isinstance(candidate, Mapping) and all(candidate.get(key) is None for key in ID_KEYS):
        raise InputError(f"Document {number} has no id; give each document its own {' or '.join(ID_KEYS)}.")
