"""Readers: what becomes of each kind of file, and of files that are not what they say."""

# ruff: noqa: E501 - sample texts read best on one line
from __future__ import annotations

import json
from pathlib import Path

import pytest

from resift.errors import DataFormatError
from resift.ingest.chunking import Section
from resift.ingest.sources import decode, open_source, read_sections
from resift.ingest.walking import find_files


def read(path: Path, content: bytes | str) -> list[Section]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_sections(open_source(path, name=path.name)))


@pytest.mark.parametrize(
    ("data", "flag"),
    [
        ("Käse".encode(), ""),
        ("Käse".encode("utf-8-sig"), ""),
        ("Käse".encode("utf-16"), ""),
        (b"\xfe\xff" + "Käse".encode("utf-16-be"), ""),
        ("Käse".encode("utf-32"), ""),
        ("Käse".encode("cp1252"), "Windows-1252"),
        ("Käse \x81".encode("latin-1"), "Latin-1"),
    ],
)
def test_encodings_are_detected_or_flagged(data: bytes, flag: str) -> None:
    """BOMs and UTF-8 are read as they are; a guess is flagged."""
    decoded = decode(data, file="x.txt")
    assert decoded.text.startswith("Käse")
    assert flag in decoded.flag


@pytest.mark.parametrize("data", [b"\x7fELF\0\0\1", bytes(range(1, 32)) * 20, b"\xff\xfe\x00\xd8\x00"])
def test_binary_data_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(DataFormatError, match=r"^x\.txt: ") as caught:
        decode(data, file="x.txt")
    assert "\n" not in str(caught.value)


def test_markdown_sections_know_their_headings(tmp_path: Path) -> None:
    text = "---\ntitle: x\n---\nIntro.\n\n# Guide\nStart.\n## Keys\nRotate.\n```sh\n# no heading\n```\n# End\nBye.\n"
    found = read(tmp_path / "a.md", text)
    assert [(section.context, section.metadata.get("heading")) for section in found] == [
        ("x", None),
        ("Guide", "Guide"),
        ("Guide › Keys", "Guide › Keys"),
        ("End", "End"),
    ]
    assert "# no heading" in found[2].text
    assert found[0].text == "Intro."


def test_underlined_titles_are_headings_and_rules_are_not(tmp_path: Path) -> None:
    text = "Guide\n=====\nStart.\n\nKeys\n----\nRotate.\n\n---\n\n| a |\n---\nlong line\nof text\n---\nend\n"
    found = read(tmp_path / "a.md", text)
    assert [section.context for section in found] == ["Guide", "Guide › Keys"]
    assert found[1].text.endswith("end")


def test_html_keeps_the_readable_part(tmp_path: Path) -> None:
    """Scripts, styles, navigation and footers are no content; entities are decoded; headings are context."""
    page = """<!doctype html><html><head><title>The &amp; Page</title><style>p{}</style>
    <script>var x = "<p>no</p>"</script></head><body><nav>Home | About</nav><main><h1>Pandas</h1>
    <p>Pandas eat<br>bamboo &mdash; a lot.</p><h2>Where</h2><ul><li>China<li>Zoos</ul></main>
    <footer>© nobody</footer></body></html>"""
    found = read(tmp_path / "a.html", page)
    assert [section.context for section in found] == ["Pandas", "Pandas › Where"]
    assert found[0].metadata["title"] == "The & Page"
    everything = " ".join(section.text for section in found)
    assert "bamboo — a lot." in found[0].text
    assert "China" in found[1].text
    assert "ChinaZoos" not in everything
    for noise in ("Home", "nobody", "var x", "p{}"):
        assert noise not in everything


def test_the_main_part_of_a_page_may_be_one_line(tmp_path: Path) -> None:
    (section,) = read(tmp_path / "a.html", "<body><div>Shop</div><main>Opens <b>at</b> six</main><p>Imprint</p>")
    assert section.text == "Opens at six"


def test_broken_html_is_still_read(tmp_path: Path) -> None:
    """Unclosed and misnested elements lose no text after them."""
    found = read(tmp_path / "a.html", "<p>one<div><nav>menu<form>x</nav><p>two <b>three</p></i></html> four")
    text = " ".join(section.text for section in found)
    assert all(word in text for word in ("one", "two", "three", "four"))
    assert "menu" not in text


