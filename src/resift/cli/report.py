"""`resift report`: what hosted reranking cost, from an event log."""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from resift.cli.arguments import JSON, Command, Option
from resift.cli.terminal import print_json, print_table, print_text
from resift.errors import InputError
from resift.types import JsonObject, JsonValue

REPORT = Command(
    """\
LOG is a file of resift.events.JsonlSink (one JSON object per line), or a log with the lines of LogSink.
Costs are computed when a call is made, by the price table of that version or by the prices of the pipeline.

examples:
  resift report cost events.jsonl
  resift report cost events.jsonl --json
""",
    [
        Option("what", "the report", choices=("cost",)),
        Option("logs LOG...", "files with events"),
        JSON._replace(help="write the rows and the total as JSON"),
    ],
)

_BILLED, _SKIPPED = "provider_billed", "cross_encoder_skipped"
_LINE = re.compile(rf"\b({_BILLED}|{_SKIPPED}) (.+)$")
_PAIR = re.compile(r"(\w+)=('(?:[^'\\]|\\.)*'|[^\s]+)")

_COUNTS = ("calls", "tokens", "search_units", "unpriced", "estimated", "unchecked")
_NOTES = {
    "unpriced": "calls have no known price and are not in the total",
    "estimated": "calls reported no usage; theirs is an estimate",
    "unchecked": "calls have a price that no page of the provider confirmed",
}


def run_report(args: argparse.Namespace) -> int:
    """Add up the events and show a row per day, provider and model."""
    rows, skipped = _add_up(event for path in args.logs for event in _read_events(path))
    total = math.fsum(row["cost_usd"] for row in rows)
    if args.json:
        return print_json(
            {"rows": rows, "total_usd": total, "skipped_for_cost": dict(sorted(skipped.items()))}
        )
    if not rows and not skipped:
        files = ", ".join(map(str, args.logs))
        raise InputError(f"No event {_BILLED!r} in {files}. Pass a file of JsonlSink or LogSink.")
    if rows:
        keys = ("provider", "model", "calls", "tokens", "search_units")
        cells = [(row["day"] or "–", *(row[key] for key in keys), f"{row['cost_usd']:.4f}") for row in rows]
        print_table(("day", *keys[:-1], "searches", "USD"), cells, stretch=2)
        print_text(f"total: ${total:.4f}")
    for name, meaning in _NOTES.items():
        if calls := sum(row[name] for row in rows):
            print_text(f"{calls} {meaning}")
    for provider, calls in sorted(skipped.items()):
        print_text(f"{provider}: skipped {calls} times because of a cost limit")
    return 0


def _add_up(events: Iterator[JsonObject]) -> tuple[list[JsonObject], Counter[str]]:
    """Return a row per day, provider and model, and the skipped calls per provider."""
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    costs: dict[tuple[str, str, str], list[float]] = {}
    skipped: Counter[str] = Counter()
    for event in events:
        provider = str(event.get("provider", ""))
        if event["event"] == _SKIPPED:
            skipped[provider] += event.get("reason") == "cost"
            continue
        key = (str(event.get("time") or "")[:10], provider, str(event.get("model", "")))
        cost = event.get("cost_usd")
        counts.setdefault(key, Counter()).update(
            calls=1,
            tokens=int(_number(event.get("tokens"))),
            search_units=int(_number(event.get("search_units"))),
            unpriced=int(cost is None),
            estimated=int(event.get("estimated") is True),
            unchecked=int(cost is not None and event.get("price_checked") is False),
        )
        costs.setdefault(key, []).append(_number(cost))
    rows = [
        {
            **dict(zip(("day", "provider", "model"), key, strict=True)),
            **{name: counts[key][name] for name in _COUNTS},
            "cost_usd": math.fsum(costs[key]),
        }
        for key in sorted(counts)
    ]
    return rows, +skipped


def _number(value: JsonValue) -> float:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else 0


def _read_events(path: Path) -> Iterator[JsonObject]:
    """Yield the events about cost in a file of JSON lines or of log lines; other lines are skipped."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if _BILLED in line or _SKIPPED in line:
                event = _parse_event(line)
                if event.get("event") in (_BILLED, _SKIPPED):
                    yield event


def _parse_event(line: str) -> JsonObject:
    """Return the event in a line; an empty one if the line has none or is cut off."""
    if line.lstrip().startswith("{"):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}
    match = _LINE.search(line.rstrip())
    if match is None:
        return {}
    event: JsonObject = {"event": match[1]}
    if stamp := re.match(r"\d{4}-\d{2}-\d{2}", line):
        event["time"] = stamp[0]
    for name, text in _PAIR.findall(match[2]):
        with contextlib.suppress(ValueError, SyntaxError):
            event[name] = ast.literal_eval(text)
    return event
