"""Rerank the lines of a file: python rerank_lines.py "a query" lines.txt."""

import sys
from pathlib import Path

import resift

SAMPLE = [
    "A lost badge must be reported to reception on the same day.",
    "The canteen serves lunch from noon until two o'clock.",
    "Visitors get a badge at reception.",
    "New laptops are ordered through the service desk.",
]


def main(arguments: list[str]) -> None:
    query = arguments[0] if arguments else "what do I do when my badge is gone?"
    lines = Path(arguments[1]).read_text(encoding="utf-8").splitlines() if len(arguments) > 1 else SAMPLE
    ranking = resift.rerank(query, [line for line in lines if line.strip()], k=3, deadline_s=10.0)
    for rank, hit in enumerate(ranking, start=1):
        print(f"{rank}. {hit.score:+6.2f}  {hit.text}")
    if ranking.degraded:
        print("degraded:", ranking.reason)


if __name__ == "__main__":
    main(sys.argv[1:])