def test_jsonl_rows_are_documents(tmp_path: Path) -> None:
    """BEIR's corpus.jsonl works: _id, title and text; other keys and metadata are kept."""
    rows = [
        {"_id": "7", "title": "Pandas", "text": "They eat bamboo.", "metadata": {"year": 2020}, "lang": "en"},
        {"id": 8, "content": "Only content."},
        {"text": "No id."},
        {"id": "9", "title": "", "text": " "},
    ]
    found = read(tmp_path / "a.jsonl", "\n".join(json.dumps(row) for row in rows) + "\n\n")
    assert (found[0].id, found[0].context, found[0].text) == ("7", "Pandas", "They eat bamboo.")
    assert found[0].metadata == {"year": 2020, "lang": "en", "title": "Pandas"}
    assert (found[1].id, found[1].text) == ("8", "Only content.")
    assert (found[2].id, found[2].metadata) == (None, {"line": 3})
    assert "line 4 has no text" in found[3].flag


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"text": ', "line 2: not a JSON object"),
        ("[1]", "line 2: a list"),
        ('{"id": 1, "text": "b"}', "line 2: the id '1' is already on line 1"),
        ('{"id": 2, "n": ' + "9" * 5000 + "}", "line 2: not a JSON object"),
        ("[" * 100_000, "line 2: not a JSON object"),
    ],
)
def test_a_bad_line_is_reported_and_the_others_are_read(tmp_path: Path, line: str, problem: str) -> None:
    found = read(tmp_path / "a.jsonl", f'{{"id": 1, "text": "a"}}\n{line}\n{{"id": 3, "text": "c"}}\n')
    assert [one.text for one in found if not one.problem] == ["a", "c"]
    assert [problem in one.problem for one in found if one.problem] == [True]


def test_jsonl_of_other_encodings_and_odd_numbers(tmp_path: Path) -> None:
    """UTF-16 files are read whole; NaN is left out with a flag; the rest stays."""
    lines = '{"id": "a", "text": "one", "v": NaN, "w": 1}\n{"id": "b", "text": "two"}\n'
    found = read(tmp_path / "a.jsonl", lines.encode("utf-16"))
    assert [(one.id, one.text) for one in found] == [("a", "one"), ("b", "two")]
    assert found[0].metadata == {"w": 1}
    assert "'v' is not a JSON value" in found[0].flag


def test_csv_rows_are_documents(tmp_path: Path) -> None:
    """A text column is the text; without one the whole row is; separators are found out."""
    found = read(tmp_path / "a.csv", 'id,text,topic\n1,"Pandas eat\nbamboo",animals\n2,Trains,transport\n')
    assert [(one.id, one.text, one.metadata["topic"]) for one in found] == [
        ("1", "Pandas eat\nbamboo", "animals"),
        ("2", "Trains", "transport"),
    ]
    found = read(tmp_path / "b.csv", "name;city\nAnna;Köln\nBob;Bern\n")
    assert found[0].text == "name: Anna\ncity: Köln"


def test_pdf_pages_are_sections(tmp_path: Path) -> None:
    """Each page is read with its number; a broken PDF is refused by name."""
    pytest.importorskip("pypdf")
    found = read(tmp_path / "a.pdf", small_pdf("Pandas eat bamboo"))
    assert [(one.text, one.metadata["page"]) for one in found] == [("Pandas eat bamboo", 1)]
    with pytest.raises(DataFormatError, match=r"b\.pdf: Not a readable PDF"):
        read(tmp_path / "b.pdf", b"%PDF-1.4 and then nothing")


def small_pdf(text: str) -> bytes:
    """Write the smallest PDF with one line of text, by hand."""
    stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return bytes(out) + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)


def test_folders_are_listed_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.md", "a.txt", "code.py", ".hidden.md", ".git/c.md", "sub/d.JSONL", "README"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    (tmp_path / "x.bin").write_bytes(bytes(range(256)))
    found = [file.relative_to(tmp_path).as_posix() for file in find_files([tmp_path]).files]
    assert found == ["README", "a.txt", "b.md", "code.py", "sub/d.JSONL"]
    with pytest.raises(DataFormatError, match="No such file"):
        find_files([tmp_path / "nowhere"])
