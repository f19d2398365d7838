"""`resift init`: write a pipeline file for the data you have; `resift config`: check or show a file, list all keys."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from resift.cli.terminal import count, out, style
from resift.config import inspect_yaml, load_yaml
from resift.config.build import unset_key_variables
from resift.config.sections import default_file, reference_page
from resift.config.settings import Settings
from resift.errors import ConfigError, InputError, require, shell_path
from resift.pipeline.defaults import FETCH
from resift.pipeline.fan_out import OverFetch
from resift.plugins import load_store
from resift.ranking.fusion.weighted import NAME as WEIGHTED
from resift.stores.sqlite.database import APPLICATION_ID
from resift.stores.tables.embedded import list_sqlite_tables
from resift.types import JsonMapping, JsonObject


def run_config(args: argparse.Namespace) -> int:
    """Run one action; exit code 1 if the file contains mistakes."""
    if args.action == "check":
        return _check(args)
    if args.action == "show":
        data = load_yaml(args.file, expand=False).plain()
        if args.json:
            return out.json(data)
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    elif args.action == "init":
        text = default_file(_relative(args.store, args.output or Path("pipeline.yaml")))
        if args.output is not None:
            _refuse_existing(args.output, "Choose another file for -o.")
            _write(args.output, text)
            out.text(f"Wrote {args.output}. Next: resift config check {shell_path(args.output)}")
            return 0
    else:
        text = reference_page(packages=None)
    sys.stdout.write(text)
    return 0


def _write(output: Path, text: str) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")


def _check(args: argparse.Namespace) -> int:
    try:
        settings, problems = inspect_yaml(args.file)
        mistakes = problems.lines()
    except ConfigError as exc:
        settings, mistakes = None, [str(exc)]
    if mistakes or settings is None:
        if args.json:
            out.json({"ok": False, "mistakes": mistakes})
            return 1
        for line in (*mistakes, style(count(len(mistakes), "mistake"), "red", stream=sys.stderr)):
            out.note(" ".join(line.split()))
        return 1
    rows = _summarize(settings)
    if args.json:
        summary = [{"part": part, "is": value} for part, value in rows]
        return out.json({"ok": True, "mistakes": [], "summary": summary})
    out.text(f"{style('OK', 'green', 'bold')}  {args.file}\n")
    out.table(["part", "setting"], rows, wrap=True)
    return 0


def _summarize(settings: Settings) -> list[tuple[str, str]]:
    """Return (part, setting) rows."""
    rows: list[tuple[str, str]] = []
    for store in settings["stores"]:
        place = next((str(store[key]) for key in ("path", "url") if store.get(key)), "")
        place = place.removeprefix(f"{Path.cwd()}/")
        rows.append(("store", f"{store['name']} ({store['kind']}) {place}".rstrip()))
    fetch = FETCH if settings["fetch"] is None else settings["fetch"].part(OverFetch)
    method, rerank = settings["fusion"]["method"], settings["rerank"]
    rows += [("fetch", f"{fetch(settings['k'])} hits from each store"), ("fusion", method)]
    if rerank is not None:
        scorers = rerank["tiers"] or [rerank]
        names = " > ".join(f"{scorer['kind']} {scorer.get('model') or ''}".strip() for scorer in scorers)
        adaptive = method == WEIGHTED and not rerank["depth"]
        depth = "adaptive depth" if adaptive else f"the top {rerank['depth'] or 20}"
        rows.append(("rerank", f"{names}, {depth}"))
        unset = [name for scorer in scorers for name in unset_key_variables(scorer)]
        rows += [("note", f"{name} is not set: its tier will be skipped") for name in unset]
        guard = settings["guard"] or {"blend": True, "do_no_harm": True}
        rows += [("blend", "on" if guard["blend"] else "off"), ("guard", "on" if guard["do_no_harm"] else "off")]
    rows += [(part, "on") for part in ("gate", "shape") if settings.get(part) is not None]
    deadline_s = settings["deadline_s"]
    rows += [("k", str(settings["k"])), ("deadline", "none" if deadline_s is None else f"{deadline_s:g} s")]
    for store in settings["stores"] if settings["capabilities"] is not None else ():
        capability = f"db.{store['name']}:read"
        if capability not in settings["capabilities"]:
            rows.append(("note", f"{capability} is not granted: every search will be rejected"))
    return rows


_PASSWORD = re.compile(r"(://[^/@\s:]*):([^/@\s$][^/@\s]*)@")


@dataclass
class Source:
    """A data source: the kind of store, its arguments, and the tables to choose from."""

    kind: str
    what: str
    arguments: JsonObject = field(default_factory=dict)
    table_key: str = "table"
    tables: list[str] = field(default_factory=list)
    path_key: str = ""


def run_init(args: argparse.Namespace) -> int:
    """Write the file and print the next command."""
    if not args.force:
        _refuse_existing(args.output, "Replace it with --force, or choose another -o.")

    def ask(question: str, default: str = "") -> str:
        if sys.stdin is None or not sys.stdin.isatty():
            return default
        sys.stderr.write(f"{question}{f' [{default}]' if default else ''} ")
        sys.stderr.flush()
        return sys.stdin.readline().strip() or default

    location = args.store or ask("What do you want to search (a database file, a folder, a URL)?")
    if not location:
        raise InputError("Specify what to search: --store FILE, FOLDER, postgresql://… or http://…")
    source = find_source(location)
    next_step = f"resift search WORDS --pipeline {shell_path(args.output)}"
    if source.kind == "index":
        text = default_file("docs.db")
        index = shell_path(args.output.with_name("docs.db"))
        next_step = f"resift index {shell_path(source.arguments['folder'])} --store {index}"
    elif source.kind == "sqlite":
        text = default_file(_relative(location, args.output))
    else:
        text = _describe_store(args, source, location, ask)
    _write(args.output, text)
    if "${" in text:
        variable = text.partition("${")[2].partition("}")[0]
        out.note(f"The password is not in the file. Run: export {variable}=…")
    out.text(f"Wrote {args.output}.")
    out.text(f"Next: {next_step}")
    return 0


def _describe_store(args: argparse.Namespace, source: Source, location: str, ask: Callable[..., str]) -> str:
    """Open the store, which validates all names, and return the text of its pipeline file."""
    table = args.table or (source.tables[0] if len(source.tables) == 1 else "")
    if not table:
        tables = ", ".join(source.tables[:20])
        table = ask(f"Which {source.table_key}{f' (available: {tables})' if tables else ''}?")
        if not table:
            available = f" Available: {tables}." if tables else ""
            raise InputError(f"Name the {source.table_key} with --table.{available}")
    store = _open(source, table, args.text, args.id)
    fields = ",".join(store.columns.fields or ())
    if not args.text:
        names = ("column_types", "known_fields", "field_types")
        columns = next((columns for name in names if (columns := getattr(store, name, None))), ())
        answer = ask(f"Which columns contain the text (available: {', '.join(columns)})?", fields)
        store = store if answer == fields else _open(source, table, answer, args.id)
    keys = {**source.arguments, source.table_key: table, "fields": list(store.columns.fields or ())}
    if args.id:
        keys["id"] = args.id
    if source.path_key:
        keys[source.path_key] = _relative(location, args.output)
    store.release()
    return pipeline_text(source, table, keys)


def find_source(where: str) -> Source:
    """Identify the data source behind a path, a connection string or a URL."""
    if re.match(r"postgres(?:ql)?://|(?:host|dbname|service)=", where):
        return Source("postgres-table", "a PostgreSQL table", {"dsn": where})
    if re.match(r"https?://", where):
        return Source("elasticsearch-query", "an Elasticsearch or OpenSearch index", {"url": where}, "index")
    if "://" in where:
        advice = "write a pipeline file with kind: sql-statement (resift config reference)"
        raise InputError(f"There is no built-in store for {where.partition('://')[0]}://; {advice}.")
    path = Path(where).expanduser()
    if path.is_dir():
        return _find_in_folder(path)
    if not path.is_file():
        raise InputError(f"{where} does not exist; pass a database file, a folder, postgresql://… or http://…")
    with path.open("rb") as file:
        head = file.read(72)
    if head[8:12] == b"DUCK":
        with contextlib.closing(require("duckdb", extra="duckdb").connect(str(path), read_only=True)) as connection:
            rows = connection.execute("SELECT table_name FROM information_schema.tables ORDER BY 1").fetchall()
        tables = [name for (name,) in rows]
        return Source("duckdb-table", "a DuckDB table", {"database": str(path)}, "table", tables, "database")
    if not head.startswith(b"SQLite format 3"):
        advice = f"To search documents, pass their folder, or run: resift index {shell_path(path)}"
        raise InputError(f"{where} is not a SQLite or DuckDB database. {advice}")
    if int.from_bytes(head[68:72], "big") == APPLICATION_ID:
        return Source("sqlite", "a Resift index", {"path": str(path)})
    try:
        tables = [name for name, _ in list_sqlite_tables(path)]
    except sqlite3.Error as exc:
        raise InputError(f"{where} cannot be read as a SQLite database: {type(exc).__name__}.") from exc
    return Source("sqlite-table", "a SQLite table", {"path": str(path)}, "table", tables, "path")


def _find_in_folder(path: Path) -> Source:
    lance = sorted(table.stem for table in path.glob("*.lance"))
    if lance:
        return Source("lancedb-table", "a LanceDB table", {"uri": str(path)}, "table", lance, "uri")
    if (path / "chroma.sqlite3").is_file():
        arguments = {"path": str(path), "mode": "text"}
        return Source("chroma-collection", "a Chroma collection", arguments, "collection", path_key="path")
    if (path / "meta.json").is_file() and (path / "collection").is_dir():
        names = sorted(json.loads((path / "meta.json").read_text(encoding="utf-8")).get("collections", {}))
        return Source("qdrant-collection", "a Qdrant collection", {"path": str(path)}, "collection", names, "path")
    return Source("index", "a folder of documents", {"folder": str(path)})


def _open(source: Source, table: str, text: str | None, id: str | None) -> Any:
    options = {**source.arguments, source.table_key: table}
    if text:
        options["fields"] = [name.strip() for name in text.split(",") if name.strip()]
    if id:
        options["id"] = id
    return load_store(source.kind, **options)


def pipeline_text(source: Source, table: str, keys: JsonMapping) -> str:
    """Return a commented pipeline file for a store with these keys."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", table.rpartition(".")[2]).strip("-") or "docs"
    lines = []
    for key, value in keys.items():
        if key in ("dsn", "url") and _PASSWORD.search(str(value)):
            variable = "PGPASSWORD" if key == "dsn" else "ELASTICSEARCH_PASSWORD"
            value = _PASSWORD.sub(rf"\1:${{{variable}}}@", str(value))  # noqa: PLW2901
        note = "  # the text columns; write {title: 3, body: 1} to set weights" if key == "fields" else ""
        lines.append(f"    {key}: {json.dumps(value, ensure_ascii=False)}{note}")
    template = Path(__file__).with_name("table_pipeline.txt").read_text(encoding="utf-8")
    if source.kind == "sqlite-table":  # SQLite tables have no vectors
        template = re.sub(r" *# embedder.*\n", "", template)
    return template.format(what=source.what, name=json.dumps(name), kind=source.kind, keys="\n".join(lines))


def _relative(location: str, output: Path) -> str:
    """Return a path relative to the folder of the pipeline file, which is where the file looks for it."""
    path = Path(location).expanduser()
    return str(path) if path.is_absolute() else os.path.relpath(path, output.parent)


def _refuse_existing(output: Path, advice: str) -> None:
    if output.exists():
        raise InputError(f"{output} already exists and was not changed. {advice}")
