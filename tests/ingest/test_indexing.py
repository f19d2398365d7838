"""Indexing: only what changed, nothing left behind, one bad file stops nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resift.errors import DataFormatError, InputError, StoreError
from resift.ingest.chunking import ChunkSize
from resift.ingest.indexing import FileReport, IndexReport, index_paths, open_index
from resift.ingest.worker import FileReader
from resift.stores.sqlite import SQLiteStore
from tests.stores.factories import HashingEmbedder

SMALL = ChunkSize(12, 3)


class Workplace:
    """A folder of files, its index, and the embedder that counts what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "files"
        self.files.mkdir()
        self.path = folder / "index.db"
        self.embedder = HashingEmbedder()

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.files / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def index(self, **options: Any) -> IndexReport:
        return self.use(lambda store: index_paths(store, [self.files], **{"size": SMALL, **options}))

    def use(self, work: Callable[[SQLiteStore], Any]) -> Any:
        async def inside() -> Any:
            store = SQLiteStore(self.path, embedder=self.embedder, create=True)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(inside())

    @property
    def embedded(self) -> int:
        return sum(count for _, count in self.embedder.asked)


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def outcomes(report: IndexReport) -> dict[str, str]:
    return {Path(file.path).name: file.outcome for file in report.files}


def sentences(prefix: str, count: int) -> str:
    return " ".join(f"{prefix} sentence number {n} says something of note." for n in range(count))


def test_a_second_run_skips_what_did_not_change(workplace: Workplace) -> None:
    workplace.write("a.txt", sentences("First", 5))
    workplace.write("b.md", "# Head\n" + sentences("Second", 3))
    first = workplace.index()
    assert outcomes(first) == {"a.txt": "indexed", "b.md": "indexed"}
    asked = workplace.embedded
    second = workplace.index()
    assert outcomes(second) == {"a.txt": "unchanged", "b.md": "unchanged"}
    assert workplace.embedded == asked
    assert second.documents == first.documents == sum(file.chunks for file in first.files)


def test_a_changed_file_is_replaced_and_only_its_new_chunks_are_embedded(workplace: Workplace) -> None:
    workplace.write("a.txt", sentences("Old", 6))
    workplace.index()
    asked = workplace.embedded
    workplace.write("a.txt", sentences("Old", 5) + " Entirely new ending about walruses on ice.")
    report = workplace.index()
    assert outcomes(report) == {"a.txt": "indexed"}
    assert 0 < workplace.embedded - asked < report.files[0].chunks
    assert report.documents == report.files[0].chunks
    texts = [hit.text for hit in workplace.use(lambda store: store.search("sentence number walruses", k=50))]
    assert any("walruses" in text for text in texts)
    assert not any("number 5" in text for text in texts)


