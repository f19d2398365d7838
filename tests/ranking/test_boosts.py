"""Recency and popularity: bounded, neutral without the field, monotone, the same at any time of the day."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resift
from resift.errors import InputError
from resift.ranking.boosts import Boost, Recency, boost, drop_filtered, parse_duration, read_date
from resift.types import Hit

NOW = datetime(2026, 1, 31, tzinfo=UTC)
DATES = st.one_of(
    st.none(), st.just("someday"), st.integers(0, 5000).map(lambda days: (NOW - timedelta(days=days)).isoformat())
)
VIEWS = st.one_of(st.none(), st.just("many"), st.integers(-5, 10**9))
SCORES = st.one_of(st.none(), st.floats(-10, 10).map(lambda score: round(score, 1)))


@st.composite
def hits(draw):
    rows = draw(st.lists(st.tuples(SCORES, DATES, VIEWS), max_size=12))
    return [Hit(f"d{i}", "t", score, metadata={"date": day, "views": n}) for i, (score, day, n) in enumerate(rows)]


@given(hits(), st.floats(0, 1), st.floats(0, 1))
def test_no_hit_gains_more_on_another_than_the_weights_allow(pool, weight, views_weight):
    rules = {"recency": Recency(weight=weight), "boosts": [Boost(field="views", weight=views_weight)]}
    result = boost(pool, **rules, now=NOW)
    assert sorted(result.ids) == sorted(hit.id for hit in pool)
    assert result == boost(pool, **rules, now=NOW)
    old = {hit.id: hit.score for hit in pool if hit.score is not None}
    new = {hit.id: hit.score for hit in result.kept if hit.score is not None}
    spread = (max(old.values()) - min(old.values()) if old else 0) or 1.0
    gains = [new[id] - old[id] for id in old]
    if gains:
        assert max(gains) - min(gains) <= (weight + views_weight) * spread + 1e-6
    for hit in pool:
        if hit.id in old and hit.metadata["date"] in (None, "someday") and hit.metadata["views"] in (None, "many"):
            assert new[hit.id] == pytest.approx(old[hit.id])
    [record] = result.records
    for id in old:
        assert new[id] == pytest.approx(sum(column[id] for column in record.parts.values()))


@given(st.integers(0, 5000), st.integers(0, 5000), st.sampled_from(["date", "views"]))
def test_newer_and_more_popular_is_never_worse(a, b, field):
    pool = [
        Hit(name, "t", 1.0, metadata={"date": (NOW - timedelta(days=n)).isoformat(), "views": 5000 - n})
        for name, n in (("a", a), ("b", b))
    ]
    rules = {"recency": Recency()} if field == "date" else {"boosts": [Boost(field="views")]}
    scores = {hit.id: hit.score for hit in boost(pool, **rules, now=NOW).kept}
    assert (scores["a"] >= scores["b"]) if a <= b else (scores["a"] <= scores["b"])


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.sampled_from(["official", "draft", "other", None])), max_size=8),
    st.dictionaries(st.sampled_from(["official", "draft"]), st.floats(-1, 1), max_size=2),
)
def test_values_never_lift_a_hit_above_a_better_one_by_more_than_declared(rows, values):
    pool = [Hit(f"d{i}", "t", score, metadata={"type": kind}) for i, (score, kind) in enumerate(rows)]
    rules = [Boost(field="type", values=values)]
    result = boost(pool, boosts=rules)
    assert result.ids == boost(list(reversed(pool)), boosts=rules).ids
    old = {hit.id: hit.score for hit in pool}
    spread = (max(old.values()) - min(old.values()) if old else 0.0) or 1.0
    declared = max([0.0, *values.values()]) - min([0.0, *values.values()])
    for i, better in enumerate(result.kept):
        for worse in result.kept[i + 1 :]:
            assert old[worse.id] - old[better.id] <= declared * spread + 1e-9
    kinds = {hit.id: hit.metadata["type"] for hit in pool}
    for hit in result.kept:
        if kinds[hit.id] not in values:
            assert hit.score == pytest.approx(old[hit.id])


def test_values_of_a_field_add_what_is_declared():
    pool = [Hit("a", "t", 1.0), Hit("b", "t", 0.9, metadata={"type": "official"}), Hit("c", "t", 0.0)]
    result = boost(pool, boosts=[Boost(field="type", values={"official": 0.3})])
    assert result.ids == ["b", "a", "c"]
    assert result.kept[0].score == pytest.approx(1.2)
    assert result.records[0].notes["b"] == "+0.3 for type"


def test_dates_and_durations_are_read_and_others_refused():
    assert read_date("2026-01-31") == NOW == read_date(NOW.timestamp()) == read_date(NOW.timestamp() * 1000)
    assert read_date(NOW.date()) == NOW
    assert read_date("x") is read_date(True) is read_date(None) is read_date([1]) is read_date(1e300) is None
    assert parse_duration("12h") * 2 == parse_duration("1d")
    for wrong in ({"half_life": "soon"}, {"half_life": "0d"}, {"weight": 2.0}, {"field": ""}):
        with pytest.raises(InputError):
            boost([], recency=Recency(**wrong))
    with pytest.raises(InputError, match="official"):
        boost([], boosts=[Boost(field="type", values={"official": 3})])


def test_rules_on_a_filtered_field_are_off():
    recency, boosts = Recency(), (Boost(field="views"), Boost(field="type", values={"a": 0.1}))
    assert drop_filtered({"date": {"gte": "2026"}}, recency, boosts) == (None, boosts)
    assert drop_filtered({"or": [{"type": "a"}, {"x": 1}]}, recency, boosts) == (recency, boosts[:1])


def test_a_pipeline_prefers_newer_documents_and_says_so(tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "stores:\n- {name: docs, kind: memory}\n"
        "shape:\n  recency: {field: day, half_life: 30d, weight: 0.5}\n"
        "  boosts:\n  - {field: type, values: {official: 0.3}}\n"
    )
    pipeline = resift.Pipeline.from_yaml(file)
    store = pipeline.stores[0].owner
    days = {"old": "2001-01-01", "new": "2999-01-01"}
    documents = [{"id": id, "text": "travel costs", "day": day} for id, day in days.items()]

    async def search(**options):
        await store.add(documents)
        return await pipeline.search("travel costs", **options)

    ranking = asyncio.run(search())
    assert ranking.ids == ["new", "old"]
    assert "recency (day)" in ranking.why("new")
    record = next(record for record in ranking.trace if record.name == "boost")
    assert record.parts["recency (day)"]["new"] > 0 > record.parts["recency (day)"]["old"]
    filtered = asyncio.run(search(where={"day": "2001-01-01"}))
    assert all(record.name != "boost" or "recency (day)" not in record.parts for record in filtered.trace)
