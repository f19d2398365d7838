"""Questions made safe, and answers as plain data without scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resift.agent.graph_reranker import STAGE as CENTRALITY
from resift.agent.multi_doc import Synthesis
from resift.agent.passages import Passage
from resift.errors import InputError
from resift.text.snippets import snippet
from resift.types import JsonObject, Ranking

MAX_QUESTION_CHARS = 1000
NOTHING = "Not found: nothing here answers the question."


def question_of(given: str) -> tuple[str, list[str]]:
    """Return the question as one printable line of bounded length, and notes on what was changed."""
    if not isinstance(given, str):
        raise InputError(f"The question is a {type(given).__name__}; pass a string.")
    printable = "".join(char if char.isprintable() else " " for char in given[: MAX_QUESTION_CHARS * 2])
    asked = " ".join(printable.split())[:MAX_QUESTION_CHARS]
    long = len(given) > MAX_QUESTION_CHARS
    return asked, [
        f"only the first {MAX_QUESTION_CHARS} characters of the question were read"
    ] if long else []


def as_answer(
    ranking: Ranking, made: Synthesis, confidence: float, notes: Sequence[str], *, explain: bool
) -> JsonObject:
    """Return an answer with its sources."""
    cited: dict[int, list[str]] = {}
    for sentence in made.answer.sentences:
        for number in sentence.sources:
            cited.setdefault(number, []).append(sentence.text)
    return _reported(
        ranking,
        [*notes, *made.answer.notes],
        made,
        explain=explain,
        answer=made.answer.text,
        found=True,
        confidence=round(confidence, 3),
        sources=[_source(number, hit, cited) for number, hit in enumerate(ranking.hits, start=1)],
        sentences=[{"text": one.text, "sources": list(one.sources)} for one in made.answer.sentences],
    )


def not_found(
    ranking: Ranking, notes: Sequence[str], *, made: Synthesis | None = None, explain: bool = False
) -> JsonObject:
    """Return the honest answer where there is none: no sources, no confidence."""
    empty: JsonObject = {"found": False, "confidence": 0.0, "sources": [], "sentences": []}
    return _reported(ranking, notes, made, explain=explain, answer=NOTHING, **empty)


def _reported(
    ranking: Ranking, notes: Sequence[str], made: Synthesis | None, *, explain: bool, **answer: Any
) -> JsonObject:
    reasons = [ranking.reason, made.reason if made else None]
    data = {
        **answer,
        "degraded": ranking.degraded or bool(made and made.degraded),
        "reason": "; ".join(filter(None, reasons)) or None,
        "extractive": made.extractive if made else False,
        "writer": made.answer.writer if made else None,
        "notes": [*notes, *_graph_notes(ranking)],
        "warnings": list(ranking.warnings),
    }
    if explain:
        data["explanation"] = [
            {"title": str(hit.metadata.get("title", "")), "why": ranking.why(hit.id)} for hit in ranking.hits
        ]
    return data


def _source(number: int, hit: Any, cited: Mapping[int, Sequence[str]]) -> JsonObject:
    passage = Passage(number, hit)
    text = passage.text
    statements = cited.get(number, [])
    one_line = " ".join(text.split())
    # A quoted sentence is its own excerpt; of a written answer, the passage's words nearest to it are shown.
    excerpts = [said if said in one_line else snippet(text, said).text for said in statements]
    page = hit.metadata.get("page")
    return {
        "number": number,
        "id": hit.id,
        "article": hit.metadata.get("article"),
        "title": passage.title,
        "heading": passage.heading,
        "text": text,
        "cited": number in cited,
        "excerpt": " … ".join(dict.fromkeys(excerpts)),
        **({"page": page} if page is not None else {}),
    }


def _graph_notes(ranking: Ranking) -> list[str]:
    """Return what the graph stage said of all hits."""
    return sorted({record.note for record in ranking.trace if record.name == CENTRALITY and record.note})
