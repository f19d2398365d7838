"""SQLiteStore beyond the contract: durability, identity of the file, several processes, exactness."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resift.errors import InputError, StoreError
from resift.protocols import DocStore, VectorStore
from resift.stores.memory import MemoryStore
from resift.stores.sqlite import SQLiteStore, lexical_index
from tests.hardening.durability import crash_test
from tests.stores.factories import HashingEmbedder

ROOT = Path(__file__).resolve().parents[2]
DOCS = [{"id": f"d{n:02}", "text": " ".join(f"w{n * step % 17}" for step in range(1, 9))} for n in range(60)]


@contextlib.contextmanager
def opened(path: Path, **options: Any) -> Iterator[SQLiteStore]:
    store = SQLiteStore(path, create=not options.get("read_only"), **options)
    try:
        yield store
    finally:
        store.release()


def ids(hits: Any) -> list[str]:
    return [hit.id for hit in hits]


def test_one_file_holds_everything_and_opens_again(tmp_path: Path) -> None:
    """What one store wrote, another opened later finds, with the same ranking to the byte."""
    path = tmp_path / "one.db"
    with opened(path, embedder=HashingEmbedder()) as store:
        asyncio.run(store.add(DOCS))
        first = asyncio.run(store.search("w3 w5", k=20))
    assert [file.name for file in tmp_path.iterdir()] == ["one.db"]
    with opened(path, embedder=HashingEmbedder(), read_only=True) as store:
        assert asyncio.run(store.search("w3 w5", k=20)) == first


def test_text_scores_equal_the_reference_without_stemming(tmp_path: Path) -> None:
    """BM25 over the FTS5 index gives MemoryStore's scores."""
    reference = MemoryStore(language="none")
    asyncio.run(reference.add(DOCS))
    with opened(tmp_path / "a.db", language="none") as store:
        asyncio.run(store.add(DOCS))
        for query in ("w1", "w2 w3 w2", "W4 w9 w16"):
            expected = {hit.id: hit.score for hit in asyncio.run(reference.search(query, k=60))}
            found = {hit.id: hit.score for hit in asyncio.run(store.search(query, k=60))}
            assert found == pytest.approx(expected, rel=1e-12)


