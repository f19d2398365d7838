"""Each kind of file that people have: what is read, under which heading, with which page or slide."""

from __future__ import annotations

import io
import json
import re
import time
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from resift.errors import DataFormatError
from resift.ingest.chunking import ChunkSize, Section, split_section
from resift.ingest.sources import FileLimits, open_source, read_sections
from tests.ingest import samples


def read(path: Path, content: bytes | str, limits: FileLimits | None = None) -> list[Section]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_sections(open_source(path, name=path.name, limits=limits or FileLimits())))


def test_word_files_have_headings_in_any_language_and_tables(tmp_path):
    found = read(
        tmp_path / "a.docx",
        samples.docx(
            ("Heading 1", "Ausleihe"), ("", "Vier Wochen."), ("Heading 2", "Gebühr"), ("", "Ein Euro."),
            table=[["Tag", "Zeit"]],
        ),
    )  # fmt: skip
    assert [(one.context, one.text) for one in found] == [
        ("Ausleihe", "Vier Wochen."),
        ("Ausleihe › Gebühr", "Ein Euro.\n\nTag | Zeit"),
    ]


def test_slides_come_in_the_order_of_the_presentation_with_notes(tmp_path):
    found = read(tmp_path / "a.pptx", samples.pptx(("Plan", "First steps", "Say hello"), ("End", "Bye", "")))
    assert [(one.context, one.text, one.metadata["slide"]) for one in found] == [
        ("Plan", "First steps\nSay hello", 1),
        ("End", "Bye", 2),
    ]


@pytest.mark.slow
def test_rows_of_a_workbook_are_documents_with_types(tmp_path):
    import datetime as dt

    rows = [["id", "name", "price", "since"], ["p1", "Pump", 12.5, dt.datetime(2024, 3, 4)], [None] * 4]
    found = read(tmp_path / "a.xlsx", samples.xlsx(rows))
    assert [(one.id, one.text) for one in found] == [("p1", "name: Pump\nprice: 12.5\nsince: 2024-03-04")]
    assert found[0].metadata == {
        "name": "Pump", "price": 12.5, "since": "2024-03-04", "sheet": "Sheet", "row": 2,
    }  # fmt: skip


def test_columns_of_csv_are_typed_when_all_cells_agree(tmp_path):
    content = "id,name,price,code,new,day\n1,Pump,12,007,true,2024-03-04\n2,Seal,3.5,12,FALSE,2024-01-01\n"
    content += "3,X,,1,,\n"
    found = read(tmp_path / "a.csv", content)
    picked = [tuple(one.metadata.get(key) for key in ("price", "code", "new", "day")) for one in found]
    assert picked == [
        (12, "007", True, "2024-03-04"),  # 007 is no number, so no cell of its column is
        (3.5, "12", False, "2024-01-01"),
        (None, "1", None, None),
    ]
    assert found[0].text == "name: Pump\nprice: 12\ncode: 007\nnew: true\nday: 2024-03-04"


def test_notebooks_keep_text_code_and_prints_but_no_pictures(tmp_path):
    (section,) = read(tmp_path / "a.ipynb", samples.ipynb("# Pumps\nIntro.", "run()", "42 bar"))
    assert section.context == "Pumps"
    assert "Intro." in section.text
    assert "run()" in section.text
    assert "42 bar" in section.text
    assert "iVBORw" not in section.text


def test_mail_has_subject_people_date_and_names_what_is_not_read(tmp_path):
    (section,) = read(tmp_path / "a.eml", samples.eml("Grüße", "Bis morgen.", attachment=b"\x89PNG\r\n"))
    assert (section.context, section.text.strip()) == ("Grüße", "Bis morgen.")
    assert section.metadata["from"] == "a@example.org"
    assert section.metadata["date"] == "2024-03-04T10:00:00+01:00"
    assert section.flag == "attachments not read: plan.png"
    (page,) = read(tmp_path / "b.eml", samples.eml("S", "<h1>Hi</h1><p>There</p>", html=True))
    assert page.text == "Hi\nThere"


