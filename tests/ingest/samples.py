"""Small files of every kind, made by hand, so that tests need no writer of these formats."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from email.message import EmailMessage

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_A = "http://schemas.openxmlformats.org/drawingml/2006/main"
_P = "http://schemas.openxmlformats.org/presentationml/2006/main"
_R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELS = "http://schemas.openxmlformats.org/package/2006/relationships"


def zipped(parts: dict[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def docx(*paragraphs: tuple[str, str], table: list[list[str]] | None = None) -> bytes:
    """Write (style id, text) paragraphs; "berschrift1" is what a German Word calls heading 1."""
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    for row in table or []:
        cells = "".join(f"<w:tc><w:p><w:r><w:t>{cell}</w:t></w:r></w:p></w:tc>" for cell in row)
        body += f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"
    styles = "".join(
        f'<w:style w:styleId="berschrift{n}"><w:name w:val="heading {n}"/></w:style>' for n in (1, 2)
    )
    return zipped(
        {
            "word/document.xml": f'<w:document xmlns:w="{_W}"><w:body>{body}</w:body></w:document>',
            "word/styles.xml": f'<w:styles xmlns:w="{_W}">{styles}</w:styles>',
        }
    )


def pptx(*slides: tuple[str, str, str]) -> bytes:
    """Write (title, text, notes) slides, whose files are numbered against their order."""
    parts: dict[str, str | bytes] = {}
    listed = related = ""
    for number, (title, text, notes) in enumerate(slides, start=1):
        file = len(slides) + 1 - number
        related += f'<Relationship Id="r{number}" Target="slides/slide{file}.xml"/>'
        listed += f'<p:sldId r:id="r{number}"/>'
        parts[f"ppt/slides/slide{file}.xml"] = _slide([("title", title), ("body", text), ("sldNum", "7")])
        parts[f"ppt/slides/_rels/slide{file}.xml.rels"] = (
            f'<Relationships xmlns="{_RELS}"><Relationship Id="n" Target="../notesSlides/n{file}.xml"/>'
            "</Relationships>"
        )
        parts[f"ppt/notesSlides/n{file}.xml"] = _slide([("body", notes)])
    parts["ppt/presentation.xml"] = (
        f'<p:presentation xmlns:p="{_P}" xmlns:r="{_R}"><p:sldIdLst>{listed}</p:sldIdLst></p:presentation>'
    )
    parts["ppt/_rels/presentation.xml.rels"] = f'<Relationships xmlns="{_RELS}">{related}</Relationships>'
    return zipped(parts)


def _slide(shapes: list[tuple[str, str]]) -> str:
    body = "".join(
        f'<p:sp><p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>'
        f"<p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
        for kind, text in shapes
    )
    return f'<p:sld xmlns:p="{_P}" xmlns:a="{_A}"><p:cSld><p:spTree>{body}</p:spTree></p:cSld></p:sld>'


def xlsx(rows: list[list[object]]) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def epub(title: str, *chapters: str) -> bytes:
    items = "".join(
        f'<item id="c{n}" href="text/c{n}.xhtml" media-type="application/xhtml+xml"/>'
        for n in range(len(chapters))
    )
    order = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    opf = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<metadata><dc:title>{title}</dc:title></metadata>"
        f"<manifest>{items}</manifest><spine>{order}</spine></package>"
    )
    container = '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
    pages = {f"OEBPS/text/c{n}.xhtml": page for n, page in enumerate(chapters)}
    return zipped({"META-INF/container.xml": container, "OEBPS/book.opf": opf, **pages})


def eml(subject: str, body: str, *, html: bool = False, attachment: bytes | None = None) -> bytes:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = subject, "a@example.org", "b@example.org"
    mail["Date"] = "Mon, 04 Mar 2024 10:00:00 +0100"
    mail.set_content(body, subtype="html" if html else "plain")
    if attachment is not None:
        mail.add_attachment(attachment, maintype="image", subtype="png", filename="plan.png")
    return mail.as_bytes()


def ipynb(markdown: str, code: str, output: str) -> str:
    picture = {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo" * 50}}
    printed = {"output_type": "stream", "text": [output]}
    cells = [
        {"cell_type": "markdown", "source": [markdown]},
        {"cell_type": "code", "source": [code], "outputs": [printed, picture]},
    ]
    return json.dumps({"cells": cells, "nbformat": 4})


def gz(content: str) -> bytes:
    return gzip.compress(content.encode(), mtime=0)
