"""Index a folder and search it: python search_folder.py "a question" folder/. By default a small sample."""

import asyncio
import sys
from pathlib import Path

from resift import Pipeline
from resift.ingest.indexing import index_paths
from resift.models.embedder import Embedder
from resift.stores import SQLiteStore

SAMPLE = {
    "loans.md": "# Loans\n\nBooks are due in four weeks.\n\n## Late\n\nEach day late costs twenty cents.\n",
    "rooms.md": "# Rooms\n\nGroup rooms are booked for two hours.\n\n## Quiet room\n\nIt cannot be booked.\n",
    "hours.txt": "The library opens at nine and closes at eight.",
}


def sample() -> Path:
    folder = Path("library")
    folder.mkdir(exist_ok=True)
    for name, text in SAMPLE.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


async def main(words: list[str]) -> None:
    question = words[0] if words else "what does a late book cost?"
    folder = Path(words[1]) if len(words) > 1 else sample()
    store = SQLiteStore(f"{folder.name}.db", name="docs", embedder=Embedder(), create=True)
    try:
        report = await index_paths(store, [folder])
        print(f"{report.documents} chunks in {folder.name}.db")
        ranking = await Pipeline.default(store).search(question, k=3, deadline_s=10.0)
        for hit in ranking:
            print(f"{hit.score:+6.2f}  {hit.metadata['path']}: {hit.text.splitlines()[-1]}")
        print(ranking.why(ranking[0].id))
        ranking.explain(query=question).save("why.html")
        print("why.html shows how each hit got its place")
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