def test_books_are_read_chapter_by_chapter(tmp_path):
    pages = ("<html><body><h1>One</h1><p>Snow fell.</p></body></html>", "<p>It melted.</p>")
    found = read(tmp_path / "a.epub", samples.epub("Winter", *pages))
    assert [(one.context, one.text, one.metadata["chapter"]) for one in found] == [
        ("One", "Snow fell.", 1),
        ("Winter", "It melted.", 2),
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '{"server": {"port": 8080, "hosts": ["alpha", "beta"]}}'),
        ("a.yaml", "server:\n  port: 8080\n  hosts: [alpha, beta]\n"),
        ("a.toml", '[server]\nport = 8080\nhosts = ["alpha", "beta"]\n'),
    ],
)
def test_settings_become_lines_with_their_paths(tmp_path, name, content):
    (section,) = read(tmp_path / name, content)
    assert section.text == "server › port: 8080\nserver › hosts: alpha\nserver › hosts: beta"


def test_a_json_list_of_objects_is_rows(tmp_path):
    found = read(tmp_path / "a.json", json.dumps([{"id": "x", "text": "one"}, {"id": "y", "title": "two"}]))
    assert [(one.id, one.text) for one in found] == [("x", "one"), ("y", "two")]


@pytest.mark.parametrize("name", ["a.json", "a.yaml", "a.toml", "a.xml"])
def test_invalid_files_are_read_as_text(tmp_path, name):
    (section,) = read(tmp_path / name, "{{ template }} : [unclosed\n<words & more>")
    assert "template" in section.text
    assert "read as plain text" in section.flag


def test_xml_gives_text_and_attributes_in_order(tmp_path):
    (section,) = read(tmp_path / "a.xml", '<a><b name="x">one</b> two <c>three</c></a>')
    assert section.text == "name: x\none\ntwo\nthree"


def test_html_charset_is_the_declared_one(tmp_path):
    page = '<html><head><meta charset="windows-1251"></head><body><p>Столица</p></body></html>'
    (section,) = read(tmp_path / "a.html", page.encode("cp1251"))
    assert (section.text, section.flag) == ("Столица", "")


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "Käse und Brötchen im Café für alle, täglich außer sonntags. Süße Äpfel, schöne Öfen."),
        ("cp1251", "Столица России это Москва, большой город на реке."),
        ("koi8_r", "Столица России это Москва, большой город на реке."),
        ("shift_jis", "東京の人口は約千四百万人です。水を飲む。"),
        ("euc_jp", "東京の人口は約千四百万人です。水を飲む。"),
        ("gb18030", "北京的地铁每天运送数百万人。"),
        ("big5", "臺北的捷運每天運送數百萬人。"),
        ("euc_kr", "서울의 인구는 약 천만 명이다."),
        ("cp1256", "عاصمة مصر هي القاهرة وهي مدينة كبيرة"),
        ("utf-16", "Große Städte"),
    ],
)  # fmt: skip
def test_legacy_encodings_are_detected(tmp_path, encoding, text):
    (section,) = read(tmp_path / "a.txt", text.encode(encoding))
    assert section.text == text
    assert bool(section.flag) == (encoding != "utf-16")


def test_packed_files_are_read_by_the_name_inside(tmp_path):
    (section,) = read(tmp_path / "a.md.gz", samples.gz("# Head\n\nBody."))
    assert (section.context, section.text) == ("Head", "Body.")


@pytest.mark.parametrize("name", ["program.py", "Makefile", "noSuffix", "x.unknown"])
def test_text_files_are_read_regardless_of_their_names(tmp_path, name):
    (section,) = read(tmp_path / name, "def main():\n    return 42\n")
    assert "return 42" in section.text


def test_markdown_that_is_only_headings_is_not_empty(tmp_path):
    found = read(tmp_path / "a.md", "# Parts\n## Pump\n## Seal\n")
    assert [(one.context, one.text) for one in found] == [("Parts", "Pump"), ("Parts", "Seal")]


def test_columns_with_equal_names_keep_their_cells(tmp_path):
    """`a, a 3, a` had two columns "a 3", and the cell of one was lost."""
    (row,) = read(tmp_path / "a.csv", "a,a 3,a\none,two,three\n")
    assert row.text.split("\n") == ["a: one", "a 3: two", "a 4: three"]


@pytest.mark.slow
def test_many_columns_take_linear_time(tmp_path):
    """Each name was looked for in a list of all before it: half a megabyte took minutes."""
    started = time.process_time()
    (row,) = read(tmp_path / "a.csv", "a," * 30_000 + "\n" + "1," * 30_000 + "\n")
    assert row.text.count(": 1") == 30_000
    assert time.process_time() - started < 3  # a sixth of a second; a busy machine may take longer


def test_long_column_names_are_cut(tmp_path):
    rows = read(tmp_path / "a.csv", "k" * 100_000 + ",b\n" + "1,2\n" * 50)
    assert len(rows) == 50
    assert sum(len(row.text) + len(str(row.metadata)) for row in rows) < 100_000


