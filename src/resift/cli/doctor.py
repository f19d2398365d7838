"""`resift doctor`: check packages, models and a small reranking; `resift demo`: reranking on a bundled sample."""

from __future__ import annotations

import argparse
import itertools
import platform
import sqlite3
import time
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from resift import __version__
from resift._internal.sync import run_sync
from resift.cli.arguments import select
from resift.cli.terminal import Progress, bar, count, in_pipe, out, style, width, wrap
from resift.errors import ConfigError, InputError, ModelError, ResiftError, did_you_mean, install_command
from resift.models.engine import usable_cores
from resift.models.locate import resolve
from resift.models.pinning import probe_model
from resift.models.registry import builtin_ids, find_spec, locked_models
from resift.native.library import native_kernel
from resift.reranking import rerank
from resift.stores.sqlite import SQLiteStore
from resift.text.snippets import clip

State = Literal["ok", "absent", "broken"]

_HEADINGS = {"extra": "extras", "model": "models", "self-test": "self-test", "store": "store"}
_MARKS = {"ok": ("✓", "green"), "absent": ("·", "dim"), "broken": ("✕", "red")}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    group: str
    name: str
    state: State
    message: str
    fix: str = ""


def run_doctor(args: argparse.Namespace) -> int:
    """Run all checks and show the findings."""
    findings = _check_all(args.extras, probe=args.models) if args.store is None else run_sync(check_store(args.store))
    faulty = [finding for finding in findings if finding.state != "ok"]
    broken = [finding for finding in faulty if finding.state == "broken" or finding.name in args.extras]
    next_step = "resift demo" if args.store is None else "nothing to do"
    if args.store is None and any(finding.name == "local" for finding in faulty):
        next_step = install_command("local")
    next_step = next((finding.fix for finding in broken if finding.fix), next_step)
    if args.json:
        rows = [asdict(finding) for finding in findings]
        out.json({"version": __version__, "ok": not broken, "next": next_step, "findings": rows})
    else:
        _print_findings(findings, broken)
        out.text(f"Next: {next_step}")
    return 1 if broken else 0


def _check_all(required: list[str], *, probe: bool = False) -> list[Finding]:
    try:
        extras = read_extras()
    except metadata.PackageNotFoundError:
        problem = "Resift is on the path but not installed, so plugins are not found"
        raise InputError(f"{problem}. Run: pip install .") from None
    for name in required:
        if name not in extras:
            raise InputError(f"Unknown extra {name!r}. {did_you_mean(name, extras)}")
    extra_findings = [check_extra(name, requirements) for name, requirements in extras.items()]
    models = [*check_models(), *(_check_model(name, "lock file") for name in sorted(locked_models()))]
    if probe:
        models = [probe_finding(finding) for finding in models]
    findings = [*extra_findings, *models, check_keyword_search(), check_engine()]
    if any(finding.name == "local" and finding.state == "ok" for finding in extra_findings):
        findings.append(check_reranking())
    return findings


def read_extras() -> dict[str, list[Requirement]]:
    """Return the requirements of each user-facing extra, as declared by the installed package."""
    requirements = [Requirement(line) for line in metadata.requires("resift") or ()]
    extras: dict[str, list[Requirement]] = {}
    for name in sorted(set(metadata.metadata("resift").get_all("Provides-Extra") or ()) - {"all", "dev"}):
        for requirement in requirements:
            marker = requirement.marker
            if marker is not None and marker.evaluate({"extra": name}) and not marker.evaluate({"extra": ""}):
                extras.setdefault(name, []).append(requirement)
    return extras


def check_extra(extra: str, requirements: list[Requirement]) -> Finding:
    """Check whether the packages of an extra are installed in compatible versions."""
    names: dict[State, list[str]] = {"broken": [], "absent": [], "ok": []}
    for requirement in requirements:
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            names["absent"].append(requirement.name)
            continue
        compatible = requirement.specifier.contains(version, prereleases=True)
        names["ok" if compatible else "broken"].append(f"{requirement.name} {version}")
    state: State = next((state for state in names if names[state]), "ok")
    label = {"broken": "wrong version: ", "absent": "not installed: ", "ok": ""}[state]
    fix = "" if state == "ok" else install_command(extra)
    return Finding("extra", extra, state, label + ", ".join(names[state]), fix)


