"""Answers as plain data: from a ranking to an answer with sources, or to "not found"."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from resift.agent.evidence import CROSS_ENCODER, AbsentNames, measure_evidence
from resift.agent.graph_reranker import STAGE as CENTRALITY
from resift.agent.multi_doc import MultiDocSynthesizer, Passage, Synthesis
from resift.deadline import Deadline
from resift.text.snippets import snippet
from resift.types import Hit, JsonObject, JsonValue, Ranking
from resift.validation import check_text

MAX_QUESTION_CHARS = 1000
NOT_FOUND = "Not found: nothing here answers the question."


def clean_question(question: str) -> tuple[str, list[str]]:
    """Return the question as one printable line of limited length, and notes about changes."""
    check_text(question, "The question")
    printable = "".join(char if char.isprintable() else " " for char in question[: MAX_QUESTION_CHARS * 2])
    cleaned = " ".join(printable.split())[:MAX_QUESTION_CHARS]
    note = f"only the first {MAX_QUESTION_CHARS} characters of the question were read"
    return cleaned, [note] if len(question) > MAX_QUESTION_CHARS else []


async def answer_from_ranking(
    question: str,
    ranking: Ranking,
    synthesizer: MultiDocSynthesizer,
    *,
    embedder: str,
    deadline: Deadline,
    notes: Sequence[str] = (),
    find_absent_names: Callable[[], Awaitable[AbsentNames]] | None = None,
    explain: bool = False,
) -> JsonObject:
    """Return the answer as plain data.

    `embedder` is the name of the model whose cosines the ranking has. `find_absent_names` looks up the names
    of the question in the vocabulary of a pack.
    """
    evidence = measure_evidence(ranking, question, embedder=embedder)
    # The extractive writer scores each sentence with the cross-encoder, which decides better than passages.
    checks_sentences = synthesizer.writer is None and evidence.scorer == CROSS_ENCODER
    if not ranking.hits or not (evidence.is_enough or checks_sentences):
        reason = f"no passage is close enough to the question ({evidence.scorer})"
        return not_found(ranking, [*notes, reason], explain=explain)
    absent = AbsentNames(False, []) if find_absent_names is None else await find_absent_names()
    all_notes = [*notes, *absent.notes]
    if absent.unknown:
        return not_found(ranking, all_notes, explain=explain)
    synthesis = await synthesizer.synthesize(question, ranking, deadline=deadline)
    answer = synthesis.answer
    if not answer.sentences:
        return not_found(ranking, [*all_notes, *answer.notes], synthesis=synthesis, explain=explain)
    confidence = evidence.confidence if answer.confidence is None else answer.confidence
    cited: dict[int, list[str]] = {}
    for sentence in answer.sentences:
        for number in sentence.sources:
            cited.setdefault(number, []).append(sentence.text)
    data: JsonObject = {
        "answer": answer.text,
        "found": True,
        "confidence": round(confidence * (0.5 if absent.notes else 1.0), 3),
        "sources": [_describe_source(number, hit, cited) for number, hit in enumerate(ranking.hits, start=1)],
        "sentences": [
            {"text": sentence.text, "sources": list(sentence.sources)} for sentence in answer.sentences
        ],
    }
    return _add_details(data, ranking, [*all_notes, *answer.notes], synthesis, explain=explain)


def not_found(
    ranking: Ranking, notes: Sequence[str], *, synthesis: Synthesis | None = None, explain: bool = False
) -> JsonObject:
    """Return the data of a question without an answer: no sources, confidence 0."""
    data = {"answer": NOT_FOUND, "found": False, "confidence": 0.0, "sources": [], "sentences": []}
    return _add_details(data, ranking, notes, synthesis, explain=explain)


def _add_details(
    answer: Mapping[str, JsonValue],
    ranking: Ranking,
    notes: Sequence[str],
    synthesis: Synthesis | None,
    *,
    explain: bool,
) -> JsonObject:
    graph_notes = {record.note for record in ranking.trace if record.name == CENTRALITY and record.note}
    reasons = [ranking.reason, synthesis.reason if synthesis else None]
    data = {
        **answer,
        "degraded": ranking.degraded or bool(synthesis and synthesis.degraded),
        "reason": "; ".join(filter(None, reasons)) or None,
        "extractive": synthesis.extractive if synthesis else False,
        "writer": synthesis.answer.writer if synthesis else None,
        "notes": [*notes, *sorted(graph_notes)],
        "warnings": list(ranking.warnings),
    }
    if explain:
        data["explanation"] = [
            {"title": str(hit.metadata.get("title", "")), "why": ranking.why(hit.id)} for hit in ranking.hits
        ]
    return data


def _describe_source(number: int, hit: Hit, cited: Mapping[int, Sequence[str]]) -> JsonObject:
    passage = Passage(number, hit)
    one_line = " ".join(passage.text.split())
    # A quoted sentence is its own excerpt. For a written sentence, the best matching words are shown.
    excerpts = [
        sentence if sentence in one_line else snippet(passage.text, sentence).text
        for sentence in cited.get(number, [])
    ]
    page = hit.metadata.get("page")
    return {
        "number": number,
        "id": hit.id,
        "article": hit.metadata.get("article"),
        "title": passage.title,
        "heading": passage.heading,
        "text": passage.text,
        "cited": number in cited,
        "excerpt": " … ".join(dict.fromkeys(excerpts)),
        **({"page": page} if page is not None else {}),
    }