def test_a_cell_in_the_last_row_of_a_sheet_does_not_cost_a_million_rows(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["name", "size"])
    book.active.cell(300_000, 1, "bolt")
    book.save(tmp_path / "a.xlsx")
    started = time.process_time()
    (row,) = read_sections(open_source(tmp_path / "a.xlsx", name="a.xlsx"))
    assert row.text == "name: bolt"
    assert time.process_time() - started < 6  # under a second; it was 12


def test_a_book_that_lists_a_page_many_times_has_it_once(tmp_path):
    pytest.importorskip("selectolax")
    whole = samples.epub("Winter", "<p>Snow fell.</p>")
    path = tmp_path / "a.epub"
    with zipfile.ZipFile(io.BytesIO(whole)) as given, zipfile.ZipFile(path, "w") as made:
        for name in given.namelist():
            spine = re.sub(rb"<itemref [^>]*>", lambda found: found[0] * 1000, given.read(name))
            made.writestr(name, spine)
    assert [one.text for one in read_sections(open_source(path, name="a.epub"))] == ["Snow fell."]


def test_long_paths_are_cut(tmp_path):
    nested: object = [1] * 1000
    for _ in range(20):
        nested = {"n" * 200: nested}
    found = read(tmp_path / "a.json", json.dumps(nested))
    assert sum(one.text.count(": 1") for one in found) == 1000
    assert sum(len(one.text) for one in found) < 400_000


def test_values_beyond_the_limits_are_reported(tmp_path):
    """They were left out without a word."""
    many = read(tmp_path / "a.json", json.dumps([1] * 500_001))
    assert [one.problem for one in many if one.problem] == ["values after the first 500,000 were not read"]
    deep: object = 7
    for _ in range(60):
        deep = {"a": deep}
    assert [one.problem for one in read(tmp_path / "b.json", json.dumps(deep))] == [
        "values nested deeper than 50 levels were not read"
    ]


@pytest.mark.parametrize("key", ["title", "tag"])
def test_repeated_title_and_metadata_are_bounded(tmp_path, key):
    """A row of a megabyte, half of it a title or a tag, became 200 MB of passages."""
    line = {
        key: "lorem " * 20_000 if key == "title" else "lorem/" * 20_000,
        "text": "A plain sentence of six words. " * 4_000,
        "year": 1999,
    }
    (section,) = read(tmp_path / "a.jsonl", json.dumps(line))
    found = split_section(section, "a.jsonl", size=ChunkSize(), row_ids="own", copies=Counter())
    assert len(found) > 100
    assert all(one["metadata"]["year"] == 1999 for one in found)
    assert sum(len(one["text"]) + len(str(one["metadata"])) for one in found) < 1_000_000
    assert sum(one["text"].count("lorem") for one in found) >= (20_000 if key == "title" else 0)
    assert found[0]["metadata"][key] == line[key].strip() or found[0]["metadata"][key] == line[key]


def test_a_huge_heading_is_read_as_text(tmp_path):
    found = read(tmp_path / "a.md", "# " + "word " * 20_000 + "\n\nBody.\n")
    assert found[0].context == ""
    assert len(found[0].text) > 99_000


def test_scanned_pages_are_flagged(tmp_path):
    """A page that is a picture has no text to find; a blank one has nothing to tell."""
    pypdf = pytest.importorskip("pypdf")
    generic = pypdf.generic
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    page = writer.add_blank_page(100, 100)
    names = generic.NameObject
    picture = generic.DecodedStreamObject()
    picture.update({names("/Type"): names("/XObject"), names("/Subtype"): names("/Image")})
    pictures = generic.DictionaryObject({names("/Scan"): writer._add_object(picture)})
    page[names("/Resources")] = generic.DictionaryObject({names("/XObject"): pictures})
    with (tmp_path / "a.pdf").open("wb") as out:
        writer.write(out)
    (found,) = read_sections(open_source(tmp_path / "a.pdf", name="a.pdf"))
    assert (found.text, "OCR" in found.flag) == ("", True)


def test_missing_chapters_are_reported(tmp_path):
    pytest.importorskip("selectolax")
    whole = samples.epub("Winter", "<p>Snow fell.</p>", "<p>It thawed.</p>")
    path = tmp_path / "a.epub"
    with zipfile.ZipFile(io.BytesIO(whole)) as given, zipfile.ZipFile(path, "w") as made:
        for name in given.namelist():
            if not name.endswith("c1.xhtml"):
                made.writestr(name, given.read(name))
    found = list(read_sections(open_source(path, name="a.epub")))
    assert [one.problem for one in found if one.problem] == ["1 of 2 chapters are not in the file"]
    assert [one.text for one in found if one.text] == ["Snow fell."]


