"""Scores for query–document pairs: windows for long documents, each text once, deadline and progress."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from resift._internal.arrays import Array
from resift.deadline import Deadline
from resift.models.engine import Job, Task, shared_engine, until_deadline
from resift.models.familiar import check_familiar
from resift.models.loading import Model
from resift.models.windows import Aggregate, combine, most_promising, spans
from resift.text.sentences import sentence_spans
from resift.validation import check_number

HOPELESS = -4.0
"""A score (a logit: 1 in 50) below which a text's other windows hardly help it (docs/blending.md)."""

MAX_WINDOWS = 32
"""Windows scored per document: about 25 kB of English. Of longer documents the most promising ones."""

WINDOW = 256
"""Tokens of a pair when a document does not fit into one row: passages are what the models were trained on,
and attention makes a row of 512 cost three times one of 256."""

QUERY_PART, QUERY_PARTS = 64, 8
"""Of a query that takes up more than half a row: tokens of a sentence read whole, and how many of them
a document is read with, those that have most in common with it. Models know questions, not whole pages."""

_NUMBERED = 5  # windows that a record names one by one

Progress = Callable[[int, int], None]
"""Called with (different texts scored, different texts in all), from a worker thread."""

log = logging.getLogger("resift.models")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """How pairs are laid out and read.

    Of a long text at most `max_windows` are read, those that hold most of the query; with `skim` that many
    first, and the others only where one of these is not hopeless.
    """

    aggregate: Aggregate = "max"
    max_windows: int = MAX_WINDOWS
    skim: int | None = None
    document_first: bool = False
    read: Callable[[Array], float] = lambda output: float(output.reshape(-1)[0])

    def __post_init__(self) -> None:
        for name in ("max_windows", "skim"):
            check_number(1 if (value := getattr(self, name)) is None else value, name, gt=0)


@dataclass(slots=True, repr=False)
class PairCall:
    """One call under way: a value per text, filled in by the workers. Its repr shows no text.

    `read` says of a long text which of its windows were read, where not all were.
    """

    texts: list[str]
    deadline: Deadline
    on_progress: Progress | None
    query: list[int] = field(default_factory=list)
    parts: list[tuple[int, int]] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)
    notes: set[str] = field(default_factory=set)
    read: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    total: int = 0
    job: Job | None = None

    def result(self) -> list[float | None]:
        """Return one value per text in the order given; None where time ran out."""
        return [self.values.get(text) for text in self.texts]

    @property
    def tokens(self) -> int:
        """How many tokens the texts have together, each with the query."""
        return sum(self.sizes[text] + len(self.query) for text in self.texts if text in self.sizes)

    @property
    def note(self) -> str:
        """What a reader of the scores should know, or an empty string."""
        return "; ".join(sorted(self.notes))


