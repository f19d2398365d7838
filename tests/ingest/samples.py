"""Small files of every kind."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from email.message import EmailMessage


def zipped(parts: dict[str, str | bytes] | dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def docx(*paragraphs: tuple[str, str], table: list[list[str]] | None = None) -> bytes:
    """Write (style name, text) paragraphs, with the style ids of a German Word: "berschrift1"."""
    import docx

    document = docx.Document()
    for style, text in paragraphs:
        document.add_paragraph(text, style=style or None)
    for row in table or []:
        cells = document.add_table(1, len(row)).rows[0].cells
        for cell, text in zip(cells, row, strict=True):
            cell.text = text
    saved = io.BytesIO()
    document.save(saved)
    with zipfile.ZipFile(saved) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    return zipped({name: part.replace(b'"Heading', b'"berschrift') for name, part in parts.items()})


def pptx(*slides: tuple[str, str, str]) -> bytes:
    """Write (title, text, notes) slides, each with a slide number; the last one is written first."""
    import pptx

    presentation = pptx.Presentation()
    for title, text, notes in reversed(slides):
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
        if notes:
            slide.notes_slide.notes_text_frame.text = notes
        number = slide.shapes.add_textbox(0, 0, 100, 100)
        number.text_frame.text = "7"
        number.element.nvSpPr.nvPr.get_or_add_ph().set("type", "sldNum")
    order = presentation.slides._sldIdLst
    order[:] = list(reversed(order))
    saved = io.BytesIO()
    presentation.save(saved)
    return saved.getvalue()


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
        f'<item id="c{n}" href="text/c{n}.xhtml" media-type="application/xhtml+xml"/>' for n in range(len(chapters))
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
