"""One reader of records: the same record has the same text in every entry point."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import resift
from resift import Hit, Index
from resift.batch import IndexWork, RerankWork
from resift.batch.work_kinds import candidate_text as batch_candidate_text
from resift.cli.main import main
from resift.cli.rerank import read_documents
from resift.errors import InputError
from resift.external.candidates import read_hits
from resift.external.records import no_text, read_metadata, read_text
from resift.server.rerank_routes import read_texts
from resift.types import Scores
from tests.ingest.test_reading import small_pdf

SHAPES: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({"text": "needle one"}, "needle one", ("text",)),
    ({"title": "Alpha"}, "Alpha", ("title",)),
    ({"title": "Alpha", "text": "needle one"}, "Alpha\n\nneedle one", ("title", "text")),
    ({"text": "needle one", "title": "Alpha"}, "Alpha\n\nneedle one", ("title", "text")),
    ({"title": "Alpha", "content": "needle"}, "Alpha\n\nneedle", ("title", "content")),
    ({"title": "Alpha", "body": "needle"}, "Alpha\n\nneedle", ("title", "body")),
    ({"title": "Alpha", "description": "needle"}, "Alpha\n\nneedle", ("title", "description")),
    ({"title": "Alpha", "abstract": "needle"}, "Alpha\n\nneedle", ("title", "abstract")),
    ({"title": "Alpha", "summary": "needle"}, "Alpha\n\nneedle", ("title", "summary")),
    ({"Title": "Alpha", "Body": "needle"}, "Alpha\n\nneedle", ("Title", "Body")),
    ({"question": "Why?", "answer": "needle"}, "Why?\n\nneedle", ("question", "answer")),
    ({"name": "Pump", "description": "needle", "price": "12"}, "Pump\n\nneedle", ("name", "description")),
    ({"subject": "Re: pump", "message": "needle"}, "Re: pump\n\nneedle", ("subject", "message")),
    ({"title": "A", "abstract": "needle", "body": "thread"}, "A\n\nneedle\n\nthread", ("title", "abstract", "body")),
    ({"text": "same", "content": "same"}, "same", ("text", "content")),
    (
        {"title": "A", "zusatz": "Die Pumpe ist defekt und muss bald ersetzt werden"},
        "A\n\nDie Pumpe ist defekt und muss bald ersetzt werden",
        ("title", "zusatz"),
    ),
    (
        {"title": "A", "text": "b", "url": "https://example.org/a-b-c-d-e-f-g-h-i", "lang": "en", "day": "2024-03-01"},
        "A\n\nb",
        ("title", "text"),
    ),
    ({"remark": "Pump is broken"}, "Pump is broken", ("remark",)),
    ({"titel": "Säge", "beschreibung": "Keine Garantie"}, "Säge\n\nKeine Garantie", ("titel", "beschreibung")),
    ({"nombre": "Sierra", "descripción": "Sin garantía"}, "Sierra\n\nSin garantía", ("nombre", "descripción")),
]
NESTED: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    (
        {"title": "A", "paragraphs": ["the pump is leaking oil again", "replace it"], "tags": ["a", "b"]},
        "A\n\nthe pump is leaking oil again\n\nreplace it",
        ("title", "paragraphs"),
    ),
    (
        {"title": "A", "sections": [{"heading": "B", "text": "the pump is leaking oil again"}]},
        "A\n\nB\n\nthe pump is leaking oil again",
        ("title", "sections"),
    ),
    ({"_score": 2.5, "_source": {"title": "A", "body": "b"}}, "A\n\nb", ("title", "body")),
    ({"payload": {"page_content": "b", "lang": "en"}}, "b", ("payload.page_content",)),
    ({"title": "A", "fields": {"body": "b"}}, "A\n\nb", ("title", "fields.body")),
    ({"title": "A", "author": {"name": "Bob"}}, "A", ("title",)),
    ({"content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]}, "b\n\nc", ("content",)),
    ({"metadata": {"text": "b"}}, "b", ("metadata.text",)),
    ({"text": "a", "metadata": {"text": "b"}}, "a", ("text",)),
    ({"price": 3, "vector": [1.0, 2.0]}, "", ()),
    ({"id": "a", "score": 1.0, "source": "one two three four five six seven eight nine"}, "", ()),
]


class Reads:
    """A scorer that keeps the texts it was given."""

    name = "reads"

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def score(self, query: str, hits: list[Hit], *, deadline: object) -> Scores:
        self.texts = [hit.text for hit in hits]
        return Scores([0.0] * len(hits), self.name)


def everywhere(record: dict[str, Any], folder: Path) -> dict[str, str]:
    """Return the text of a record as each entry point reads it."""
    named = {"id": "a", **record}
    found = {"read_hits": read_hits([named])[0].text, "server": read_texts([named])[0]}
    scorer = Reads()
    resift.rerank("q", [named], scorer=scorer)
    found["rerank"] = scorer.texts[0]
    found["fuse"] = resift.fuse([[named]])[0].text
    [chunk] = IndexWork().split({**named, "row": 0})
    found["batch index"] = chunk["text"]
    found["batch rerank"] = batch_candidate_text(named, 0, None)
    with Index(folder / "added.db", text_only=True, rerank=False) as index:
        index.add([named])
        found["Index.add"] = index.get("a")[0].text
    (folder / "a.jsonl").write_text(json.dumps(named) + "\n")
    (folder / "a.json").write_text(json.dumps([named]))
    # A JSON list of bare names is kept as "name: value" lines, so that no value is lost.
    for kind in ("jsonl",) if read_text(named).name_only else ("jsonl", "json"):
        with Index(folder / f"{kind}.db", text_only=True, rerank=False) as index:
            index.add_files(folder / f"a.{kind}")
            found[kind] = index.get("a")[0].text
    return found


@pytest.mark.parametrize(("record", "text", "fields"), [*SHAPES, *NESTED])
def test_title_and_every_text_field_are_read(record, text, fields):
    found = read_text(record)
    assert found.text == text
    assert found.fields == fields


@pytest.mark.parametrize(("record", "text", "fields"), [*SHAPES, *NESTED[:7]])
def test_a_record_has_the_same_text_everywhere(tmp_path, record, text, fields):
    assert set(everywhere(record, tmp_path).values()) == {text}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_tables_are_read_like_records(tmp_path, suffix):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for number, (record, _, _) in enumerate(SHAPES):
        row, path = {"id": f"a{number}", **record}, tmp_path / f"{number:03}{suffix}"
        if suffix == ".parquet":
            parquet.write_table(pyarrow.Table.from_pylist([row]), path)
            continue
        with path.open("w", newline="") as file:
            delimiter = "," if suffix == ".csv" else "\t"
            csv.writer(file, delimiter=delimiter).writerows([list(row), list(row.values())])
    with Index(tmp_path / "index.db", text_only=True, rerank=False) as index:
        report = index.add_files(sorted(tmp_path.glob(f"*{suffix}")))
        read = {Path(file.path).name: file.text_fields for file in report.files}
        for number, (_, text, fields) in enumerate(SHAPES):
            assert index.get(f"a{number}")[0].text == text
            assert read[f"{number:03}{suffix}"] == fields


NAMES = ("title", "name", "text", "content", "body", "abstract", "summary", "answer", "remark", "url", "Notes")
VALUES = st.one_of(
    st.text("abc äé漢 .\n", min_size=1, max_size=12).filter(str.strip),
    st.just("one two three four five six seven eight words"),
    st.just("https://example.org/x"),
    st.integers(0, 9),
    st.none(),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record=st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=1))
def test_any_record_has_the_same_text_everywhere_in_any_order_of_keys(tmp_path_factory, record):
    text = read_text(record)
    assert read_text(dict(reversed(record.items()))) == text
    for name in text.fields:
        assert str(record[name]).strip() in text.text
    kept = read_metadata(record, text)
    assert all(key in kept or key in text.fields for key in record)
    if text.text.strip():
        found = everywhere(record, tmp_path_factory.mktemp("records"))
        assert {one.strip() for one in found.values()} == {text.text.strip()}


def test_title_stays_in_the_metadata_and_nothing_is_lost():
    record = {"id": 1, "title": "A", "body": "b", "price": 3, "tags": ["x"], "metadata": {"page": 2}}
    hit = read_hits([record])[0]
    assert hit.text == "A\n\nb"
    assert hit.metadata == {"title": "A", "price": 3, "tags": ["x"], "page": 2}


def test_text_keys_join_several_fields_in_their_order():
    record = {"id": "a", "title": "T", "body": "b", "n": 3, "_source": {"body": "s"}, "parts": [{"text": "x"}]}
    for keys in (["title", "body"], "title,body", ["title, body"]):
        assert read_hits([record], text_keys=keys)[0].text == "T\n\nb"
    assert read_hits([record], text_keys=["body", "title"])[0].text == "b\n\nT"
    assert read_hits([record], text_keys=["_source.body", "n", "parts.text"])[0].text == "s\n\n3\n\nx"
    assert read_texts([record], ["title", "n"]) == ["T\n\n3"]
    scorer = Reads()
    resift.rerank("q", [record], text_keys=["body", "nothing"], scorer=scorer)
    assert scorer.texts == ["b"]
    assert RerankWork(text_keys=["title", "body"]).describe()["text_keys"] == ["title", "body"]
    for wrong in ([], "", [3], 3):
        with pytest.raises(InputError, match="text_keys"):
            read_hits([record], text_keys=wrong)


def test_the_ranking_notes_the_fields_and_a_missing_text_names_those_that_exist(tmp_path):
    ranking = resift.rerank("q", [{"title": "A", "body": "b"}, {"text": "c"}], scorer=Reads())
    assert ranking.trace[0].note == "text from: title, body, text"
    bare = resift.rerank("q", [{"sku": "x1", "price": 3}], scorer=Reads())
    assert bare.degraded
    assert "sku, price (int)" in bare.reason
    assert "text_keys=" in bare.reason
    with Index(tmp_path / "x.db", text_only=True) as index, pytest.raises(InputError, match=r"sku, price .*text_keys="):
        index.add([{"id": "a", "sku": "x1", "price": 3}])


def test_index_prints_the_fields_and_finds_what_the_body_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("a.json").write_text('[{"id":1,"title":"Alpha","body":"needle one"}]')
    assert main(["index", "a.json", "--store", "a.db", "--text-only"]) == 0
    assert "ext from: title, body" in capsys.readouterr().err
    assert main(["search", "needle", "--store", "a.db", "--text-only", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hits"][0]["id"] == "1"
    assert main(["index", "a.json", "--store", "b.db", "--text-only", "--text-key", "body", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text_fields"] == ["body"]
    # Other fields are another content of the same file.
    assert main(["index", "a.json", "--store", "b.db", "--text-only", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0]["outcome"] == "indexed"


def test_rerank_reads_a_pdf_as_passages(tmp_path, monkeypatch):
    pytest.importorskip("pypdf")
    monkeypatch.chdir(tmp_path)
    Path("manual.pdf").write_bytes(small_pdf("Press the red button to stop the pump"))
    [row] = read_documents("manual.pdf").rows
    assert "red button" in row["text"]
    assert row["metadata"]["page"] == 1


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["rerank", "hits.jsonl"], "query is missing"),
        (["rerank", "pump", "my.db"], "index"),
        (["tune", "my.db"], "recording"),
        (["explain", "my.db"], "ranking"),
    ],
)
def test_a_file_in_the_wrong_place_is_named_with_what_to_pass(tmp_path, monkeypatch, capsys, command, told):
    monkeypatch.chdir(tmp_path)
    Path("hits.jsonl").write_text('{"text": "x"}\n')
    with Index("my.db", text_only=True) as index:
        index.add(["words"])
    assert main(command) != 0
    err = capsys.readouterr().err
    assert told in err
    assert command[-1] in err


def test_index_skips_packages_and_says_so_and_fails_where_nothing_was_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in ("app/node_modules/x", "app/env/lib", "app/target", "app/docs"):
        Path(folder).mkdir(parents=True)
        Path(folder, "readme.md").write_text("words")
    Path("app/env/pyvenv.cfg").touch()
    Path("app/target/CACHEDIR.TAG").touch()
    assert main(["index", "app", "--store", "a.db", "--text-only", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [file["path"] for file in report["files"]] == ["app/docs/readme.md"]
    assert report["not_read"] == {"a virtual environment": 1, "in node_modules": 1, "a cache": 1}
    assert main(["index", "app/node_modules", "--store", "b.db", "--text-only"]) == 0
    capsys.readouterr()
    Path("photos").mkdir()
    Path("photos/a.jpg").write_bytes(b"\xff\xd8\0\0" * 10)
    assert main(["index", "photos", "--store", "c.db", "--text-only"]) == 1
    out, err = capsys.readouterr()
    assert "Next:" not in out
    assert "photos" in err


def test_lines_of_a_table_stay_where_a_row_has_no_text_field(tmp_path):
    (tmp_path / "a.csv").write_text("id,name,color,price\n1,Pump,red,12\n")
    with Index(tmp_path / "x.db", text_only=True, rerank=False) as index:
        index.add_files(tmp_path / "a.csv")
        hit = index.get("1")[0]
    assert hit.text == "name: Pump\ncolor: red\nprice: 12"
    assert (hit.metadata["color"], hit.metadata["price"]) == ("red", 12)


ROWS = [{"id": 7, "title": "Zebra", "body": "walks"}, {"id": 9, "title": None, "body": "lunch"}]
TEXTS = {"7": "Zebra\n\nwalks", "9": "lunch"}


def frames() -> list[Any]:
    made: list[Any] = []
    try:
        import pandas as pd

        made += [pd.DataFrame(ROWS), pd.DataFrame(ROWS).set_index("id")]
    except ImportError:
        pass
    try:
        import polars as pl

        made.append(pl.DataFrame(ROWS))
    except ImportError:
        pass
    try:
        import pyarrow as pa

        made += [pa.Table.from_pylist(ROWS), pa.RecordBatch.from_pylist(ROWS)]
    except ImportError:
        pass
    return made


@pytest.mark.parametrize("frame", frames(), ids=lambda frame: type(frame).__module__)
def test_a_frame_is_read_by_rows(tmp_path, frame):
    assert {hit.id: hit.text for hit in read_hits(frame)} == TEXTS
    scorer = Reads()
    assert set(resift.rerank("q", frame, scorer=scorer).ids) == {"7", "9"}
    assert scorer.texts == list(TEXTS.values())
    assert resift.fuse({"a": frame, "b": ["9"]}).ids == ["9", "7"]
    with Index(tmp_path / "x.db", text_only=True, rerank=False) as index:
        assert index.add(frame) == ["7", "9"]
        assert index.search("zebra").ids == ["7"]


class Lazy:
    """A frame that is not in memory."""

    columns = ("id", "text")

    def __iter__(self) -> Any:
        return iter(self.columns)


class Row:
    """A row of a database: it has keys, and iterating over it gives its values."""

    def keys(self) -> list[str]:
        return ["id", "text"]

    def __iter__(self) -> Any:
        return iter(["1", "words"])


@pytest.mark.parametrize(
    "documents",
    [b"bytes", bytearray(b"x"), {"id": ["1"], "text": ["x"]}, Lazy(), Row(), 3, None, Path("manual.pdf")],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_list_of_documents_is_refused_with_its_name(tmp_path, documents):
    with pytest.raises(InputError) as told:
        resift.rerank("q", documents, scorer=Reads())
    assert "candidates" not in str(told.value)
    with Index(tmp_path / "x.db", text_only=True) as index:
        with pytest.raises(InputError) as told:
            index.add(documents)
        assert "aadd" not in str(told.value)
        assert len(index) == 0


def test_series_and_arrays_of_strings_are_lists():
    numpy = pytest.importorskip("numpy")
    pandas = pytest.importorskip("pandas")
    assert [hit.text for hit in read_hits(pandas.Series(["a b", "c"]))] == ["a b", "c"]
    assert [hit.text for hit in read_hits(numpy.array(["a b", "c"]))] == ["a b", "c"]
    with pytest.raises(InputError):
        read_hits(numpy.array([["a", "b"]]))
    with pytest.raises(InputError):
        read_hits(numpy.array("a"))


def test_a_wrong_argument_is_reported_before_a_missing_file(tmp_path):
    with Index(tmp_path / "x.db", text_only=True) as index:
        with pytest.raises(InputError, match="query"):
            index.search(3)
        with pytest.raises(InputError, match=r"Index\.add"):
            index.add(["x"], ids=3)


@pytest.mark.parametrize(
    "record",
    [
        {"id": 2, "headline": "Beta news", "story": "a haystack with straw and hay"},
        {"id": 3, "title": "Beta", "remarks": "bring more straw"},
        {"id": 4, "name": "Barn", "Inhalt": "Heu und straw im Stall"},
    ],
)
def test_a_short_body_under_any_name_is_read_next_to_a_title(record):
    assert "straw" in read_text(record).text


def test_missing_text_names_nested_fields():
    reason = no_text([{"doc": {"body": "x", "size": 3}, "lang": "en"}], ["doc.boody"], "fields=")
    assert "doc.body, doc.size (int), lang." in reason