def test_without_numpy_the_text_ranking_is_the_same_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zero-dependency path is no second opinion."""
    with opened(tmp_path / "a.db") as store:
        asyncio.run(store.add([{**doc, "metadata": {"odd": n % 2}} for n, doc in enumerate(DOCS)]))
        queries = [("w1 w2", None), ("w5", {"odd": 1}), ("w0 w7 w16 w3", {"odd": [0, 1]}), ("zebra", None)]
        fast = [asyncio.run(store.search(query, k=7, where=where)) for query, where in queries]
    monkeypatch.setattr(lexical_index, "_numpy", lambda: None)
    with opened(tmp_path / "a.db") as store:
        slow = [asyncio.run(store.search(query, k=7, where=where)) for query, where in queries]
    assert slow == fast


def test_stemming_is_an_option_of_the_file(tmp_path: Path) -> None:
    """By default "running" finds "runs"; without stemming it does not."""
    doc = {"id": "a", "text": "She runs every morning"}
    with opened(tmp_path / "stem.db") as store:
        asyncio.run(store.add([doc]))
        assert ids(asyncio.run(store.search("running", k=1))) == ["a"]
    with opened(tmp_path / "plain.db", language="none") as store:
        asyncio.run(store.add([doc]))
        assert asyncio.run(store.search("running", k=1)) == []


def test_stop_words_count_only_when_alone(tmp_path: Path) -> None:
    """ "to be or not to be" is still a query."""
    with opened(tmp_path / "a.db") as store:
        asyncio.run(
            store.add([{"id": "hamlet", "text": "to be or not to be"}, {"id": "x", "text": "question of the day"}])
        )
        assert ids(asyncio.run(store.search("to be or not to be", k=5))) == ["hamlet"]
        assert ids(asyncio.run(store.search("to be the question", k=5))) == ["x"]


def test_a_store_that_is_not_closed_causes_no_warning(tmp_path: Path) -> None:
    """Python 3.13 and later warn of connections that the garbage collector closes."""
    code = """if True:
        import sys
        from resift import Index
        index = Index(sys.argv[1], text_only=True)
        index.add(["An anchor holds the boat."])
        del index
    """
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", code, str(tmp_path / "open.db")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_views_are_stores_of_their_own(tmp_path: Path) -> None:
    """`text` and `vectors` find by one way each, under their own names."""
    with opened(tmp_path / "a.db", embedder=HashingEmbedder()) as store:
        asyncio.run(store.add(DOCS))
        text, vectors = store.text, store.vectors
        assert isinstance(text, DocStore)
        assert isinstance(vectors, VectorStore)
        assert asyncio.run(text.search("w3", k=1))[0].source == "sqlite.text"
        assert asyncio.run(vectors.search("w3", k=1))[0].source == "sqlite.vectors"
        hybrid = asyncio.run(store.search("w3 w5", k=3))
        assert {hit.source for hit in hybrid} == {"sqlite"}
    with opened(tmp_path / "t.db") as store, pytest.raises(InputError, match="no embedder"):
        _ = store.vectors


@pytest.mark.parametrize("wrong", [{"k1": -1}, {"b": 1.5}, {"k1": float("nan")}])
def test_constants_outside_their_range_are_refused(tmp_path: Path, wrong: Any) -> None:
    """BM25 is defined for k1 ≥ 0 and b from 0 to 1."""
    with pytest.raises(InputError, match="k1 must be"):
        SQLiteStore(tmp_path / "a.db", **wrong)


@pytest.mark.parametrize("mode", ["hybrid", "vector"])
def test_modes_that_need_vectors_need_an_embedder(tmp_path: Path, mode: Any) -> None:
    """The mistake is found when the store is opened."""
    with pytest.raises(InputError, match="embedder="):
        SQLiteStore(tmp_path / "a.db", mode=mode)


def test_another_embedder_is_refused_by_name_and_dimension(tmp_path: Path) -> None:
    """The file remembers whose vectors it holds; the message says what to do."""
    path = tmp_path / "a.db"
    with opened(path, embedder=HashingEmbedder(64)) as store:
        asyncio.run(store.add(DOCS[:2]))
    with pytest.raises(StoreError, match=r"built with 'hashing-test' \(64 dimensions\), not with 'other'"):
        SQLiteStore(path, embedder=HashingEmbedder(64, name="other"))
    with opened(path, embedder=HashingEmbedder(32)) as store:
        with pytest.raises(StoreError, match="index again into a new file"):
            asyncio.run(store.search("w1", k=1))
        with pytest.raises(StoreError, match="32 dimensions"):
            asyncio.run(store.add([{"id": "new", "text": "w1"}]))
    with opened(path) as store:
        assert asyncio.run(store.search("w1", k=1))
        with pytest.raises(StoreError, match="open it with that embedder"):
            asyncio.run(store.add([{"id": "new", "text": "w1"}]))
    with opened(tmp_path / "words.db") as store:
        asyncio.run(store.add(DOCS[:1]))
    with pytest.raises(StoreError, match="built without an embedder"):
        SQLiteStore(tmp_path / "words.db", embedder=HashingEmbedder())


def test_unchanged_documents_are_not_embedded_again(tmp_path: Path) -> None:
    """The same text costs nothing twice; changed metadata keeps the vector."""
    embedder = HashingEmbedder()
    with opened(tmp_path / "a.db", embedder=embedder) as store:
        asyncio.run(store.add(DOCS))
        asyncio.run(store.add(DOCS))
        asyncio.run(store.add([{**DOCS[0], "metadata": {"new": 1}}]))
        assert [count for kind, count in embedder.asked if kind == "document"] == [len(DOCS)]
        best = asyncio.run(store.vectors.search(DOCS[0]["text"], k=60))
        assert {hit.id: hit.score for hit in best}["d00"] == pytest.approx(1.0)


@pytest.mark.parametrize("content", [b"this is no database, only text " * 200, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_refused_with_the_next_step(tmp_path: Path, content: bytes) -> None:
    """Nothing is overwritten; the message says what to do."""
    path = tmp_path / "notes.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"index again|a new file"):
        SQLiteStore(path)
    assert path.read_bytes() == content


def test_databases_of_others_and_of_the_future_are_left_alone(tmp_path: Path) -> None:
    """Another program's tables, or a newer schema, are not touched."""
    other = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreError, match="another program"):
        SQLiteStore(other)
    future = tmp_path / "future.db"
    SQLiteStore(future, create=True).release()
    with contextlib.closing(sqlite3.connect(future)) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(StoreError, match="schema version 99"):
        SQLiteStore(future)


def test_damage_found_while_searching_is_a_store_error(tmp_path: Path) -> None:
    """Overwritten pages raise StoreError, never a wrong answer or a crash."""
    path = tmp_path / "a.db"
    with opened(path) as store:
        asyncio.run(store.add([{"id": f"{n}", "text": f"bamboo {n} " * 40} for n in range(300)]))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192 * 2)
        file.write(b"\xa5" * (size - 8192 * 2))
    with pytest.raises(StoreError, match="move it away and index again"), opened(path) as store:
        asyncio.run(store.search("bamboo", k=3))


