"""Rerank the lines of a file: python rerank_lines.py "a question" lines.txt."""

import sys
from pathlib import Path

import resift

SAMPLE = [
    "A lost badge must be reported to reception on the same day.",
    "The canteen serves lunch from noon until two o'clock.",
    "Visitors get a badge at reception.",
    "New laptops are ordered through the service desk.",
]


def main(words: list[str]) -> None:
    question = words[0] if words else "what do I do when my badge is gone?"
    lines = Path(words[1]).read_text(encoding="utf-8").splitlines() if len(words) > 1 else SAMPLE
    ranking = resift.rerank(question, [line for line in lines if line.strip()], k=3, deadline_s=10.0)
    for place, hit in enumerate(ranking, start=1):
        print(f"{place}. {hit.score:+6.2f}  {hit.text}")
    if ranking.degraded:
        print("degraded:", ranking.reason)


if __name__ == "__main__":
    main(sys.argv[1:])