def check_models() -> list[Finding]:
    """Check the files of every built-in model against their pinned digests, without downloads."""
    return [_check_model(name, "built in") for name in sorted(builtin_ids())]


def _check_model(name: str, pin_source: str) -> Finding:
    spec, is_locked = find_spec(name), pin_source == "lock file"
    try:
        files = resolve(name, download=False)
    except ModelError as exc:
        if not is_locked and "are not on this machine" in str(exc):
            return Finding("model", name, "absent", f"{spec.kind}, not on this machine")
        return Finding("model", name, "broken", str(exc), f"resift models verify {name}" if is_locked else "")
    source = f"{spec.precision}, verified, from the lock file" if is_locked else f"verified, from the {files.source}"
    return Finding("model", name, "ok", f"{spec.kind}, {source}")


def probe_finding(finding: Finding) -> Finding:
    """Check the scores of a model whose files are intact; late-interaction models have no probe."""
    if finding.state != "ok" or finding.message.startswith("late-interaction"):
        return finding
    try:
        report = probe_model(resolve(finding.name, download=False))
    except ResiftError as exc:
        return replace(finding, state="broken", message=str(exc))
    if report.problems:
        return replace(finding, state="broken", message="; ".join(report.problems))
    result = f"{report.ordered} of {report.comparisons} comparisons are correct"
    return replace(finding, message=f"{finding.message}; {result}")


def check_keyword_search() -> Finding:
    """Check whether SQLite supports full-text search."""
    try:
        sqlite3.connect(":memory:").execute("create virtual table t using fts5(x)").connection.close()
    except sqlite3.Error:
        message, fix = "the SQLite library of this Python does not support FTS5", "install another Python"
        return Finding("self-test", "keyword search", "broken", message, fix)
    return Finding("self-test", "keyword search", "ok", f"SQLite {sqlite3.sqlite_version} with FTS5")


def check_engine() -> Finding:
    """Check which engine runs the models, and why."""
    try:
        kernel = native_kernel()
    except ConfigError as exc:
        return Finding("self-test", "engine", "broken", str(exc), "unset RESIFT_NATIVE")
    threads = count(usable_cores(), "thread")
    engine = "ONNX Runtime" if kernel.name is None else f"native, {kernel.name}"
    state: State = "broken" if kernel.name is None and kernel.fix else "ok"
    return Finding("self-test", "engine", state, f"{engine}, {threads}: {kernel.reason}", kernel.fix)


def check_reranking() -> Finding:
    """Rerank two sentences and check which one ranks first."""
    started = time.perf_counter()
    texts = ["Lyon is famous for its cheese.", "Paris is where the French government sits."]
    ranking = rerank("what is the capital of France?", texts)
    elapsed = f"{(time.perf_counter() - started) * 1000:.0f} ms including loading"
    if ranking.degraded:
        reason = ranking.reason or "degraded"
        return Finding("self-test", "reranking", "broken", reason, install_command("local"))
    if ranking.ids[0] != "1":
        return Finding("self-test", "reranking", "broken", f"the wrong sentence ranks first ({elapsed})")
    return Finding("self-test", "reranking", "ok", f"the right sentence ranks first, {elapsed}")


