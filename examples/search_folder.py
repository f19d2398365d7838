"""Index a folder and search it: python search_folder.py "a query" folder/. By default, it uses a small sample."""

import sys
from pathlib import Path

import resift

SAMPLE = {
    "loans.md": "# Loans\n\nBooks are due in four weeks.\n\n## Late\n\nEach day late costs twenty cents.\n",
    "rooms.md": "# Rooms\n\nGroup rooms are booked for two hours.\n\n## Quiet room\n\nIt cannot be booked.\n",
    "hours.txt": "The library opens at nine and closes at eight.",
}


def write_sample() -> Path:
    folder = Path("library")
    folder.mkdir(exist_ok=True)
    for name, text in SAMPLE.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def main(arguments: list[str]) -> None:
    query = arguments[0] if arguments else "what does a late book cost?"
    folder = Path(arguments[1]) if len(arguments) > 1 else write_sample()
    with resift.Index(f"{folder.name}.db") as index:
        index.add_files(folder)
        print(f"{len(index)} chunks in {folder.name}.db")
        ranking = index.search(query, k=3, deadline_s=10.0)
        for hit in ranking:
            print(f"{hit.score:+6.2f}  {hit.metadata['path']}: {hit.text.splitlines()[-1]}")
        print(ranking.why(ranking[0].id))
        ranking.explain(query=query).save("why.html")
        print("why.html shows how each hit got its position")


if __name__ == "__main__":
    main(sys.argv[1:])
