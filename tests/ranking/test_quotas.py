"""Fairness and diversity by quota: met whenever they can be, relaxed visibly when not."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.events import ListSink
from resift.ranking.shape import DIVERSITY, FAIRNESS, Quota, balance
from tests.ranking.pools import everything, hit, note, pools, replays


def test_one_document_cannot_take_every_place():
    """Four chunks of one document lead; with at most two of five places, others move up."""
    hits = [hit(f"a{n}", 0.9 - n / 100, document="a") for n in range(4)]
    hits += [hit(f"b{n}", 0.5 - n / 100, document="b") for n in range(2)] + [hit("c", 0.1, document="c")]
    shaped = balance(hits, k=5, quotas=[Quota(key="document", at_most=2)])
    assert shaped.ids == ["a0", "a1", "b0", "b1", "c", "a2", "a3"]
    assert shaped.notes == ()


def test_every_source_type_gets_a_place():
    """The only EXCEL chunk is sixth; with a place for every type it is among the first three."""
    hits = [hit(f"p{n}", 0.9 - n / 100) for n in range(5)] + [hit("x", 0.1, "EXCEL")]
    assert balance(hits, k=3, quotas=[DIVERSITY]).ids[:3] == ["p0", "p1", "x"]


def test_a_quota_that_cannot_be_met_is_relaxed_and_told():
    """Only one document in the pool: its share is exceeded, the notes and the record say so."""
    sink = ListSink()
    hits = [hit(f"a{n}", 0.9 - n / 100, document="a") for n in range(4)]
    shaped = balance(hits, k=4, quotas=[FAIRNESS], sink=sink)
    assert shaped.ids == ["a0", "a1", "a2", "a3"]
    assert shaped.notes == ("document 'a': 4 of at most 2",) == sink.events[0].notes
    assert note(shaped, shaped.kept[2].id).startswith("quota relaxed")


def test_more_types_than_places_is_told():
    """Three types, two places: the best two types have them."""
    hits = [hit("a", 0.9, "A"), hit("b", 0.8, "B"), hit("c", 0.7, "C")]
    shaped = balance(hits, k=2, quotas=[DIVERSITY])
    assert shaped.ids == ["a", "b", "c"]
    assert shaped.notes == ("source_type 'C': 0 of at least 1",)


def test_protected_ids_have_their_place():
    """A protected hit at the end of the pool is among the first k, in its own order."""
    hits = [hit(f"h{n}", 1 - n / 10, document=str(n)) for n in range(6)]
    assert balance(hits, k=3, quotas=(), protected={"h5"}).ids == ["h0", "h1", "h5", "h2", "h3", "h4"]


@pytest.mark.parametrize("wrong", [{"at_most": 0}, {"share": 1.5}, {"at_least": -1}])
def test_wrong_quotas_are_refused(wrong):
    """A quota nobody can meet is refused when it is written."""
    with pytest.raises(InputError):
        Quota(key="document", **wrong)


def holds(chosen, hits, quota, k):
    counts = {}
    for one in chosen:
        counts[quota.value(one)] = counts.get(quota.value(one), 0) + 1
    wanted = dict(quota.required)
    for value in {quota.value(one) for one in hits}:
        wanted[value] = max(quota.at_least, wanted.get(value, 0))
    return all(n <= quota.cap(k) for n in counts.values()) and all(
        counts.get(value, 0) >= number for value, number in wanted.items()
    )


QUOTAS = st.builds(
    Quota,
    key=st.sampled_from(["document", "source_type"]),
    at_most=st.sampled_from([None, 1, 2, 3]),
    at_least=st.sampled_from([0, 1, 2]),
)


@given(pools(max_size=8), st.integers(0, 6), QUOTAS)
def test_one_quota_holds_whenever_it_can(hits, k, quota):
    """If any choice of k hits meets the quota, ours does; if none does, the notes say so."""
    shaped = balance(hits, k=k, quotas=[quota])
    size = min(k, len(hits))
    possible = any(holds(choice, hits, quota, k) for choice in combinations(hits, size))
    assert holds(shaped.kept[:size], hits, quota, k) == possible
    assert (not shaped.notes) == possible


@given(pools(max_size=8), st.integers(0, 6), st.sampled_from([1, 2]), st.sampled_from([0, 1, 2]))
def test_nested_quotas_hold_whenever_they_can(hits, k, most, least):
    """Documents of one source type each: both quotas hold together if any choice meets both."""
    # Nest by making the document's name part of its type.
    hits = [one.with_metadata(document=one.metadata["source_type"] + one.metadata["document"]) for one in hits]
    both = [Quota(key="document", at_most=most), Quota(key="source_type", at_least=least)]
    size = min(k, len(hits))
    chosen = balance(hits, k=k, quotas=both).kept[:size]
    if any(all(holds(choice, hits, one, k) for one in both) for choice in combinations(hits, size)):
        assert all(holds(chosen, hits, one, k) for one in both)


def test_who_was_passed_over_comes_before_those_behind():
    """Two quotas ask for the same places, which looks like too many; the first hit still gets one."""
    hits = [hit(f"b{n}", 0.9 - n / 100, document="b") for n in range(2)]
    hits += [hit(f"a{n}", 0.5 - n / 100, document="a") for n in range(3)]
    twice = [Quota(key="document", at_least=2), Quota(key="source_type", at_least=2)]
    once = balance(hits, k=4, quotas=twice, protected={"b1"})
    assert once.ids[:4] == ["b0", "b1", "a0", "a1"]
    assert balance(once.kept, k=4, quotas=twice, protected={"b1"}).ids == once.ids


@given(pools(), st.integers(0, 8), st.lists(QUOTAS, max_size=2), st.sets(st.integers(0, 9), max_size=4))
def test_balance_only_reorders(hits, k, quotas, wanted):
    """Nothing is lost, protected ids are in the first k while there is room, twice is once."""
    protected = {f"h{at:02}" for at in wanted} & {one.id for one in hits}
    once = balance(hits, k=k, quotas=quotas, protected=protected)
    assert everything(once) == sorted(one.id for one in hits)
    assert replays(once)
    assert len(protected & set(once.ids[:k])) == min(k, len(protected))
    assert balance(once.kept, k=k, quotas=quotas, protected=protected).ids == once.ids
