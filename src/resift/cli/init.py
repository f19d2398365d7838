"""`resift init`: write a pipeline file for the data you have."""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resift.cli.arguments import Command, Option
from resift.cli.terminal import print_note, print_text
from resift.errors import InputError, shell_path
from resift.types import JsonMapping, JsonObject

INIT = Command(
    """\
It asks three questions: what to search, which table, and which columns have the text. Options answer them in
advance; without a terminal nothing is asked. Nothing is written unless the store opens.

examples:
  resift init                                                    asks
  resift init --store library.db --table articles --text title,body
  resift init --store postgresql://reader@localhost/library --table articles
  resift init --store http://localhost:9200 --table docs         an index of Elasticsearch or OpenSearch
  resift init --store handbook/                                  a folder of documents
""",
    [
        Option("--store WHERE", "a database file, a folder, a connection string or a URL"),
        Option("--table NAME", "the table, collection or index"),
        Option("--text NAMES", "the columns with the text, the most important first: title,body"),
        Option("--id NAME", "the column with the id (default: the primary key)"),
        Option("-o --output FILE", "write this file", default=Path("pipeline.yaml")),
        Option("--force", "replace the file if it exists"),
    ],
)
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
    if args.output.exists() and not args.force:
        raise InputError(
            f"{args.output} exists and was not changed. Replace it with --force, or choose another -o."
        )

    def ask(question: str, default: str = "") -> str:
        if sys.stdin is None or not sys.stdin.isatty():
            return default
        sys.stderr.write(f"{question}{f' [{default}]' if default else ''} ")
        sys.stderr.flush()
        return sys.stdin.readline().strip() or default

    where = args.store or ask("What do you want to search (a database file, a folder, a URL)?")
    if not where:
        raise InputError("Say what to search: --store FILE, FOLDER, postgresql://… or http://…")
    source = find_source(where)
    if source.kind == "index":
        from resift.config.sections import default_file

        index = shell_path(args.output.with_name("docs.db"))
        folder = shell_path(Path(source.arguments["folder"]))
        return _write(args, default_file("docs.db"), f"resift index {folder} --store {index}")
    if source.kind == "sqlite":
        from resift.config.sections import default_file

        return _write(args, default_file(_relative(where, args.output)))
    table = args.table or _choose_table(source, ask)
    store = _open(source, table, args.text, args.id)
    fields = list(store.columns.fields or ())
    if not args.text:
        names = ("column_types", "known_fields", "field_types")
        columns = next((found for name in names if (found := getattr(store, name, None))), ())
        question = f"Which columns have the text (of {', '.join(columns)})?"
        answer = ask(question, ",".join(fields))
        if answer != ",".join(fields):
            store = _open(source, table, answer, args.id)
            fields = list(store.columns.fields or ())
    keys = {**source.arguments, source.table_key: table, "fields": fields}
    if args.id:
        keys["id"] = args.id
    if source.path_key:
        keys[source.path_key] = _relative(where, args.output)
    store.release()
    return _write(args, pipeline_text(source, table, keys))


def find_source(where: str) -> Source:
    """Identify the data source behind a path, a connection string or a URL."""
    if re.match(r"postgres(?:ql)?://|(?:host|dbname|service)=", where):
        return Source("postgres-table", "a PostgreSQL table", {"dsn": where})
    if re.match(r"https?://", where):
        return Source(
            "elasticsearch-query", "an index of Elasticsearch or OpenSearch", {"url": where}, "index"
        )
    if "://" in where:
        raise InputError(
            f"{where.partition('://')[0]}:// has no store of its own; write a pipeline file with kind: "
            "sql-statement (resift config reference)."
        )
    path = Path(where).expanduser()
    if path.is_dir():
        return _find_in_folder(path)
    if not path.is_file():
        raise InputError(
            f"{where} does not exist; pass a database file, a folder, postgresql://… or http://…"
        )
    with path.open("rb") as file:
        head = file.read(72)
    if head[8:12] == b"DUCK":
        import contextlib

        from resift.errors import require

        with contextlib.closing(
            require("duckdb", extra="duckdb").connect(str(path), read_only=True)
        ) as connection:
            rows = connection.execute(
                "SELECT table_name FROM information_schema.tables ORDER BY 1"
            ).fetchall()
        return Source(
            "duckdb-table",
            "a DuckDB table",
            {"database": str(path)},
            "table",
            [r[0] for r in rows],
            "database",
        )
    if not head.startswith(b"SQLite format 3"):
        raise InputError(
            f"{where} is not a database of SQLite or DuckDB. To search documents, pass their folder, or run: "
            f"resift index {shell_path(path)}"
        )
    from resift.stores.sqlite.tables import APPLICATION_ID
    from resift.stores.tables.embedded import list_sqlite_tables

    if int.from_bytes(head[68:72], "big") == APPLICATION_ID:
        return Source("sqlite", "an index of Resift", {"path": str(path)})
    try:
        tables = [name for name, _ in list_sqlite_tables(path)]
    except sqlite3.Error as exc:
        raise InputError(f"{where} cannot be read as a SQLite database: {type(exc).__name__}.") from exc
    return Source("sqlite-table", "a SQLite table", {"path": str(path)}, "table", tables, "path")