class PairModel:
    """A loaded model that says how well documents answer a query."""

    def __init__(self, model: Model, options: PairOptions | None = None) -> None:
        self.model = model
        self.options = options or PairOptions()

    def predict(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return one raw score per (query, document) pair, in order."""
        calls: dict[str, PairCall] = {}
        for query in dict.fromkeys(query for query, _ in pairs):
            calls[query] = self.start(query, [text for asked, text in pairs if asked == query])
        for call in calls.values():
            _job(call).future.result()
        return [calls[query].values[text] for query, text in pairs]

    async def score(
        self, query: str, texts: Sequence[str], *, deadline: Deadline, on_progress: Progress | None = None
    ) -> PairCall:
        """Score the texts on the engine's threads while this loop goes on.

        Raises UnfamiliarTextError for a language that the model was not made for.
        """
        check_familiar(self.model.tokenizer, self.model.spec.id, query, texts)
        call = self.start(query, texts, deadline=deadline, on_progress=on_progress)
        await until_deadline(_job(call))
        return call

    def start(
        self,
        query: str,
        texts: Sequence[str],
        *,
        deadline: Deadline | None = None,
        on_progress: Progress | None = None,
    ) -> PairCall:
        """Queue the texts: in the order given under a deadline, longest first (best balance) without."""
        call = PairCall(list(texts), deadline or Deadline.never(), on_progress)
        # A text that several hits share is read once.
        unique = list(dict.fromkeys(call.texts))
        if call.deadline.timeout_s is None:
            unique.sort(key=len, reverse=True)
        call.total = len(unique)

        def begin() -> list[Task]:
            # In a worker: on the caller's loop a busy tokenizer would hold up every other deadline.
            self._read_query(query, call)
            return [partial(self._document, call, text) for text in unique] if call.parts else []

        call.job = shared_engine().submit([begin] if unique else [], deadline=call.deadline)
        return call

    def _read_query(self, query: str, call: PairCall) -> None:
        """Keep a query whole up to half a row; a longer one is read sentence by sentence, never cut."""
        ids, half = self._ids(query, call), self.model.spec.max_length // 2
        if ids is None:
            return
        if len(ids) <= half:
            call.query, call.parts = ids, [(0, len(ids))]
            return
        for start, end in sentence_spans(query, lowercase_starts=True):
            before = len(call.query)
            call.query += self._ids(query[start:end], call) or []
            sentence = spans(len(call.query) - before, min(QUERY_PART, half))
            call.parts += [(before + first, before + last) for first, last in sentence if last > first]
        chosen = f", {QUERY_PARTS} of them with each text" if len(call.parts) > QUERY_PARTS else ""
        call.notes.add(f"query of {len(ids)} tokens read in {len(call.parts)} parts{chosen}")

    def _ids(self, text: str, call: PairCall) -> list[int] | None:
        return self.model.tokenizer.ids(text, give_up=lambda: call.deadline.expired)

    def _document(self, call: PairCall, text: str) -> Sequence[Task] | None:
        ids = self._ids(text, call)
        if ids is None:
            return None
        call.sizes[text] = len(ids)
        # The longest part of the query counts, so that a window fits beside every one of them.
        around = self.model.tokenizer.template.size + max(end - start for start, end in call.parts)
        whole = self.model.spec.max_length - around
        windows = spans(len(ids), whole if len(ids) <= whole else min(whole, max(128, WINDOW - around)))
        at_once = min(self.options.skim or self.options.max_windows, self.options.max_windows)
        order = list(range(len(windows)))
        if len(windows) > at_once:
            order = most_promising(windows, ids, call.query)[: self.options.max_windows]
        parts = call.parts
        if len(parts) > QUERY_PARTS:
            parts = [parts[at] for at in most_promising(parts, call.query, ids)[:QUERY_PARTS]]
        reading = _Reading(ids, windows, parts, now=order[:at_once], later=order[at_once:])
        return self._windows(call, text, reading, reading.now)

    def _windows(
        self, call: PairCall, text: str, reading: _Reading, places: Sequence[int]
    ) -> Sequence[Task] | None:
        tasks = [
            partial(self._window, call, text, reading, at, part) for at in places for part in reading.parts
        ]
        return tasks if len(tasks) > 1 else tasks[0]()

    def _window(
        self, call: PairCall, text: str, reading: _Reading, at: int, part: tuple[int, int]
    ) -> Sequence[Task] | None:
        query, ids = call.query[slice(*part)], reading.ids[slice(*reading.windows[at])]
        template = self.model.tokenizer.template
        row = template.pair(ids, query) if self.options.document_first else template.pair(query, ids)
        # A pass cannot be stopped: one that would end late by more than half of itself is not begun.
        if call.deadline.remaining_s() < self.model.expected_s(len(row[0])) / 2:
            return None
        score = self.options.read(self.model.forward(*row))
        with call.lock:
            reading.said[at, part] = score
            # The worker that reads the last window of a text finishes it: none waits for another.
            if len(reading.said) < len(reading.now) * len(reading.parts):
                return None
            more = reading.go_on()
            if not more:
                call.values[text] = combine(reading.scores, self.options.aggregate)
                if reading.note:
                    call.read[text] = reading.note
            done = len(call.values)
        if more:
            return self._windows(call, text, reading, more)
        report(call.on_progress, done, call.total)
        return None


@dataclass(slots=True, repr=False)
class _Reading:
    """A text under way: the windows that are read now, those that may follow, and what was said of each.

    Each is read with every one of `parts` of the query.
    """

    ids: list[int]
    windows: list[tuple[int, int]]
    parts: list[tuple[int, int]]
    now: list[int]
    later: list[int]
    said: dict[tuple[int, tuple[int, int]], float] = field(default_factory=dict)

    @property
    def scores(self) -> list[float]:
        """One score per window read, in the order of the text: what it says to the best part of the query."""
        return [max(self.said[at, part] for part in self.parts) for at in sorted(self.now)]

    def go_on(self) -> list[int]:
        """Return the windows that are read next, none where what was said leaves no hope."""
        if max(self.said.values()) < HOPELESS:
            return []
        more, self.later = self.later, []
        self.now = [*self.now, *more]
        return more

    @property
    def note(self) -> str:
        """Which windows were read, where not all were."""
        count, every = len(self.now), len(self.windows)
        if count == every:
            return ""
        if count > _NUMBERED:
            return f"read its {count} most promising windows of {every}"
        numbers = ", ".join(str(at + 1) for at in sorted(self.now))
        return f"read its most promising windows: {numbers} of {every}"


def report(on_progress: Progress | None, done: int, total: int) -> None:
    """Tell a caller how far its work is; a callback that fails is logged and never stops the work."""
    if on_progress is None:
        return
    try:
        on_progress(done, total)
    except Exception:
        log.exception("progress callback failed")


def _job(call: PairCall) -> Job:
    assert call.job is not None  # noqa: S101 - set by start
    return call.job
