"""`resift ask`: answer a question with sources; `resift graph`: build or inspect a knowledge pack."""

from __future__ import annotations

import argparse
from pathlib import Path

from resift._internal.sync import run_sync
from resift.agent.knowledge_graph_agent import KnowledgeGraphAgent
from resift.agent.multi_doc import Writer
from resift.agent.pack import Pack
from resift.agent.pack_build import build_pack, sample_pack
from resift.agent.writers import ChatWriter
from resift.cli.terminal import Progress, print_error, print_json, print_table, print_text, style, width, wrap
from resift.errors import ConfigError, shell_path
from resift.index import Index
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.rerankers.hosted import ChatClient
from resift.stores.filters import parse_shell_filter
from resift.text.snippets import clip_words
from resift.types import JsonObject
from resift.validation import check_query

DEFAULT_HOPS = 1

MAX_LISTED = 10
"""Maximum number of skipped files to list; --json lists all."""


def run_ask(args: argparse.Namespace) -> int:
    """Answer the question; exit code 0 even if there is no answer."""
    if args.store is not None and args.pack is not None:
        raise ConfigError("--store and --pack are mutually exclusive: ask either an index or a knowledge pack.")
    question = check_query(" ".join(args.question))
    if args.store is None:
        answer = _ask_pack(args, question)
    elif args.hops != DEFAULT_HOPS:
        raise ConfigError("--hops requires --pack: an index has no links to follow.")
    else:
        where = parse_shell_filter(args.where) or None
        options = {"k": args.max_results, "where": where, "deadline_s": args.deadline, "explain": args.explain}
        with Index(args.store, rerank=args.cross_encoder, read_only=True) as index:
            answer = index.ask(question, writer=_create_writer(args), **options)
    if args.json:
        return print_json(answer)
    return _print_answer(answer)


def _ask_pack(args: argparse.Namespace, question: str) -> JsonObject:
    pack: Path | None = args.pack
    if pack is not None and pack.is_file():
        with pack.open("rb") as file:
            if file.read(15) == b"SQLite format 3":
                raise ConfigError(f"{pack} is an index, not a pack. Use: --store {shell_path(pack)}")
    if args.where:
        raise ConfigError("--where requires --store: passages in a pack have no metadata.")
    writer = _create_writer(args)
    if pack is None:
        with Progress("building the sample pack") as progress:
            pack = run_sync(sample_pack(progress=progress.update))
    with KnowledgeGraphAgent(
        pack, enable_cross_encoder=args.cross_encoder, max_results=args.max_results, hops=args.hops, writer=writer
    ) as agent:
        return agent.query(question, deadline_s=args.deadline, explain=args.explain)


def _create_writer(args: argparse.Namespace) -> Writer | None:
    if args.endpoint is None:
        return None
    if args.model is None:
        raise ConfigError("--endpoint requires --model: name a model served by the endpoint.")
    client = ChatClient(args.endpoint, args.model, api_key_env=args.api_key_env, allow_loopback=args.allow_loopback)
    return ChatWriter(client)


def _print_answer(answer: JsonObject) -> int:
    for warning in answer["warnings"]:
        print_error(warning)
    if answer["degraded"]:
        print_error(f"degraded: {answer['reason']}")
    if answer["found"] and answer["extractive"]:
        print_text(style("Extractive answer, quoted from the sources:", "dim"))
    for line in answer["answer"].splitlines():
        print_text(style(wrap(line), "bold"))
    if answer["sources"]:
        print_text()
    for source in answer["sources"]:
        label, name = f"[{source['number']}]", source["heading"] or source["title"]
        label += f" {name} ({source['id']})" if name and name != source["id"] else f" {source['id']}"
        if "page" in source:
            label += f", page {source['page']}"
        print_text(style(clip_words(label, width()), "cyan" if source["cited"] else "dim"))
        if source["cited"]:
            print_text(f"    {clip_words(source['excerpt'], width() - 4)}")
    for rank, row in enumerate(answer.get("explanation", ()), start=1):
        print_text()
        print_text(style(f"{rank}. {row['title']}", "bold"))
        print_text(wrap(row["why"]))
    for note in answer["notes"]:
        print_text(style(wrap(f"note: {note}"), "dim"))
    return 0


def run_graph(args: argparse.Namespace) -> int:
    """Build or describe a pack; exit code 1 if some files could not be read."""
    if args.action == "info":
        return _print_pack(args)
    embedder = Embedder(args.embedder or DEFAULT_EMBEDDER)
    with Progress("embedding sections") as progress:
        report = run_sync(build_pack(args.source, args.output, embedder=embedder, progress=progress.update))
    for problem in report.failed:
        print_error(problem)
    code = 1 if report.failed else 0
    if args.json:
        counts = {name: getattr(report, name) for name in ("articles", "sections", "links", "resumed")}
        lists = {"failed": list(report.failed), "not_read": list(report.not_read)}
        print_json({"pack": str(args.output), **counts, **lists})
        return code
    resumed = f" ({report.resumed} articles from an earlier run)" if report.resumed else ""
    print_text(
        f"{args.output} has {report.articles} articles, {report.sections} sections and {report.links} links{resumed}."
    )
    if report.not_read:
        more = f" and {len(report.not_read) - MAX_LISTED} more" if len(report.not_read) > MAX_LISTED else ""
        print_text(f"Skipped: {'; '.join(report.not_read[:MAX_LISTED])}{more}.")
    print_text(f'Next: resift ask "your question" --pack {shell_path(args.output)}')
    return code


def _print_pack(args: argparse.Namespace) -> int:
    pack = Pack.open(args.pack)
    try:
        info = pack.info()
    finally:
        pack.close()
    names = ("articles", "sections", "links", "embedder", "dimension", "version")
    facts = {name: getattr(info, name) for name in names}
    if args.json:
        most_linked = [{"title": title, "links": links} for title, links in info.most_linked]
        return print_json({"pack": str(args.pack), **facts, "most_linked": most_linked, "meta": dict(info.meta)})
    print_table(("property", "value"), [(name, str(value)) for name, value in facts.items()])
    if info.most_linked:
        print_text()
        print_table(("most linked article", "links"), info.most_linked)
    return 0