def _find_in_folder(path: Path) -> Source:
    lance = sorted(each.stem for each in path.glob("*.lance"))
    if lance:
        return Source("lancedb-table", "a LanceDB table", {"uri": str(path)}, "table", lance, "uri")
    if (path / "chroma.sqlite3").is_file():
        arguments = {"path": str(path), "mode": "text"}
        return Source("chroma-collection", "a Chroma collection", arguments, "collection", path_key="path")
    if (path / "meta.json").is_file() and (path / "collection").is_dir():
        names = sorted(json.loads((path / "meta.json").read_text(encoding="utf-8")).get("collections", {}))
        return Source(
            "qdrant-collection", "a Qdrant collection", {"path": str(path)}, "collection", names, "path"
        )
    return Source("index", "a folder of documents", {"folder": str(path)})


def _choose_table(source: Source, ask: Callable[[str], str]) -> str:
    shown = ", ".join(source.tables[:20])
    if len(source.tables) == 1:
        return source.tables[0]
    if answer := ask(f"Which {source.table_key}{f' (of {shown})' if shown else ''}?"):
        return answer
    raise InputError(
        f"Name the {source.table_key} with --table." + (f" There are: {shown}." if shown else "")
    )


def _open(source: Source, table: str, text: str | None, id: str | None) -> Any:
    """Open the store, which checks every name."""
    from resift.plugins import load_store

    options = {**source.arguments, source.table_key: table}
    if text:
        options["fields"] = [name.strip() for name in text.split(",") if name.strip()]
    if id:
        options["id"] = id
    return load_store(source.kind, **options)


def pipeline_text(source: Source, table: str, keys: JsonMapping) -> str:
    """Return a commented pipeline file for a store with these keys."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", table.rpartition(".")[2]).strip("-") or "docs"
    lines = [
        f"# Search {source.what} and rerank the hits. Nothing is copied, and the store only reads.",
        "# All keys: resift config reference",
        "",
        "stores:",
        f"  - name: {json.dumps(name)}",
        f"    kind: {source.kind}",
    ]
    notes = {"fields": "  # the text; {title: 3, body: 1} gives weights"}
    for key, value in keys.items():
        if key in ("dsn", "url") and _PASSWORD.search(str(value)):
            variable = "PGPASSWORD" if key == "dsn" else "ELASTICSEARCH_PASSWORD"
            value = _PASSWORD.sub(rf"\1:${{{variable}}}@", str(value))  # noqa: PLW2901
        lines.append(f"    {key}: {json.dumps(value, ensure_ascii=False)}{notes.get(key, '')}")
    lines += [
        "    # filter: {published: true}   # search only these rows",
        "    # embedder: BAAI/bge-small-en-v1.5   # the model that filled the vector column, if there is one",
        "",
        "k: 10  # hits to return",
        "",
        "rerank:  # remove this section to keep the order of the store",
        "  kind: cross-encoder",
        "",
    ]
    if source.kind in ("sqlite-table",):
        lines = [line for line in lines if "# embedder" not in line]
    return "\n".join(lines)


def _relative(where: str, output: Path) -> str:
    """Return a path relative to the file, which is how pipeline files read it."""
    path = Path(where).expanduser()
    return str(path) if path.is_absolute() else os.path.relpath(path, output.parent)


def _write(args: argparse.Namespace, text: str, next_step: str = "") -> int:
    args.output.parent.mkdir(parents=True, exist_ok=True)
    try:
        with args.output.open("w" if args.force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{args.output} exists and was not changed. Replace it with --force.") from None
    if "${" in text:
        variable = text.partition("${")[2].partition("}")[0]
        print_note(f"The password is not in the file. Run: export {variable}=…")
    print_text(f"Wrote {args.output}.")
    print_text(f"Next: {next_step or f'resift search WORDS --pipeline {shell_path(args.output)}'}")
    return 0
