"""Score query–document pairs, with windows for long documents, deduplication, deadlines and progress."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from resift._internal.arrays import Array
from resift.deadline import Deadline
from resift.models.engine import Job, Task, shared_engine, wait_for_job
from resift.models.loading import Model
from resift.models.tokenizer import check_language, split_windows
from resift.text.tokenization import sentence_spans
from resift.types import Hit, ScorerInfo, Scores

SKIP_BELOW_LOGIT = -4.0
"""If the first windows of a text all score below this (a probability of 1 in 50), the rest are skipped."""

MAX_WINDOWS = 32  # maximum number of windows scored per document, about 25 kB of English. Longer documents are sampled.

WINDOW = 256
"""Tokens per pair if the document does not fit in one row. Models are trained on passages, and because of
attention, a row of 512 tokens costs three times as much as a row of 256."""

QUERY_PART, QUERY_PARTS = 64, 8
"""For a query longer than half a row: tokens per part, and the number of parts scored with each document. The
parts with the largest overlap are chosen. Models are trained on short queries, not on whole pages."""

_LISTED_WINDOWS = 5  # a note lists window numbers only up to this many windows

Aggregate = Literal["max", "mean", "first"]

Progress = Callable[[int, int], None]
"""Callback with (distinct texts scored, distinct texts in total), called from a worker thread."""

log = logging.getLogger("resift.models")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """Options for building and scoring pairs.

    At most `max_windows` windows of a long text are scored, first those with most of the query: `first_pass_windows`,
    and then the rest if one of them scores well enough. `instruction` replaces that of a decoder's prompt.
    """

    aggregate: Aggregate = "max"
    max_windows: int = MAX_WINDOWS
    first_pass_windows: int | None = None
    document_first: bool = False
    instruction: str | None = None
    read_score: Callable[[Array], float] = lambda output: float(output.reshape(-1)[0])


@dataclass(slots=True, repr=False)
class PairCall:
    """One call in progress, with a score per text that the workers fill in. Its repr shows no text."""

    deadline: Deadline
    on_progress: Progress | None
    total: int
    query: list[int] = field(default_factory=list)
    query_parts: list[tuple[int, int]] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    note: str = ""
    text_notes: dict[str, str] = field(default_factory=dict)
    token_counts: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    job: Job = field(init=False)


class PairModel:
    """A loaded model that scores query–document pairs."""

    def __init__(self, model: Model, options: PairOptions | None = None) -> None:
        self.model = model
        self.options = options or PairOptions()
        self.template = model.tokenizer.template
        if model.prompt is not None and self.options.instruction is not None:
            self.template = model.tokenizer.prompt_template(model.prompt.fixed_parts(self.options.instruction))

    def predict(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return one raw score per (query, document) pair, in order."""
        texts: dict[str, list[str]] = {}
        for query, text in pairs:
            texts.setdefault(query, []).append(text)
        calls = {query: self.start(query, documents) for query, documents in texts.items()}
        for call in calls.values():
            call.job.future.result()
        return [calls[query].scores[text] for query, text in pairs]

    async def score(
        self, query: str, hits: Sequence[Hit], info: ScorerInfo, deadline: Deadline, on_progress: Progress | None = None
    ) -> Scores:
        """Score hits on the engine's threads; raises UnsupportedLanguageError for a language it was not trained on."""
        texts = [hit.text for hit in hits]
        check_language(self.model.tokenizer, self.model.spec.id, query, texts)
        call = self.start(query, texts, deadline=deadline, on_progress=on_progress)
        await wait_for_job(call.job)
        notes = {hit.id: call.text_notes[hit.text] for hit in hits if hit.text in call.text_notes}
        # The query is counted once per text.
        tokens = sum(call.token_counts[text] + len(call.query) for text in texts if text in call.token_counts)
        scores = [call.scores.get(text) for text in texts]
        return scored_in_time(scores, info, note=call.note, notes=notes, tokens=tokens)

    def start(
        self, query: str, texts: Sequence[str], *, deadline: Deadline | None = None, on_progress: Progress | None = None
    ) -> PairCall:
        """Queue the texts: in the given order if there is a deadline, otherwise longest first to balance the load."""
        # A text shared by several hits is scored once.
        unique = list(dict.fromkeys(texts))
        call = PairCall(deadline or Deadline.never(), on_progress, len(unique))
        if call.deadline.timeout_s is None:
            unique.sort(key=len, reverse=True)

        def tokenize_and_plan() -> list[Task]:
            # Runs in a worker, because tokenizing in the caller's event loop would delay other requests.
            self._tokenize_query(query, call)
            return [partial(self._score_document, call, text) for text in unique] if call.query_parts else []

        call.job = shared_engine().submit([tokenize_and_plan] if unique else [], deadline=call.deadline)
        return call

    def _tokenize_query(self, query: str, call: PairCall) -> None:
        """Keep a query of up to half a row as one part; split a longer one into sentences."""
        prompt = self.model.prompt
        wrap = "{}" if prompt is None else prompt.query
        ids, half = self._tokenize(wrap.replace("{}", query), call), self.model.spec.max_length // 2
        if ids is None:
            return
        if len(ids) <= half:
            call.query, call.query_parts = ids, [(0, len(ids))]
            return
        for start, end in sentence_spans(query, lowercase_starts=True):
            before = len(call.query)
            call.query += self._tokenize(wrap.replace("{}", query[start:end]), call) or []
            sentence = split_windows(len(call.query) - before, min(QUERY_PART, half))
            call.query_parts += [(before + first, before + last) for first, last in sentence if last > first]
        count = len(call.query_parts)
        selection = f", {QUERY_PARTS} scored with each text" if count > QUERY_PARTS else ""
        call.note = f"query of {len(ids)} tokens split into {count} parts{selection}"

    def _tokenize(self, text: str, call: PairCall) -> list[int] | None:
        return self.model.tokenizer.ids(text, give_up=lambda: call.deadline.expired)

    def _score_document(self, call: PairCall, text: str) -> Sequence[Task] | None:
        prompt = self.model.prompt
        ids = self._tokenize(text if prompt is None else prompt.document.replace("{}", text), call)
        if ids is None:
            return None
        call.token_counts[text] = len(ids)
        # A window must fit next to the longest part of the query.
        overhead = self.template.size + max(end - start for start, end in call.query_parts)
        budget = self.model.spec.max_length - overhead
        if len(ids) > budget:
            budget = min(budget, max(128, WINDOW - overhead))
        windows = split_windows(len(ids), budget)
        options = self.options
        first_pass = min(options.first_pass_windows or options.max_windows, options.max_windows)
        order = list(range(len(windows)))
        if len(windows) > first_pass:
            order = rank_windows(windows, ids, call.query)[: options.max_windows]
        parts = call.query_parts
        if len(parts) > QUERY_PARTS:
            parts = [parts[i] for i in rank_windows(parts, call.query, ids)[:QUERY_PARTS]]
        document = WindowedDocument(call, text, ids, windows, parts, order[:first_pass], order[first_pass:])
        return self._score_windows(document, document.active)

    def _score_windows(self, document: WindowedDocument, windows: Sequence[int]) -> Sequence[Task] | None:
        rows = [(window, part) for window in windows for part in document.query_parts]
        tasks = [partial(self._score_window, document, *row) for row in rows]
        return tasks if len(tasks) > 1 else tasks[0]()

    def _score_window(self, document: WindowedDocument, window: int, part: tuple[int, int]) -> Sequence[Task] | None:
        call = document.call
        query, ids = call.query[slice(*part)], document.ids[slice(*document.windows[window])]
        row = self.template.pair(*((ids, query) if self.options.document_first else (query, ids)))
        # A run cannot be interrupted, so do not start one that would overrun by more than half its duration.
        if call.deadline.remaining_s() < self.model.expected_s(len(row[0])) / 2:
            return None
        score = self.options.read_score(self.model.forward(*row))
        with call.lock:
            document.scores[window, part] = score
            # The worker that scores the last window finishes the text, so that no worker waits for another.
            if len(document.scores) < len(document.active) * len(document.query_parts):
                return None
            more = document.next_windows()
            if not more:
                # The best-scoring part of the query counts.
                best = [max(document.scores[i, part] for part in document.query_parts) for i in sorted(document.active)]
                call.scores[document.text] = combine_scores(best, self.options.aggregate)
                if document.note:
                    call.text_notes[document.text] = document.note
            done = len(call.scores)
        if more:
            return self._score_windows(document, more)
        report_progress(call.on_progress, done, call.total)
        return None


