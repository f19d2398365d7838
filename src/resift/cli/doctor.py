"""`resift doctor`: what is installed, which models are verified, whether reranking works, what to do next."""

from __future__ import annotations

import argparse
import itertools
import platform
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resift.cli.diagnosis import Finding

EXAMPLES = """\
Nothing is fetched and nothing is changed. Exit code 1 if something that is here is broken, or if an EXTRA
that you name is not here.

examples:
  resift doctor
  resift doctor local eval
  resift doctor --json
  resift doctor --store docs.db
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift doctor`."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "extras", nargs="*", metavar="EXTRA", help="extras that must be there, for example local"
    )
    parser.add_argument("--store", type=Path, metavar="FILE", help="examine this index instead, end to end")
    parser.add_argument("--json", action="store_true", help="write the findings as JSON")


def run(args: argparse.Namespace) -> int:
    """Look and tell."""
    from dataclasses import asdict

    from resift import __version__
    from resift.cli.render import print_json

    findings = _findings(args.extras) if args.store is None else _store_findings(args.store)
    sick = [
        one for one in findings if one.state == "broken" or (one.name in args.extras and one.state != "ok")
    ]
    step = _next_step(findings, sick)
    if args.json:
        print_json(
            {
                "version": __version__,
                "ok": not sick,
                "next": step,
                "findings": [asdict(one) for one in findings],
            }
        )
    else:
        _print(findings, sick, step)
    return 1 if sick else 0


def _store_findings(path: Path) -> list[Finding]:
    from resift._internal.sync import run_sync
    from resift.cli.diagnosis import store_findings

    return run_sync(store_findings(path))


def _findings(asked: list[str]) -> list[Finding]:
    from importlib.metadata import PackageNotFoundError

    from resift.cli import diagnosis
    from resift.errors import InputError, did_you_mean

    try:
        extras = diagnosis.extras()
    except PackageNotFoundError:
        raise InputError(
            "Resift is on the path but not installed, so plugins are not found. Run: pip install ."
        ) from None
    for name in asked:
        if name not in extras:
            raise InputError(f"Unknown extra {name!r}. {did_you_mean(name, extras)}")
    findings = [diagnosis.extra_finding(name, needs) for name, needs in extras.items()]
    local = next((one for one in findings if one.name == "local"), None)
    findings += diagnosis.model_findings()
    findings.append(diagnosis.search_finding())
    findings.append(diagnosis.kernel_finding())
    if local is not None and local.state == "ok":
        findings.append(diagnosis.rerank_finding())
        if any(one.name == "server" and one.state == "ok" for one in findings):
            findings += filter(None, [diagnosis.worker_finding()])
    return findings


def _next_step(findings: list[Finding], sick: list[Finding]) -> str:
    from resift.errors import install_command

    for one in sick:
        if one.fix:
            return one.fix
    if any(one.group == "store" for one in findings):
        return "nothing to do"
    if any(one.name == "local" and one.state != "ok" for one in findings):
        return install_command("local")
    return "resift demo"


_GROUPS = {"extra": "extras", "model": "models", "self-test": "self-test", "store": "store"}
_MARKS = {"ok": ("✓", "green"), "absent": ("·", "dim"), "broken": ("✕", "red")}


def _print(findings: list[Finding], sick: list[Finding], step: str) -> None:
    from resift import __version__
    from resift.cli.render import paint, print_text, prose

    system = f"{platform.system()} {platform.machine()}"
    print_text(paint(prose(f"Resift {__version__}, Python {platform.python_version()}, {system}"), "bold"))
    for group, members in itertools.groupby(findings, key=lambda one: one.group):
        print_text()
        print_text(paint(_GROUPS[group], "bold"))
        _print_group(list(members), sick)
    print_text()
    print_text(f"Next: {step}")


def _print_group(findings: list[Finding], sick: list[Finding]) -> None:
    """Write names and messages in two columns, or below each other where the terminal is narrow."""
    from resift.cli.render import paint, print_text, prose, width

    size = min(44, max(len(one.name) for one in findings))
    beside = width() - 4 - size >= 24
    for one in findings:
        mark, style = _MARKS["broken" if one in sick else one.state]
        # Wrapped, never cut: what a finding says at its end is often the reason.
        lines = prose(one.message, indent=" " * (4 + size if beside else 2)).splitlines() or [""]
        if beside:
            print_text(f"{paint(mark, style)} {one.name:<{size}}  {lines.pop(0).strip()}")
        else:
            print_text(f"{paint(mark, style)} {one.name}")
        for line in lines:
            print_text(line)