def test_paths_that_cannot_be_opened_say_why(tmp_path: Path) -> None:
    """A missing folder, a missing file for reading, a closed store."""
    with pytest.raises(StoreError, match="folder exists"):
        SQLiteStore(tmp_path / "no" / "where.db", create=True)
    for options in ({}, {"read_only": True}, {"read_only": True, "create": True}):
        with pytest.raises(StoreError, match=r"does not exist.*resift index"):
            SQLiteStore(tmp_path / "none.db", **options)
    assert not list(tmp_path.iterdir())
    with opened(tmp_path / "a.db") as store:
        pass
    with pytest.raises(StoreError, match="is closed"):
        asyncio.run(store.count())
    (tmp_path / "nothing.db").touch()
    with pytest.raises(StoreError, match="is empty"):
        SQLiteStore(tmp_path / "nothing.db", read_only=True)


def test_read_only_reads_and_refuses_writes(tmp_path: Path) -> None:
    """A read-only store finds everything and changes nothing."""
    path = tmp_path / "a.db"
    with opened(path) as writer:
        asyncio.run(writer.add(DOCS))
        with opened(path, read_only=True) as reader:
            assert asyncio.run(reader.count()) == len(DOCS)
            assert asyncio.run(reader.search("w1", k=3)) == asyncio.run(writer.search("w1", k=3))
            with pytest.raises(StoreError, match="read-only"):
                asyncio.run(reader.add(DOCS))


def test_a_reader_sees_each_commit_of_a_writer(tmp_path: Path) -> None:
    """Another connection's adds, updates and deletes show up in the next search, in words and vectors."""
    path = tmp_path / "a.db"
    with opened(path, embedder=HashingEmbedder()) as writer, opened(path, embedder=HashingEmbedder()) as reader:
        for step in range(12):
            asyncio.run(writer.add([{"id": f"n{step}", "text": f"unique{step} bamboo"}]))
            if step % 3 == 2:
                asyncio.run(writer.delete([f"n{step - 1}"]))
                asyncio.run(writer.add([{"id": f"n{step - 2}", "text": f"changed{step} bamboo"}]))
            for query in (f"unique{step}", f"changed{step}", "bamboo"):
                for mine, theirs in ((reader.text, writer.text), (reader.vectors, writer.vectors), (reader, writer)):
                    assert asyncio.run(mine.search(query, k=20)) == [*asyncio.run(theirs.search(query, k=20))]
        with opened(path, embedder=HashingEmbedder()) as fresh:
            assert asyncio.run(fresh.search("bamboo", k=20)) == asyncio.run(reader.search("bamboo", k=20))


def test_many_readers_while_one_writes(tmp_path: Path) -> None:
    """Every search during writes is consistent: each hit's text holds the word that was asked for."""
    path = tmp_path / "a.db"

    async def body() -> None:
        writer, reader = SQLiteStore(path, create=True), SQLiteStore(path, read_only=True)

        async def write() -> None:
            for step in range(30):
                await writer.add([{"id": f"r{n}", "text": f"bamboo round{step} {n}"} for n in range(10)])

        async def read() -> int:
            seen = 0
            for step in range(30):
                hits = await reader.search(f"bamboo round{step}", k=10)
                assert all("bamboo" in hit.text for hit in hits)
                rounds = {hit.text.split()[1] for hit in hits}
                assert len(rounds) <= 1  # a commit is seen whole or not at all
                seen += len(hits)
            return seen

        await asyncio.gather(write(), *(read() for _ in range(4)))
        await writer.close()
        await reader.close()

    asyncio.run(body())


WRITER = """
import asyncio, sys
from resift.stores.sqlite import SQLiteStore
async def main():
    store = SQLiteStore(sys.argv[1], create=True)
    for n in range(40):
        await store.add([{"id": f"{sys.argv[2]}-{n}", "text": f"bamboo {n}"}])
    await store.close()
asyncio.run(main())
"""


@pytest.mark.slow
def test_two_writer_processes_wait_for_each_other(tmp_path: Path) -> None:
    """Both create the file, both write, nothing is lost."""
    path = str(tmp_path / "a.db")
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, name]) for name in ("a", "b")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    with opened(tmp_path / "a.db") as store:
        assert asyncio.run(store.count()) == 80
        assert len(asyncio.run(store.search("bamboo", k=100))) == 80


SEARCHER = """
import asyncio, sys
from resift.stores.sqlite import SQLiteStore
from resift.types import to_json
from tests.stores.factories import HashingEmbedder
store = SQLiteStore(sys.argv[1], embedder=HashingEmbedder(), read_only=True)
print(to_json([[h.to_dict() for h in asyncio.run(store.search(q, k=30))] for q in ("w1 w2", "w3", "w16 w0 w5")]))
store.release()
"""


