"""What `resift doctor` finds out: packages per extra, model files, a reranking that takes a second."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from resift.errors import install_command, shell_path

if TYPE_CHECKING:
    from resift.stores.sqlite.tables import FileMetadata as FileFacts

State = Literal["ok", "absent", "broken"]

_REQUIREMENT = re.compile(r"([\w.-]++)(?:\[[^][]*+\])?+([^;]*+)")
_EXTRA = re.compile(r"\bextra\s*+==\s*+['\"]([\w-]++)['\"]")
_SELF_TEST = (
    "what is the capital of France?",
    ["Lyon is famous for its cheese.", "Paris is where the French government sits."],
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    group: str
    name: str
    state: State
    message: str
    fix: str = ""


def extras() -> dict[str, list[str]]:
    """Return the requirements of each extra for users, as the installed package declares them."""
    found: dict[str, list[str]] = {}
    for line in metadata.requires("resift") or ():
        requirement, extra = _REQUIREMENT.match(line), _EXTRA.search(line)
        if requirement and extra and extra[1] not in ("all", "dev"):
            found.setdefault(extra[1], []).append(f"{requirement[1]}{requirement[2].strip()}")
    return found


def extra_finding(extra: str, requirements: list[str]) -> Finding:
    """Say whether an extra's packages are here, in the versions it needs."""
    have: list[str] = []
    lack: list[str] = []
    old: list[str] = []
    for requirement in requirements:
        name = re.split(r"[<>=!~]", requirement)[0]
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            lack.append(name)
            continue
        (have if _satisfies(version, requirement) else old).append(f"{name} {version}")
    fix = install_command(extra)
    if old:
        return Finding("extra", extra, "broken", f"wrong version: {', '.join(old)}", fix)
    if lack:
        return Finding("extra", extra, "absent", f"not installed: {', '.join(lack)}", fix)
    return Finding("extra", extra, "ok", ", ".join(have))


def model_findings() -> list[Finding]:
    """Check every builtin_spec model's files against their pinned digests, without fetching anything."""
    from resift.errors import ModelError
    from resift.models.locate import resolve
    from resift.models.registry import builtin_ids, builtin_spec

    findings = []
    for name in sorted(builtin_ids()):
        spec = builtin_spec(name)
        kind = spec.kind if spec else "model"
        try:
            files = resolve(name, download=False)
            findings.append(Finding("model", name, "ok", f"{kind}, verified, from the {files.source}"))
        except ModelError as exc:
            absent = str(exc).startswith("No files of")
            message = f"{kind}, not on this machine" if absent else str(exc)
            findings.append(Finding("model", name, "absent" if absent else "broken", message))
    return findings


def search_finding() -> Finding:
    """Say whether SQLite can search words."""
    try:
        sqlite3.connect(":memory:").execute("create virtual table t using fts5(x)").connection.close()
    except sqlite3.Error:
        return Finding(
            "self-test", "word search", "broken", "this Python's SQLite has no FTS5", "install another Python"
        )
    return Finding("self-test", "word search", "ok", f"SQLite {sqlite3.sqlite_version} with FTS5")


def kernel_finding() -> Finding:
    """Say what computes the models here, and why."""
    from resift.errors import ConfigError
    from resift.models.engine import usable_cores
    from resift.native.library import native_kernel

    try:
        kernel = native_kernel()
    except ConfigError as exc:
        return Finding("self-test", "forward pass", "broken", str(exc), "unset RESIFT_NATIVE")
    cores = usable_cores()
    threads = f"{cores} thread{'s' if cores > 1 else ''}"
    if kernel.name is None:
        state: State = "broken" if kernel.fix else "ok"
        return Finding(
            "self-test", "forward pass", state, f"ONNX Runtime, {threads}: {kernel.reason}", kernel.fix
        )
    return Finding(
        "self-test", "forward pass", "ok", f"compiled code, {kernel.name}, {threads}: {kernel.reason}"
    )


def rerank_finding() -> Finding:
    """Rerank two sentences and see whether the right one wins."""
    from resift.reranking import rerank

    started = time.perf_counter()
    query, texts = _SELF_TEST
    ranking = rerank(query, texts)
    took = f"{(time.perf_counter() - started) * 1000:.0f} ms with loading"
    if ranking.degraded:
        return Finding(
            "self-test", "reranking", "broken", ranking.reason or "degraded", install_command("local")
        )
    if ranking.ids[0] != "1":
        return Finding("self-test", "reranking", "broken", f"the wrong sentence won ({took})")
    return Finding("self-test", "reranking", "ok", f"the right sentence won, {took}")


_WORKER = """
from resift.reranking import rerank
from resift.server import serve_app
serve_app()
rerank("is this a worker?", ["yes", "no"])
rows = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
print(int(rows["VmRSS"].split()[0]) // 1024)
"""


def worker_finding() -> Finding | None:
    """Say how much memory a worker of `resift serve` takes with the default model, where the system tells."""
    command = [sys.executable, "-c", _WORKER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    if done.returncode or not done.stdout.strip().isdecimal():
        return None
    message = f"{done.stdout.strip()} MB of memory for each worker of resift serve, with the default reranker"
    return Finding("self-test", "server", "ok", message)


def _satisfies(version: str, requirement: str) -> bool:
    """Compare the numbers of >= and ==; other conditions are pip's business."""
    match = re.search(r"(>=|==)\s*([\d.]+)", requirement)
    if match is None:
        return True
    have, need = (tuple(map(int, re.findall(r"\d+", text)[:3])) for text in (version, match[2]))
    size = max(len(have), len(need))
    have, need = (numbers + (0,) * (size - len(numbers)) for numbers in (have, need))
    return have >= need if match[1] == ">=" else have == need


async def store_findings(path: Path) -> list[Finding]:
    """Examine an index file: what it is, whether it is whole, and how much the bit codes find."""
    from resift.stores.sqlite import SQLiteStore

    remedy = f"Restore a copy, or move {path} away and index again"
    store = SQLiteStore(path, read_only=True)
    try:
        facts = store.facts()
        found = [_described(path, facts)]
        problems = await store.verify()
        found += [Finding("store", "damage", "broken", problem, remedy) for problem in problems]
        if not problems:
            found.append(
                Finding("store", "integrity", "ok", "every document, vector, code and word is as written")
            )
        if facts.dimension and not problems and facts.version > 1:
            recall = await store.recall()
            message = f"bit codes find {recall:.1%} of the exact first ten (20 documents as questions)"
            found.append(Finding("store", "recall", "ok", message))
        return found
    finally:
        await store.close()


def _described(path: Path, facts: FileFacts) -> Finding:
    held = f"version {facts.version}, {facts.documents} documents" if facts.version > 1 else "version 1"
    vectors = f"{facts.embedder} ({facts.dimension} dimensions)" if facts.dimension else "words only"
    if facts.version == 1:
        fix = f"resift index --upgrade --store {shell_path(path)}"
        return Finding("store", path.name, "absent", f"{held}, {vectors}; to write into it: {fix}")
    return Finding("store", path.name, "ok", f"{held}, {vectors}, language {facts.language}")