@dataclass(slots=True, repr=False)
class WindowedDocument:
    """A document in progress: its windows, each scored with every part of the query, and the scores so far."""

    call: PairCall
    text: str
    ids: list[int]
    windows: list[tuple[int, int]]
    query_parts: list[tuple[int, int]]
    active: list[int]
    later: list[int]
    scores: dict[tuple[int, tuple[int, int]], float] = field(default_factory=dict)

    def next_windows(self) -> list[int]:
        """Return the windows to score next, or [] if the scores so far are too low."""
        if max(self.scores.values()) < SKIP_BELOW_LOGIT:
            return []
        more, self.later = self.later, []
        self.active = [*self.active, *more]
        return more

    @property
    def note(self) -> str:
        """List of the scored windows; empty if all were scored."""
        count, total = len(self.active), len(self.windows)
        if count == total:
            return ""
        if count > _LISTED_WINDOWS:
            return f"scored only its {count} most promising windows of {total}"
        numbers = ", ".join(str(window + 1) for window in sorted(self.active))
        return f"scored only its most promising windows: {numbers} of {total}"


def rank_windows(windows: Sequence[tuple[int, int]], ids: Sequence[int], query: Collection[int]) -> list[int]:
    """Return window indexes ordered by overlap with the query's tokens, best first; rare tokens weigh more.

    Ties go to the earlier window, because texts introduce their subject first.
    """
    query_tokens = set(query)
    counts = [Counter(token for token in ids[start:end] if token in query_tokens) for start, end in windows]
    window_frequency = Counter(token for tokens in counts for token in tokens)

    def weight(window: int) -> float:
        # As in BM25, the second occurrence adds less than the first.
        return math.fsum(
            math.log(1 + len(windows) / window_frequency[token]) * count / (count + 1.2)
            for token, count in counts[window].items()
        )

    return sorted(range(len(windows)), key=lambda window: (-weight(window), window))


def combine_scores(scores: Sequence[float], aggregate: Aggregate) -> float:
    """Combine the scores of a text's windows into one score."""
    if aggregate == "first":
        return scores[0]
    # A long text covers many subjects, so one relevant window is enough.
    return max(scores) if aggregate == "max" else math.fsum(scores) / len(scores)


def scored_in_time(
    values: Sequence[float | None], info: ScorerInfo, *, note: str, tokens: int, notes: Mapping[str, str] | None = None
) -> Scores:
    """Return `Scores`, marked as degraded if some values are None because of the deadline."""
    missing = sum(value is None for value in values)
    reason = f"deadline: {len(values) - missing} of {len(values)} hits scored" if missing else None
    return Scores(
        values, info.name, degraded=missing > 0, reason=reason, note=note, notes=notes or {}, tokens=tokens, scorer=info
    )


def report_progress(on_progress: Progress | None, done: int, total: int) -> None:
    """Call the progress callback; log its failure and continue."""
    if on_progress is None:
        return
    try:
        on_progress(done, total)
    except Exception:
        log.exception("progress callback failed")
