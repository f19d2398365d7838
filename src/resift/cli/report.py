"""`resift report`: what hosted reranking cost, from an event log."""

from __future__ import annotations

import argparse
import ast
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

from resift.cli.arguments import add_json
from resift.cli.terminal import print_json, print_table, print_text
from resift.errors import DataFormatError
from resift.types import JsonObject

EXAMPLES = """\
LOG is a file of resift.events.JsonlSink (one JSON object per line), or a log with the lines of LogSink.
Costs are computed when a call is made, by the price table of that version or by the prices of the pipeline.

examples:
  resift report cost events.jsonl
  resift report cost events.jsonl --json
"""

_BILLED, _SKIPPED = "provider_billed", "cross_encoder_skipped"
_LINE = re.compile(rf"\b({_BILLED}|{_SKIPPED}) (.+)$")
_PAIR = re.compile(r"(\w+)=('(?:[^'\\]|\\.)*'|[^\s]+)")


def configure_report(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift report`."""
    parser.epilog = EXAMPLES
    parser.add_argument("what", choices=("cost",), help="the report")
    parser.add_argument("logs", type=Path, nargs="+", metavar="LOG", help="files with events")
    add_json(parser, "the rows and the total")


def run_report(args: argparse.Namespace) -> int:
    """Add up the events and show a row per day, provider and model."""
    rows: dict[tuple[str, str, str], JsonObject] = {}
    skipped: dict[str, int] = {}
    for path in args.logs:
        for event in _read_events(path):
            provider = str(event.get("provider", ""))
            if event["event"] == _SKIPPED:
                if event.get("reason") == "cost":
                    skipped[provider] = skipped.get(provider, 0) + 1
                continue
            day = str(event.get("time") or "")[:10]
            row = rows.setdefault(
                (day, provider, str(event.get("model", ""))),
                {
                    "calls": 0,
                    "tokens": 0,
                    "search_units": 0,
                    "costs": [],
                    "unpriced": 0,
                    "estimated": 0,
                    "unchecked": 0,
                },
            )
            row["calls"] += 1
            row["tokens"] += _number(event.get("tokens"))
            row["search_units"] += _number(event.get("search_units"))
            row["estimated"] += event.get("estimated") is True
            cost = event.get("cost_usd")
            if cost is None:
                row["unpriced"] += 1
            else:
                row["costs"].append(float(_number(cost)))
                row["unchecked"] += event.get("price_checked") is False
    table = [
        {
            "day": day,
            "provider": provider,
            "model": model,
            **{name: row[name] for name in ("calls", "tokens", "search_units")},
            "cost_usd": math.fsum(row["costs"]),
            **{name: row[name] for name in ("unpriced", "estimated", "unchecked")},
        }
        for (day, provider, model), row in sorted(rows.items())
    ]
    total = math.fsum(row["cost_usd"] for row in table)
    if args.json:
        print_json({"rows": table, "total_usd": total, "skipped_for_cost": dict(sorted(skipped.items()))})
        return 0
    if not table and not skipped:
        raise DataFormatError(
            f"No event {_BILLED!r} in {', '.join(map(str, args.logs))}. Pass a file of JsonlSink or LogSink."
        )
    if table:
        headers = ("day", "provider", "model", "calls", "tokens", "searches", "USD")
        print_table(
            headers,
            [
                (
                    row["day"] or "–",
                    row["provider"],
                    row["model"],
                    row["calls"],
                    row["tokens"],
                    row["search_units"],
                    f"{row['cost_usd']:.4f}",
                )
                for row in table
            ],
            stretch=2,
        )
        print_text(f"total: ${total:.4f}")
    for name, meaning in (
        ("unpriced", "calls have no known price and are not in the total"),
        ("estimated", "calls reported no usage; theirs is an estimate"),
        ("unchecked", "calls have a price that no page of the provider confirmed"),
    ):
        if count := sum(row[name] for row in table):
            print_text(f"{count} {meaning}")
    for provider, count in sorted(skipped.items()):
        print_text(f"{provider}: skipped {count} times because of a cost limit")
    return 0


def _number(value: object) -> float:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else 0


def _read_events(path: Path) -> Iterator[JsonObject]:
    """Yield the events about cost in a file of JSON lines or of log lines; other lines are skipped."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if _BILLED not in line and _SKIPPED not in line:
                    continue
                event = _parse_json(line) if line.lstrip().startswith("{") else _parse_log(line)
                if event is not None and event.get("event") in (_BILLED, _SKIPPED):
                    yield event
    except IsADirectoryError:
        raise DataFormatError(f"{path} is a folder; pass a file with events.") from None


def _parse_json(line: str) -> JsonObject | None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None  # the last line of a process that was killed
    return data if isinstance(data, dict) else None


def _parse_log(line: str) -> JsonObject | None:
    match = _LINE.search(line.rstrip())
    if match is None:
        return None
    event: JsonObject = {"event": match[1]}
    stamp = re.match(r"\d{4}-\d{2}-\d{2}", line)
    if stamp:
        event["time"] = stamp[0]
    for name, text in _PAIR.findall(match[2]):
        try:
            event[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            continue
    return event