async def check_store(path: Path) -> list[Finding]:
    """Check an index file: its contents, its integrity and the recall of its approximate search."""
    store = SQLiteStore(path, read_only=True)
    try:
        facts = store.metadata()
        vectors = f"{facts.embedder} ({facts.dimension} dimensions)" if facts.dimension else "keywords only"
        message = f"version {facts.version}, {facts.documents} documents, {vectors}, language {facts.language}"
        about = Finding("store", path.name, "ok", message)
        if problems := await store.verify():
            fix = f"Restore a backup, or move {path} away and index again"
            return [about, *(Finding("store", "damage", "broken", problem, fix) for problem in problems)]
        message = "all documents, vectors, bit codes and terms are intact"
        findings = [about, Finding("store", "integrity", "ok", message)]
        if facts.dimension:
            message = f"bit codes find {await store.recall():.1%} of the exact top 10 (20 documents as queries)"
            findings.append(Finding("store", "recall", "ok", message))
        return findings
    finally:
        await store.close()


def _print_findings(findings: list[Finding], broken: list[Finding]) -> None:
    """Print names and messages in two columns, or one below the other on a narrow terminal."""
    system = f"{platform.system()} {platform.machine()}"
    out.text(style(wrap(f"Resift {__version__}, Python {platform.python_version()}, {system}"), "bold"))
    for group, members in itertools.groupby(findings, key=lambda finding: finding.group):
        out.text()
        out.text(style(_HEADINGS[group], "bold"))
        in_group = list(members)
        size = min(44, max(len(finding.name) for finding in in_group))
        two_columns = width() - 4 - size >= 24
        for finding in in_group:
            mark, color = _MARKS["broken" if finding in broken else finding.state]
            # Messages are wrapped, never clipped: the reason is often at the end.
            lines = wrap(finding.message, indent=" " * (4 + size if two_columns else 2)).splitlines() or [""]
            name = f"{finding.name:<{size}}  {lines.pop(0).strip()}" if two_columns else finding.name
            for line in (f"{style(mark, color)} {name}", *lines):
                out.text(line)
    out.text()


def run_demo(args: argparse.Namespace) -> int:
    """Run the demo; exit code 0 even if models are missing, which is reported on stderr."""
    from resift import demo

    with Progress("") as progress:

        def show_progress(label: str, done: int, total: int) -> None:
            if progress.label != label:
                progress.close()
                progress.label = label
            progress.update(done, total)

        result = run_sync(demo.run_demo(question=args.question, progress=show_progress))
    if args.page:
        result.ranking.explain(query=result.question).save(args.page)
    if args.json:
        data = select(result, "passages", "missing", "question", "grades")
        data |= {"questions": len(result.questions), "seconds": round(result.total_s, 2)}
        data["quality"] = [
            {"name": row.name, "nDCG@10": row.ndcg, "MRR": row.mrr, "p50_ms": round(row.p50_ms, 2)}
            for row in result.rows
        ]
        return out.json({**data, "ranking": result.ranking.to_dict()})
    if result.missing:
        out.error(f"Keyword search only, without reranking. {result.missing}")
    out.text(style(clip(result.question, width()), "bold"))
    out.text()
    explanation = result.ranking.explain(top=max(1, len(result.ranking)))
    out.text(explanation.text(width=width(), paint=style, curves=not in_pipe()))
    if len(result.ranking):
        best = result.ranking[0]
        grades = {2: style(" (answers the question)", "green"), 1: style(" (helps)", "yellow")}
        out.text()
        out.text(f"1st: {style(best.id, 'bold')}{grades.get(result.grades.get(best.id, 0), '')}")
        out.text(wrap(clip(best.text, 240)))
    out.text()
    methods = result.rows
    rows = [(row.name, f"{row.ndcg:.3f}", bar(row.ndcg, 1.0), f"{row.mrr:.3f}", f"{row.p50_ms:.1f}") for row in methods]
    out.table(["pipeline", "nDCG@10", "", "MRR", "p50 ms"], rows, stretch=0)
    sizes = f"{result.passages} passages, {len(result.questions)} judged queries"
    times = f"{result.index_s:.1f} s to index, {result.total_s:.1f} s in total"
    out.text(style(wrap(f"{sizes}, all computed just now: {times}."), "dim"))
    if args.page:
        out.text(f"Wrote the rank flow to {args.page}")
    out.text()
    out.text("Next: resift index YOUR-FILES --store my.db")
    out.text("      resift search your question --store my.db")
    return 0
