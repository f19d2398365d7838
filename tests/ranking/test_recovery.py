"""Recovery: protected hits and required source types survive the cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resift.errors import InputError
from resift.ranking.shape import Recovery, recover
from tests.ranking.pools import everything, hit, note, pools, replays


def test_up_to_eight_protected_hits_come_back():
    """Ten Stage B chunks fell below the keep-count of three; the best eight return, in order."""
    hits = [hit(f"a{n}", 0.9, stage="A") for n in range(4)] + [hit(f"b{n}", 0.5, stage="B") for n in range(10)]
    shaped = recover(hits, k=3)
    assert shaped.ids == ["a0", "a1", "a2", *(f"b{n}" for n in range(8))]
    assert [one.id for one in shaped.cut] == ["a3", "b8", "b9"]
    assert shaped.protected == {f"b{n}" for n in range(8)}
    assert note(shaped, shaped.kept[3].id) == "recovered: protected by stage=B"


def test_survivor_floor_of_a_section():
    """An Excel-required section keeps two Excel chunks although the reranker wants none."""
    hits = [hit(f"p{n}", 0.9) for n in range(5)] + [hit(f"x{n}", 0.1, "EXCEL") for n in range(3)]
    policy = Recovery(survivors={"financial_analysis": {"EXCEL": 2}})
    assert recover(hits, k=3, policy=policy, section="financial_analysis").ids == ["p0", "p1", "p2", "x0", "x1"]
    assert recover(hits, k=3, policy=policy, section="risk_market").ids == ["p0", "p1", "p2"]


def test_wrong_numbers_are_refused():
    """Neither a negative cut nor a negative limit."""
    with pytest.raises(InputError):
        recover([], k=-1)
    with pytest.raises(InputError):
        Recovery(limit=-1)


@given(pools(), st.integers(0, 8), st.integers(0, 8), st.integers(0, 3))
def test_recovery_over_random_pools(hits, k, limit, needed):
    """The first k stay, at most `limit` protected return, required types survive, twice is once."""
    policy = Recovery(limit=limit, survivors={"s": {"EXCEL": needed}})
    once = recover(hits, k=k, policy=policy, section="s")
    assert everything(once) == sorted(one.id for one in hits)
    assert replays(once)
    assert once.ids[: min(k, len(hits))] == [one.id for one in hits[:k]]
    assert len(once.kept) <= k + limit + needed
    excel = [one for one in hits if one.metadata["source_type"] == "EXCEL"]
    assert sum(one.metadata["source_type"] == "EXCEL" for one in once.kept) >= min(needed, len(excel))
    stage_b = [one for one in hits[k:] if one.metadata["stage"] == "B"]
    assert sum(one.metadata["stage"] == "B" for one in once.kept[k:]) >= min(limit, len(stage_b))
    assert recover(once.kept, k=k, policy=policy, section="s").ids == once.ids
