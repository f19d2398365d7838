"""Run every attack, each in its own process, and report how often it was tried and what failed.

python -m tests.hardening                  # about an hour; writes results and the page in the docs
python -m tests.hardening --short          # about a minute; writes nothing
python -m tests.hardening cypher faults    # only these; writes nothing
python -m tests.hardening cypher --write   # only this one, and its row of the results with its commit
python -m tests.hardening --seed 7         # other random choices
python -m tests.hardening --tests          # the tests marked `hardening`: sanitizers, ARM kernels, statistics
python -m tests.hardening --properties     # the property tests of the suite with 20 times the examples

Three attacks have commands of their own because they need minutes each or a C compiler:
python -m tests.hardening.durability       # 100 kills while indexing, 100 power cuts
python -m tests.hardening.hostile_models   # 10,000 altered model files under AddressSanitizer
python -m tests.hardening.batch_kills      # 50 kills of bulk jobs, on both engines
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from tests.hardening.report import (
    RESULTS,
    ROOT,
    Outcome,
    current_commit,
    describe_machine,
    machine,
    write_page,
    write_results,
)


@dataclass(frozen=True)
class Attack:
    """Module and function of an attack, its counts in a full and a short run, and its time limit."""

    place: str
    full: int
    short: int
    limit_s: float = 1200.0


ATTACKS = {
    "inputs": Attack("inputs:attack", 26_000, 400),
    "server": Attack("server:attack", 4_000, 60),
    "access": Attack("access:attack", 2_000, 200),
    "secrets": Attack("access:attack_secrets", 400, 40),
    "ratings": Attack("ratings:attack", 300, 30),
    "availability": Attack("availability:attack", 100, 10),
    "long texts": Attack("availability:attack_long_texts", 15, 3),
    "server deadlines": Attack("availability:attack_deadlines", 120, 12),
    "server overload": Attack("availability:attack_overload", 30, 5),
    "cypher": Attack("cypher:attack", 180_000, 900),
    "breaker": Attack("breaker:attack", 100_000, 1_600),
    "fan-out": Attack("fan_out:attack", 20_000, 64),
    "faults": Attack("faults:attack", 20, 1),
    "models": Attack("models:attack", 100, 66),
    "surfaces": Attack("surfaces:attack", 7_000, 140),
    "containers": Attack("surfaces:attack_containers", 3, 1),
    "tables": Attack("tables:attack", 200, 10),
    "kills": Attack("disks:attack_kills", 300, 2),
    "cuts": Attack("power:attack", 100, 4),
    "full disks": Attack("disks:attack_full_disks", 50, 3),
    "byte flips": Attack("damage:attack", 1_600, 60),
    "pages": Attack("damage:attack_pages", 1_400, 21),
    "forks": Attack("forks:attack", 8, 1),
    "interrupts": Attack("interrupts:attack", 12, 1),
    "exits": Attack("exits:attack", 88, 6),
    "stores": Attack("concurrency:attack", 320, 32),
    "scorers": Attack("concurrency:attack_scorers", 320, 32),
    "memory": Attack("memory:attack", 50_000, 500),
    "memory of models": Attack("memory:attack_real", 5_000, 50),
    "overload": Attack("overload:attack", 640, 32),
    "search overload": Attack("overload:attack_search", 1_280, 64),
    "soak": Attack("soak:attack", 20_000, 200),
}
"""Counts are what each attack takes: mutants, schedules, rounds of every fault in every dialect, calls."""


ALONE = (
    "availability", "long texts", "server deadlines", "server overload", "fan-out", "faults", "interrupts",
    "exits", "stores", "scorers", "overload", "search overload", "server", "soak",
)  # fmt: skip
"""These measure time, so no other attack runs next to them."""


def main(argv: list[str] | None = None) -> int:
    """Run the attacks; exit code 1 where something did not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.hardening", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="ATTACK", help=f"some of: {', '.join(ATTACKS)}")
    parser.add_argument("--short", action="store_true", help="a minute of work; nothing is written")
    parser.add_argument("--seed", type=int, default=1, help="which random choices (1)")
    parser.add_argument(
        "--jobs", type=int, default=1, help="attacks side by side; those that measure time run alone (1)"
    )
    parser.add_argument("--write", action="store_true", help="put the rows of named attacks into the results")
    parser.add_argument("--quiet", action="store_true", help="note that nobody else used the machine")
    parser.add_argument("--properties", action="store_true", help="run the property tests thoroughly")
    parser.add_argument("--tests", action="store_true", help="run the tests marked `hardening`")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.properties or args.tests:
        words = ["-m", "property", "--hypothesis-profile=thorough"] if args.properties else ["-m", "hardening"]
        return subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, check=False).returncode
    unknown = [name for name in args.names if name not in ATTACKS]
    if unknown:
        parser.error(f"unknown attack {unknown[0]!r}; known: {', '.join(ATTACKS)}")
    if args.inside:
        print(json.dumps(_run_here(args.names[0], args.seed, short=args.short)))
        return 0
    rows = _all(args.names or list(ATTACKS), args)
    if not args.short and (args.write or not args.names):
        _write(rows, args)
    failures = sum(row["failures"] for row in rows.values())
    print(f"{sum(row['tried'] for row in rows.values()):,} tried, {failures} did not hold")
    return 1 if failures else 0


