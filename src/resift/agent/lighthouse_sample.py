"""The sample pack: articles about lighthouses and navigation at sea, built on first use."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import NamedTuple

from resift._internal.files import cache_folder
from resift.agent.pack import VERSION
from resift.agent.pack_build import OnProgress, build_pack

FOLDER = Path(__file__).parent / "sample"


class SampleQuestion(NamedTuple):
    """A question and the title of the article that answers it, or None."""

    question: str
    article: str | None


async def sample_pack(folder: Path | None = None, *, progress: OnProgress | None = None) -> Path:
    """Return the sample pack, built first unless the folder (by default the cache) has it."""
    digest = hashlib.sha256(str(VERSION).encode())
    for path in sorted(articles_folder().glob("*.md")):
        digest.update(path.name.encode() + path.read_bytes())
    target = (folder or cache_folder("packs")) / f"lighthouses-{digest.hexdigest()[:12]}.lbug"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Each build has its own folder, so that two processes never share a working file.
        with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
            built = Path(temporary) / target.name
            await build_pack(articles_folder(), built, progress=progress)
            built.replace(target)
    return target


def articles_folder() -> Path:
    """Return the folder with the Markdown files of the sample."""
    return FOLDER / "articles"


def questions() -> list[SampleQuestion]:
    """Return the questions of the sample."""
    lines = (FOLDER / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [SampleQuestion(**json.loads(line)) for line in lines]
