"""Building packs: links of every kind, half builds, bad sources, facts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap

import ladybug
import pytest

from resift.agent import Pack, build_pack
from resift.errors import DataFormatError, InputError, StoreError
from tests.agent.small import WordEmbedder, write_sources
from tests.ingest.samples import docx
from tests.ingest.test_reading import small_pdf


def links_of(path):
    pack = Pack.open(path)
    try:
        ids = set(pack.vectors().articles)
        return {(one, other) for one, other, _ in pack.links_among(ids)}
    finally:
        pack.close()


def test_links_of_every_kind_are_found(pack_file):
    """Wiki-links, Markdown links, hrefs and lists; navigation and links to nowhere do not count."""
    assert links_of(pack_file) == {
        ("apple.md", "apple-tree.md"),
        ("apple.md", "pear.md"),
        ("apple-tree.md", "bee.html"),
        ("pear.md", "apple-tree.md"),
        ("bee.html", "apple-tree.md"),
        ("Honey", "bee.html"),
        ("Honey", "apple.md"),
        ("w1", "bee.html"),
        ("Candle", "w1"),
    }


def test_a_pack_describes_itself(pack_file):
    """Counts, embedder, dimension, version and the most linked articles."""
    pack = Pack.open(pack_file)
    info = pack.info()
    pack.close()
    assert (info.articles, info.links, info.embedder, info.dimension, info.version) == (7, 9, "test/words", 64, 1)
    assert info.most_linked[0] == ("Apple tree", 3) or info.most_linked[0] == ("Bee", 3)
    assert info.sections == 8


def test_texts_contain_no_link_syntax(pack_file):
    """Words of links stay, marks go, headings lead the passage."""
    pack = Pack.open(pack_file)
    row = pack.sections(["apple-tree.md#1"])[0]
    assert row.text == "The apple tree blossoms in May. Bees visit its flowers, see the bee."
    assert pack.sections(["apple.md#2"])[0].heading == "Apple › Storage"
    assert pack.sections(["w1#1"])[0].heading == "Wax › Use"
    pack.close()


def test_a_failed_build_resumes(tmp_path):
    """Committed articles are not embedded again, and no target appears before the end."""
    source = tmp_path / "many.jsonl"
    rows = [{"id": str(at), "title": f"Title {at}", "text": f"Text number {at}."} for at in range(100)]
    source.write_text("\n".join(map(json.dumps, rows)))
    target = tmp_path / "many.lbug"
    with pytest.raises(RuntimeError, match="embedder down"):
        asyncio.run(build_pack(source, target, embedder=WordEmbedder(fail_after=70)))
    assert not target.exists()
    again = WordEmbedder()
    report = asyncio.run(build_pack(source, target, embedder=again))
    assert (report.articles, report.resumed) == (100, 64)
    assert sum(again.calls) == 36 + 1  # one text more to learn the dimension
    assert [path.name for path in tmp_path.iterdir() if "building" in path.name] == []


@pytest.mark.slow
def test_a_killed_build_resumes(tmp_path):
    """SIGKILL in the middle costs at most the last batch."""
    source = tmp_path / "many.jsonl"
    rows = [{"id": str(at), "title": f"Title {at}", "text": f"Text {at}."} for at in range(200)]
    source.write_text("\n".join(map(json.dumps, rows)))
    program = textwrap.dedent("""
        import asyncio, os, signal, sys
        from resift.agent import build_pack
        from tests.agent.small import WordEmbedder
        class Deadly(WordEmbedder):
            async def embed(self, texts, *, kind):
                if sum(self.calls) > 100:
                    os.kill(os.getpid(), signal.SIGKILL)
                return await super().embed(texts, kind=kind)
        asyncio.run(build_pack(sys.argv[1], sys.argv[2], embedder=Deadly()))
    """)
    target = tmp_path / "many.lbug"
    path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")]))
    killed = subprocess.run(
        [sys.executable, "-c", program, str(source), str(target)], env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    report = asyncio.run(build_pack(source, target, embedder=WordEmbedder()))
    assert report.articles == 200
    assert report.resumed == 128  # four batches of 32; the fifth died with the process
    pack = Pack.open(target)
    assert pack.info().sections == 200
    pack.close()


def test_a_changed_source_starts_over(tmp_path):
    """What was committed from other texts is never mixed in."""
    source = tmp_path / "many.jsonl"
    rows = [{"id": str(at), "title": f"Title {at}", "text": f"Old {at}."} for at in range(40)]
    source.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(RuntimeError):
        asyncio.run(build_pack(source, tmp_path / "p.lbug", embedder=WordEmbedder(fail_after=35)))
    source.write_text(json.dumps({"title": "New", "text": "New text."}))
    report = asyncio.run(build_pack(source, tmp_path / "p.lbug", embedder=WordEmbedder()))
    assert (report.articles, report.resumed) == (1, 0)


def test_unreadable_files_are_reported_and_the_rest_is_built(tmp_path):
    """One bad file costs itself."""
    folder = write_sources(tmp_path / "sources")
    (folder / "broken.jsonl").write_text('{"title": "x", "text": \n')
    (folder / "binary.md").write_bytes(bytes(range(256)) * 10)
    report = asyncio.run(build_pack(folder, tmp_path / "p.lbug", embedder=WordEmbedder()))
    assert report.articles == 7
    assert sorted(one.partition(":")[0] for one in report.failed) == ["binary.md", "broken.jsonl"]


def test_a_target_that_is_not_a_file_is_not_replaced(tmp_path):
    write_sources(tmp_path / "sources")
    for make in (os.mkfifo, os.mkdir):
        target = tmp_path / make.__name__
        make(target)
        before = target.stat()
        with pytest.raises(InputError, match="not a file"):
            asyncio.run(build_pack(tmp_path / "sources", target, embedder=WordEmbedder()))
        assert target.stat().st_ino == before.st_ino


def test_sources_without_articles_are_refused(tmp_path):
    """Nothing to read, nothing there: said before any work."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataFormatError, match="No readable files"):
        asyncio.run(build_pack(tmp_path / "empty", tmp_path / "p.lbug", embedder=WordEmbedder()))
    with pytest.raises(DataFormatError, match="No such"):
        asyncio.run(build_pack(tmp_path / "nowhere", tmp_path / "p.lbug", embedder=WordEmbedder()))
    (tmp_path / "none.jsonl").write_text("\n")
    with pytest.raises(InputError, match="no article"):
        asyncio.run(build_pack(tmp_path / "none.jsonl", tmp_path / "p.lbug", embedder=WordEmbedder()))


