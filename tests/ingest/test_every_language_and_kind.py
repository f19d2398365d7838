"""One file of each kind in nine languages: each is found by a word and by a question in its own language."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from resift.ingest.indexing import IndexReport, index_paths
from resift.stores.sqlite import SQLiteStore
from tests.ingest import samples
from tests.ingest.test_reading import small_pdf
from tests.text.multilingual import PASSAGES

# kind of file, passage in it, a word of it, a question that it answers
FILES = [
    ("loans.docx", "de-library", "Bücher", "Wann muss ich ein Buch zurückbringen?"),
    ("metro.pptx", "fr-metro", "voyageurs", "Quand part le dernier métro ?"),
    ("panda.xlsx", "ru-panda", "бамбук", "Чем питается панда?"),
    ("capital.ipynb", "ja-capital", "人口", "スイスの首都はどこですか？"),
    ("metro.eml", "zh-metro", "地铁", "地铁末班车几点？"),
    ("museum.epub", "ko-museum", "월요일", "박물관은 언제 문을 닫습니까?"),
    ("capital.html", "th-capital", "เมืองหลวง", "เมืองหลวงของสวิตเซอร์แลนด์คือที่ไหน"),
    ("library.json", "ar-library", "المكتبة", "متى يجب إعادة الكتب إلى المكتبة؟"),
    ("panda.yaml", "hi-panda", "पांडा", "पांडा क्या खाते हैं?"),
    ("metro.toml", "ja-metro", "地下鉄", "地下鉄の終電は何時ですか？"),
    ("panda.xml", "zh-panda", "竹子", "大熊猫吃什么？"),
    ("museum.py", "fr-museum", "musée", "Quel jour le musée est-il fermé ?"),
    ("museum.md", "ru-museum", "понедельник", "По каким дням музей закрыт?"),
    ("library.txt.gz", "ko-library", "도서관", "도서관 책은 언제 반납해야 합니까?"),
    ("capital.csv", "ar-capital", "عاصمة", "ما هي عاصمة سويسرا؟"),
    ("museum.jsonl", "th-museum", "พิพิธภัณฑ์", "พิพิธภัณฑ์ปิดวันไหน"),
    ("library", "hi-library", "किताबों", "किताबें पुस्तकालय में कब लौटानी होती हैं?"),
    ("metro.log", "de-metro", "U-Bahn", "Wann fährt der letzte Zug?"),
]


def content(name: str, text: str) -> bytes | str:
    """Return a file of the kind that its name says, with the text in it."""
    makers = {
        ".docx": lambda: samples.docx(("Heading 1", "1"), ("", text)),
        ".pptx": lambda: samples.pptx(("1", text, "")),
        ".xlsx": lambda: samples.xlsx([["text"], [text]]),
        ".ipynb": lambda: samples.ipynb(text, "pass", ""),
        ".eml": lambda: samples.eml("1", text),
        ".epub": lambda: samples.epub("1", f"<html><body><p>{text}</p></body></html>"),
        ".html": lambda: f"<html><body><p>{text}</p></body></html>",
        ".json": lambda: f'{{"note": {{"text": "{text}"}}}}',
        ".yaml": lambda: f"note:\n  text: '{text}'\n",
        ".toml": lambda: f'[note]\ntext = "{text}"\n',
        ".xml": lambda: f"<note><text>{text}</text></note>",
        ".py": lambda: f'MESSAGE = "{text}"\n',
        ".md": lambda: f"# 1\n\n{text}\n",
        ".gz": lambda: samples.gz(text),
        ".csv": lambda: f'text,number\n"{text}",1\n',
        ".jsonl": lambda: f'{{"text": "{text}"}}\n',
    }
    return makers.get(Path(name).suffix, lambda: text)()


@pytest.mark.slow
def test_each_file_is_found_by_a_word_and_by_a_question(tmp_path):
    """Eighteen kinds of files (and a PDF), nine languages; a picture is counted and nothing else left out."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, passage, _, _ in FILES:
        made = content(name, PASSAGES[passage])
        (folder / name).write_bytes(made.encode() if isinstance(made, str) else made)
    (folder / "guide.pdf").write_bytes(small_pdf("Pandas eat bamboo"))
    (folder / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0\0\x10JFIF")

    async def run() -> tuple[IndexReport, dict[str, list[str]]]:
        store = SQLiteStore(tmp_path / "all.db", create=True)
        report = await index_paths(store, [folder])
        asked = {text: name for name, _, *texts in FILES for text in texts} | {"bamboo": "guide.pdf"}
        found = {}
        for text in asked:
            hits = await store.search(text, k=3)
            found[text] = [Path(hit.metadata["path"]).name for hit in hits]
        await store.close()
        return report, {text: [asked[text], *names] for text, names in found.items()}

    report, found = asyncio.run(run())
    assert {file.outcome for file in report.files} == {"indexed"}
    assert len(report.files) == len(FILES) + 1
    assert report.reasons() == {"not text": 1}
    missed = {text: names for text, (wanted, *names) in found.items() if names[:1] != [wanted]}
    assert missed == {}
