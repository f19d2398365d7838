"""From a ranking to an answer with sources, or the honest word that nothing found answers the question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from resift.agent.answers import as_answer, not_found
from resift.agent.evidence import CROSS_ENCODER, AbsentNames, evidence_in
from resift.agent.multi_doc import MultiDocSynthesizer
from resift.deadline import Deadline
from resift.types import JsonObject, Ranking


async def answer_from(
    question: str,
    ranking: Ranking,
    synthesizer: MultiDocSynthesizer,
    *,
    embedder: str,
    deadline: Deadline,
    notes: Sequence[str] = (),
    names: Callable[[], Awaitable[AbsentNames]] | None = None,
    explain: bool = False,
) -> JsonObject:
    """Return the answer as plain data. `embedder` names whose cosines the ranking holds.

    `names` looks up which names of the question nothing mentions, where somebody knows the whole vocabulary.
    """
    evidence = evidence_in(ranking, question, embedder=embedder)
    # A cross-encoder also scores each sentence of a quoted answer; that says more than its passage does.
    by_sentence = synthesizer.writer is None and evidence.judge == CROSS_ENCODER
    if not ranking.hits or not (evidence.enough or by_sentence):
        reason = f"nothing near enough, judged by {evidence.judge}"
        return not_found(ranking, [*notes, reason], explain=explain)
    absent = AbsentNames(False, []) if names is None else await names()
    all_notes = [*notes, *absent.notes]
    if absent.unknown:
        return not_found(ranking, all_notes, explain=explain)
    made = await synthesizer.synthesize(question, ranking, deadline=deadline)
    if not made.answer.sentences:
        return not_found(ranking, [*all_notes, *made.answer.notes], made=made, explain=explain)
    known = made.answer.confidence
    confidence = (evidence.confidence if known is None else known) * (0.5 if absent.notes else 1.0)
    return as_answer(ranking, made, confidence, all_notes, explain=explain)