def test_ids_do_not_depend_on_the_current_folder(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    workplace.write("a.txt", sentences("Same", 4))
    workplace.index()
    before = workplace.use(lambda store: store.ids())
    monkeypatch.chdir(workplace.files)
    report = workplace.use(lambda store: index_paths(store, [Path("a.txt")], size=SMALL))
    assert report.count("unchanged") == 1
    assert all(id.startswith("files/a.txt#") for id in before)


def test_the_same_paragraph_twice_is_two_chunks(workplace: Workplace) -> None:
    workplace.write("a.txt", "\n\n".join(["Again and again the very same paragraph of exactly ten words."] * 3))
    report = workplace.index(size=ChunkSize(11, 0))
    assert report.documents == 3


def test_files_that_are_gone_stay_until_pruned(workplace: Workplace) -> None:
    workplace.write("a.txt", "Stays.")
    workplace.write("b.txt", "Goes.")
    workplace.index()
    (workplace.files / "b.txt").unlink()
    assert workplace.index().documents == 2
    report = workplace.index(prune=True)
    assert outcomes(report) == {"a.txt": "unchanged", "b.txt": "removed"}
    assert report.documents == 1
    part = workplace.use(lambda store: index_paths(store, [workplace.write("c.txt", "New.")], prune=True))
    assert part.documents == 2  # a.txt was not named, but it is not gone


def test_a_bad_file_does_not_stop_the_others(workplace: Workplace) -> None:
    workplace.write("a.txt", b"\0\1\2binary")
    workplace.write("b.jsonl", '{"text": "fine"}\nnot json\n')
    workplace.write("c.txt", "Käse".encode("cp1252"))
    workplace.write("d.txt", "")
    workplace.write("e.txt", "Good.")
    report = workplace.index()
    assert outcomes(report) == {
        "b.jsonl": "partial", "c.txt": "indexed", "d.txt": "empty", "e.txt": "indexed",
    }  # fmt: skip
    reasons = {Path(file.path).name: file.reason for file in report.files if file.reason}
    assert report.reasons() == {"not text": 1}
    assert "b.jsonl: line 2: not a JSON object" in reasons["b.jsonl"]
    assert report.files[1].flags == ("not UTF-8, read as Windows-1252",)


def test_an_interrupted_run_resumes(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that dies between batches leaves whole batches; the next embeds only what is missing."""
    workplace.write("a.jsonl", "\n".join(f'{{"id": "r{n}", "text": "row {n} of many"}}' for n in range(300)))
    real = SQLiteStore.write
    calls = 0

    async def dying(store: SQLiteStore, batch: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise StoreError("the power is gone")
        await real(store, batch)

    monkeypatch.setattr(SQLiteStore, "write", dying)
    with pytest.raises(StoreError):
        workplace.index()
    monkeypatch.undo()
    assert workplace.use(lambda store: store.count()) == 192
    asked = workplace.embedded
    assert workplace.index().documents == 300
    assert workplace.embedded - asked == 300 - 192


def test_later_files_are_embedded_while_earlier_ones_are_written(workplace: Workplace) -> None:
    """A store that takes its time to write finds the next files embedded; short files share a commit."""
    for number in range(150):
        workplace.write(f"{number:03}.txt", f"Text number {number}.")
    groups: list[int] = []
    ahead: list[int] = []
    passages: list[int] = []

    class Slow(SQLiteStore):
        async def write(self, batch: Any) -> None:
            groups.append(len(batch.hits))
            for _ in range(2000):  # turns of the loop, in which others may work
                if workplace.embedded > sum(groups) or sum(groups) == 150:
                    break
                await asyncio.sleep(0.001)
            ahead.append(workplace.embedded - sum(groups))
            await super().write(batch)

    async def body() -> IndexReport:
        store = Slow(workplace.path, embedder=workplace.embedder, create=True)
        try:
            return await index_paths(store, [workplace.files], written=passages.append)
        finally:
            await store.close()

    report = asyncio.run(body())
    assert [Path(file.path).name for file in report.files] == [f"{number:03}.txt" for number in range(150)]
    assert sum(groups) == sum(passages) == report.documents == workplace.embedded == 150
    assert len(groups) < 15
    assert min(ahead[:-1]) >= 1


def test_an_id_belongs_to_the_first_file_despite_reading_ahead(workplace: Workplace) -> None:
    for name in ("a", "b", "c"):
        workplace.write(f"{name}.jsonl", f'{{"id": "same", "text": "row of {name}"}}\n')
    report = workplace.index()
    assert outcomes(report) == {"a.jsonl": "indexed", "b.jsonl": "partial", "c.jsonl": "partial"}
    assert "belongs to file files/a.jsonl" in report.files[1].reason
    assert [hit.text for hit in workplace.use(lambda store: store.get(["same"]))] == ["row of a"]


def test_other_chunk_sizes_index_again(workplace: Workplace) -> None:
    workplace.write("a.txt", sentences("Some", 20))
    few = workplace.index(size=ChunkSize(100, 10)).documents
    report = workplace.index(size=ChunkSize(10, 0))
    assert outcomes(report) == {"a.txt": "indexed"}
    assert report.documents > few


def test_an_empty_folder_is_a_clear_error(workplace: Workplace) -> None:
    with pytest.raises(InputError, match="Nothing to index"):
        workplace.index()


def test_open_index_takes_the_embedder_of_the_file(tmp_path: Path) -> None:
    """A file of words only is opened as such; another embedder than the file's is refused."""
    path = tmp_path / "words.db"
    store = open_index(path, text_only=True)
    asyncio.run(store.add([{"id": "a", "text": "bamboo"}]))
    store.release()
    again = open_index(path, read_only=True)
    assert again.mode == "text"
    again.release()
    with pytest.raises(StoreError, match="no embedder"):
        open_index(path, embedder="BAAI/bge-small-en-v1.5")
    with pytest.raises(StoreError, match="does not exist"):
        open_index(tmp_path / "none.db", read_only=True)


def test_the_error_for_a_foreign_embedder_explains_how_to_open_the_index(tmp_path: Path) -> None:
    path = tmp_path / "own.db"
    embedder = HashingEmbedder()
    embedder.model_name = "acme/own"
    store = SQLiteStore(path, embedder=embedder, create=True)
    asyncio.run(store.add([{"id": "a", "text": "bamboo"}]))
    store.release()
    with pytest.raises(StoreError, match=r"built with acme/own, .*text_only=True"):
        open_index(path)
    assert open_index(path, text_only=True).mode == "text"


def test_a_missing_parser_is_reported_once():
    """Other failures are reported for each file."""
    missing = "'pypdf' is not installed. Run: pip install 'resift[files]'"
    reasons = {"a.pdf": missing, "b.pdf": missing, "c.csv": "Not CSV.", "d.csv": "Not CSV."}
    files = [FileReport(path, "failed", reason=f"{path}: {reason}") for path, reason in reasons.items()]
    assert IndexReport((*files, FileReport("e.md", "indexed"))).failures() == [
        f"2 files, such as a.pdf: {missing}",
        "c.csv: Not CSV.",
        "d.csv: Not CSV.",
    ]


def test_passages_of_a_wide_row_repeat_few_of_its_fields(workplace):
    # Every passage of one row with 300,000 columns repeated 16,000 characters of them: 255 MB for a file of 2.9 MB.
    columns = range(2_000)
    workplace.write("wide.csv", ",".join(f"c{i}" for i in columns) + "\n" + ",".join("v" for _ in columns) + "\n")
    report = workplace.index()
    ids = workplace.use(lambda store: store.ids({"path": "files/wide.csv"}))
    hits = workplace.use(lambda store: store.get(ids))
    widths = sorted(len(hit.metadata) for hit in hits)
    assert report.documents == len(ids) > 100
    assert widths[-2] < 110
    assert widths[-1] >= len(columns)


def test_a_file_that_fails_after_some_passages_is_reported_with_them(workplace, monkeypatch):
    rows = [f'{{"text": "row {i} has some words in it"}}' for i in range(300)]
    workplace.write("rows.jsonl", "\n".join(rows))

    async def fail_late(self, path, **options):
        async for section in read(self, path, **options):
            if section.metadata["line"] > 200:
                raise DataFormatError("Takes more than 60 s to read.", file="rows.jsonl")
            yield section

    with monkeypatch.context() as patch:
        read = FileReader.sections
        patch.setattr(FileReader, "sections", fail_late)
        report = workplace.index()
    (file,) = report.files
    assert (file.outcome, file.chunks) == ("partial", report.documents)
    assert file.chunks > 100
    assert "60 s" in file.reason
    assert outcomes(workplace.index()) == {"rows.jsonl": "indexed"}