@pytest.mark.slow
def test_two_processes_give_byte_identical_rankings(tmp_path: Path) -> None:
    """Whatever the history of the file in a process's memory, the bytes of an answer are the same."""
    path = tmp_path / "a.db"
    with opened(path, embedder=HashingEmbedder()) as store:
        asyncio.run(store.add(DOCS))
        asyncio.run(store.search("w1", k=3))
        asyncio.run(store.delete(["d07", "d21"]))
        asyncio.run(store.add([{"id": "d03", "text": "w1 w2 w3"}]))
        command = [sys.executable, "-c", SEARCHER, str(path)]
        other = subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout
        from resift.types import to_json

        here = [[hit.to_dict() for hit in asyncio.run(store.search(q, k=30))] for q in ("w1 w2", "w3", "w16 w0 w5")]
    assert other == (to_json(here) + "\n").encode()


@pytest.mark.slow
def test_kill_9_while_indexing_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """Two kills here; `python -m tests.hardening.durability --kills 100` does the rest."""
    report = crash_test(tmp_path, kills=2, seed=11)
    assert report["lost"] == 0
    assert report["equals_an_uninterrupted_index"]
    assert report["acknowledged"] > 0


def test_wrong_text_is_refused_and_nothing_of_it_stays(tmp_path: Path) -> None:
    """Half a surrogate pair cannot be stored; the rest of its batch is not stored either."""
    with opened(tmp_path / "a.db") as store:
        with pytest.raises(InputError, match="surrogate"):
            asyncio.run(store.add([{"id": "ok", "text": "fine"}, {"id": "bad", "text": "\ud800"}]))
        assert asyncio.run(store.count()) == 0
        with pytest.raises(InputError, match="JSON"):
            asyncio.run(store.add([{"id": "odd", "text": "x", "metadata": {"value": object()}}]))


def test_a_vector_never_outlives_its_text(tmp_path: Path) -> None:
    """Another writer changes a text between our comparison and our write: it is embedded after all."""
    path = tmp_path / "a.db"
    with opened(path, embedder=HashingEmbedder()) as mine, opened(path, embedder=HashingEmbedder()) as other:
        for theirs in ([{"id": "a", "text": "trains cross mountains"}], []):
            asyncio.run(mine.add([{"id": "a", "text": "pandas eat bamboo"}]))
            changed = [{"id": "a", "text": "pandas eat bamboo", "metadata": {"n": 1}}]
            batch = asyncio.run(mine.prepare(changed))
            asyncio.run(other.add(theirs) if theirs else other.delete(["a"]))
            asyncio.run(mine.write(batch))
            (hit,) = asyncio.run(other.vectors.search("pandas eat bamboo", k=1))
            assert (hit.metadata, hit.score) == ({"n": 1}, pytest.approx(1.0))


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("exact", [None, True, False])
def test_a_view_kept_in_step_equals_one_read_anew(tmp_path: Path, seed: int, exact: bool | None) -> None:
    """After any mix of adds, updates and deletes, also over block borders, nothing differs."""
    chance = random.Random(seed)
    path = tmp_path / "a.db"
    with (
        opened(path, embedder=HashingEmbedder(), exact=exact) as writer,
        opened(path, embedder=HashingEmbedder(), exact=exact) as reader,
    ):
        crowd = [{"id": f"c{n}", "text": f"w{n % 17} w{n % 5}"} for n in range(1100)]
        asyncio.run(writer.add(crowd))
        for step in range(25):
            if step == 12:
                asyncio.run(writer.delete([doc["id"] for doc in crowd]))
            some = [chance.choice(DOCS) for _ in range(chance.randrange(1, 6))]
            if chance.random() < 0.5:
                texts = {doc["id"]: f"{doc['text']} w{chance.randrange(17)}" for doc in some}
                asyncio.run(writer.add([{"id": id, "text": text} for id, text in texts.items()]))
            else:
                asyncio.run(writer.delete([doc["id"] for doc in some]))
            if chance.random() < 0.3:
                continue  # the reader lags behind
            with opened(path, embedder=HashingEmbedder(), exact=exact) as fresh:
                for old, new in ((reader.text, fresh.text), (reader.vectors, fresh.vectors)):
                    assert asyncio.run(old.search("w3 w5", k=70)) == asyncio.run(new.search("w3 w5", k=70))


WITHOUT_NUMPY = """
import asyncio, sys
sys.modules["numpy"] = None
from resift.stores.sqlite import SQLiteStore
store = SQLiteStore(sys.argv[1], create=True)
asyncio.run(store.add([{"id": "a", "text": "pandas eat bamboo"}, {"id": "b", "text": "trains"}]))
print([hit.id for hit in asyncio.run(store.search("panda", k=5))])
store.release()
"""


def test_words_need_no_package_at_all(tmp_path: Path) -> None:
    """Where numpy is not installed, an index of words works all the same."""
    command = [sys.executable, "-W", "error", "-c", WITHOUT_NUMPY, str(tmp_path / "a.db")]
    assert subprocess.run(command, capture_output=True, check=True).stdout.strip() == b"['a']"