def test_columns_beyond_the_limit_are_reported(tmp_path):
    pytest.importorskip("openpyxl")
    found = read(tmp_path / "a.xlsx", samples.xlsx([["name"] * 502, ["bolt"] * 502]))
    assert [one.problem for one in found if one.problem] == [
        "sheet 'Sheet': 2 columns after the first 500 were not read"
    ]


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx", "a.epub", "a.pdf", "a.md.gz", "a.ipynb"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"\x1f\x8b\x08 broken", b"%PDF-1.7 broken", b"{}"])
def test_broken_files_raise_data_format_error(tmp_path, name, content):
    if (name, content) == ("a.md.gz", b""):
        assert read(tmp_path / name, content) == []  # packed or not, nothing is nothing
        return
    with pytest.raises(DataFormatError, match=name.replace(".", r"\.")):
        read(tmp_path / name, content)


@pytest.mark.slow
def test_bombs_are_refused_before_they_unpack(tmp_path):
    bomb = samples.zipped({"word/document.xml": b"<a>" + b" " * 20_000_000 + b"</a>"})
    with pytest.raises(DataFormatError, match="Unpacks to"):
        read(tmp_path / "a.docx", bomb)
    with pytest.raises(DataFormatError, match="more than 1 MB"):
        read(tmp_path / "a.txt.gz", samples.gz("x" * 2_000_000), FileLimits(expanded_bytes=1 << 20))
    laughs = '<!DOCTYPE a [<!ENTITY x0 "ha">' + "".join(f'<!ENTITY x{n} "{f"&x{n - 1};" * 10}">' for n in range(1, 12))
    found = read(tmp_path / "a.xml", laughs + "]><a>&x11;</a>")
    assert sum(len(one.text) for one in found) < 10_000
    anchors = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    found = read(tmp_path / "a.yaml", anchors)
    assert sum(len(one.text) for one in found) < 20_000_000


def test_pages_beyond_the_limit_are_reported(tmp_path):
    pypdf = pytest.importorskip("pypdf")
    writer = pypdf.PdfWriter()
    for _ in range(3):
        writer.add_blank_page(100, 100)
    with (tmp_path / "a.pdf").open("wb") as out:
        writer.write(out)
    found = list(read_sections(open_source(tmp_path / "a.pdf", name="a.pdf", limits=FileLimits(pages=2))))
    assert [one.problem for one in found] == ["page 3 and later pages were not read: too many"]


def test_long_lines_are_skipped_and_long_texts_split(tmp_path):
    rows = '{"text": "a"}\n{"text": "' + "x" * 3_000_000 + '"}\n{"text": "c"}\n'
    found = read(tmp_path / "a.jsonl", rows, FileLimits(line_bytes=1 << 20))
    assert [one.text or one.problem for one in found] == ["a", "line 2: longer than 1 MB", "c"]
    pieces = read(tmp_path / "b.txt", "word " * 200_000)
    assert max(len(one.text) for one in pieces) < 300_000
    assert "".join(one.text for one in pieces) == "word " * 200_000


def test_every_passage_of_a_wide_row_has_all_its_columns():
    """Sixty honest columns are no attack: a filter on the last one finds every passage."""
    metadata = {f"column {number}": f"value {number} " * 5 for number in range(60)}
    section = Section("A plain sentence of six words. " * 400, metadata=metadata)
    found = split_section(section, "rows.csv", size=ChunkSize(), row_ids="own", copies=Counter())
    assert len(found) > 5
    assert all(metadata.items() <= one["metadata"].items() for one in found)


def test_a_small_gzip_file_of_one_repeated_line_is_refused(tmp_path):
    packed = samples.gz("the same line\n" * 1_500_000)
    assert len(packed) < 100_000
    with pytest.raises(DataFormatError, match="Unpacks to more than"):
        read(tmp_path / "a.txt.gz", packed)


def test_a_toml_key_of_many_parts_is_read_as_text(tmp_path):
    # The parser needs 30 s and 2 GB for 100,000 parts.
    sections = read(tmp_path / "a.toml", "a" + ".a" * 70_000 + " = 1\n")
    assert "plain text" in sections[0].flag