def _write(rows: dict[str, Any], args: argparse.Namespace) -> None:
    """Write a full run, or some rows of it beside those that were there; with their commit."""
    commit = current_commit()
    if args.names:
        before = json.loads((RESULTS / "hardening.json").read_text(encoding="utf-8"))
        own = {
            "commit": commit, "seed": args.seed, "date": time.strftime("%Y-%m-%d"),
            "machine": describe_machine(machine()), "quiet": args.quiet,
        }  # fmt: skip
        before["attacks"] |= {name: {**row, **own} for name, row in rows.items()}
        text = json.dumps(before, indent=2, sort_keys=True) + "\n"
        (RESULTS / "hardening.json").write_text(text, encoding="utf-8")
    else:
        write_results("hardening", {"seed": args.seed, "commit": commit, "attacks": rows})
    write_page()


def _all(names: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """Run the attacks: those that measure no time side by side, then the others one by one."""
    together = [name for name in names if name not in ALONE] if args.jobs > 1 else []
    with ThreadPoolExecutor(max(1, args.jobs)) as pool:
        rows = dict(
            zip(
                together,
                pool.map(lambda name: _run_in_process(name, args.seed, short=args.short), together),
                strict=True,
            )
        )
    for name in names:
        if name not in rows:
            rows[name] = _run_in_process(name, args.seed, short=args.short)
    return {name: rows[name] for name in names}


def load_attack(name: str) -> Callable[[int, int], Outcome]:
    """Import an attack: a function of a seed and a count."""
    module, function = ATTACKS[name].place.split(":")
    attack: Callable[[int, int], Outcome] = getattr(import_module(f"tests.hardening.{module}"), function)
    return attack


def _run_here(name: str, seed: int, *, short: bool) -> dict[str, Any]:
    count = ATTACKS[name].short if short else ATTACKS[name].full
    started = time.perf_counter()
    outcome = load_attack(name)(seed, count)
    return {**asdict(outcome), "seconds": round(time.perf_counter() - started, 1)}


def _run_in_process(name: str, seed: int, *, short: bool) -> dict[str, Any]:
    """Run one attack so that a crash or a hang of it is one more finding, and not the end of the run."""
    words = [sys.executable, "-W", "ignore", "-m", "tests.hardening", name, "--inside", "--seed", str(seed)]
    try:
        done = subprocess.run(
            [*words, *(["--short"] if short else [])],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=ATTACKS[name].limit_s,
            check=False,
        )
        row = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
        ended = f"ended with {done.returncode}: {done.stderr.strip()[-400:]}"
    except subprocess.TimeoutExpired:
        row, ended = None, f"did not end within {ATTACKS[name].limit_s:.0f} s"
    if row is None:
        row = {**asdict(Outcome(name)), "failures": 1, "examples": [f"the attack {ended}"], "seconds": 0.0}
    held = "held" if not row["failures"] else f"{row['failures']} DID NOT HOLD"
    note = f" ({row['absent']})" if row["absent"] else ""
    print(f"{name:<11} {row['tried']:>8,}  {held}{note}  {row['seconds']:.0f} s", flush=True)
    for example in row["examples"]:
        print(f"            {example}", flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
