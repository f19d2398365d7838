"""The shipped sample: articles on lighthouses and finding one's way at sea, built on first use."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import NamedTuple

from resift._internal.cache_folders import cache_folder
from resift.agent.pack_build import OnProgress, build_pack
from resift.agent.pack_schema import VERSION

FOLDER = Path(__file__).parent / "sample"


class Question(NamedTuple):
    """A written question and the title of the article that answers it; None where none does."""

    question: str
    article: str | None


async def sample_pack(folder: Path | None = None, *, progress: OnProgress | None = None) -> Path:
    """Return the sample's pack, built first where it is not in the cache (or the folder given) yet."""
    target = (folder or cache_folder("packs")) / f"lighthouses-{_digest()}.lbug"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        # In a folder of its own: two first questions at once must not meet in one working file.
        with tempfile.TemporaryDirectory(dir=target.parent) as own:
            made = Path(own) / target.name
            await build_pack(articles_folder(), made, progress=progress)
            made.replace(target)
    return target


def articles_folder() -> Path:
    """Return the folder with the sample's Markdown files."""
    return FOLDER / "articles"


def questions() -> list[Question]:
    """Return the written questions."""
    lines = (FOLDER / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [Question(**json.loads(line)) for line in lines]


def _digest() -> str:
    """Return what names this state of the sample and of the pack format."""
    whole = hashlib.sha256(str(VERSION).encode())
    for path in sorted(articles_folder().glob("*.md")):
        whole.update(path.name.encode() + path.read_bytes())
    return whole.hexdigest()[:12]