def test_other_files_are_refused(tmp_path):
    """No file, another file, another database, a newer pack: each with what to do."""
    with pytest.raises(StoreError, match="resift graph build"):
        Pack.open(tmp_path / "no.lbug")
    (tmp_path / "text.lbug").write_text("not a database")
    with pytest.raises(StoreError, match="not a knowledge pack"):
        Pack.open(tmp_path / "text.lbug")
    database = ladybug.Database(str(tmp_path / "other.lbug"))
    connection = ladybug.Connection(database)
    connection.execute("CREATE NODE TABLE Person(name STRING PRIMARY KEY)")
    connection.close()
    database.close()
    with pytest.raises(StoreError, match="not a pack"):
        Pack.open(tmp_path / "other.lbug")


def test_hostile_titles_and_texts_are_data(tmp_path):
    """Cypher, quotes, control characters and lone surrogates in a source end up as text."""
    rows = [
        {
            "id": "'}) DETACH DELETE a //",
            "title": "x'}) MATCH (n) DETACH DELETE n //",
            "text": "a \u0000\u0007 b \ud800.",
        },
        {"title": '"; DROP TABLE Article; --', "text": "Second $rows {id: 1}."},
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join(map(json.dumps, rows)))
    report = asyncio.run(build_pack(source, tmp_path / "p.lbug", embedder=WordEmbedder()))
    assert report.articles == 2
    pack = Pack.open(tmp_path / "p.lbug")
    assert pack.info().articles == 2
    pack.close()


def test_a_build_leaves_other_files_next_to_the_pack_alone(tmp_path):
    """Only the file under construction and the files of the engine next to it are removed."""
    from resift.agent.pack_build import _remove_working_file

    working = tmp_path / "notes.lbug.building"
    ours = [working, tmp_path / "notes.lbug.building.wal"]
    foreign = [
        tmp_path / name for name in ("notes.lbug.building.txt", "notes.lbug.buildings", "notes.lbug.building-plan")
    ]
    for path in (*ours, *foreign):
        path.write_text("x")
    _remove_working_file(working)
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in foreign)


@pytest.mark.slow
def test_every_kind_of_file_is_read_and_skipped_files_are_reported(tmp_path):
    """Word, PDF and tables become articles; pictures and empty files are named, not passed over."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "travel.md").write_text("# Travel\n\nTrains are booked by the office.\n")
    (notes / "policy.docx").write_bytes(docx(("", "Visitors wear a yellow badge.")))
    (notes / "manual.pdf").write_bytes(small_pdf("The pump runs at twelve volts."))
    (notes / "parts.csv").write_text("id,title,text\np1,Valve,A valve of brass.\n")
    (notes / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(100))
    (notes / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    target = tmp_path / "n.lbug"
    report = asyncio.run(build_pack(notes, target, embedder=WordEmbedder()))
    pack = Pack.open(target)
    texts = " ".join(text for _, text in pack.texts())
    pack.close()
    for said in ("yellow badge", "twelve volts", "valve of brass", "booked by the office"):
        assert said in texts
    assert any("photo.jpg" in one for one in report.not_read)
    assert [one.split(":")[0] for one in report.failed] == ["broken.pdf"]
