"""`resift ask`: a question answered from an index or a pack, with sources."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from resift.cli.options import add_repeated, at_least_one
from resift.errors import ConfigError, shell_path
from resift.types import JsonObject

if TYPE_CHECKING:
    from resift.agent.multi_doc import Writer

DEFAULT_HOPS = 1

EXAMPLES = """\
An index (--store) is what `resift index` makes; a pack (--pack) is a knowledge graph that `resift graph
build` makes. Without either the shipped sample is asked: lighthouses and finding one's way at sea. Without
--endpoint the answer is extractive: sentences of the sources, word for word.

examples:
  resift ask who built the first Eddystone lighthouse
  resift ask how long may I keep a book --store library.db
  resift ask how long may I keep a book --store library.db --where path=rules.md
  resift ask "How do I rotate the keys?" --pack notes.lbug --explain
  resift ask "Why knots?" --endpoint https://llm.example/v1 --model some-model --api-key-env LLM_KEY
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift ask`."""
    parser.epilog = EXAMPLES
    parser.add_argument("question", nargs="+", metavar="WORD", help="what you want to know; no quotes needed")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--store", type=Path, default=None, metavar="FILE", help="the index to ask")
    source.add_argument(
        "--pack", type=Path, default=None, metavar="PACK", help="the pack (default: the sample)"
    )
    parser.add_argument(
        "--cross-encoder",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="rerank with the cross-encoder (default: yes)",
    )
    parser.add_argument(
        "-k",
        "--max-results",
        type=at_least_one,
        default=5,
        metavar="N",
        help="how many passages (default: 5)",
    )
    add_repeated(
        parser,
        "--where",
        "TEST",
        "use only passages whose metadata passes: topic=food, 'path=*.md' (--store)",
    )
    parser.add_argument(
        "--hops", type=int, default=DEFAULT_HOPS, metavar="N", help="links to follow, 0 to 3 (default: 1)"
    )
    parser.add_argument(
        "--deadline", type=float, default=None, metavar="SECONDS", help="time for the whole answer"
    )
    parser.add_argument(
        "--endpoint", default=None, metavar="URL", help="OpenAI-compatible endpoint that writes"
    )
    parser.add_argument("--model", default=None, help="the endpoint's model")
    parser.add_argument("--api-key-env", default=None, metavar="VARIABLE", help="where the endpoint's key is")
    parser.add_argument("--allow-loopback", action="store_true", help="the endpoint may be on this machine")
    parser.add_argument("--explain", action="store_true", help="say how each passage got its place")
    parser.add_argument("--json", action="store_true", help="write everything as JSON")


def run(args: argparse.Namespace) -> int:
    """Ask and show; exit code 0 also when the pack has no answer."""
    from resift.cli.render import print_json

    question = " ".join(args.question)
    answer = _from_pack(args, question) if args.store is None else _from_index(args, question)
    if args.json:
        print_json(answer)
    else:
        _print_answer(answer)
    return 0


def _from_index(args: argparse.Namespace, question: str) -> JsonObject:
    from resift.index import Index
    from resift.stores.filters import where_from

    if args.hops != DEFAULT_HOPS:
        raise ConfigError("--hops goes with --pack: an index has no links to follow.")
    with Index(args.store, rerank=args.cross_encoder, read_only=True) as index:
        return index.ask(
            question,
            k=args.max_results,
            where=where_from(args.where) or None,
            deadline_s=args.deadline,
            writer=_writer(args),
            explain=args.explain,
        )


def _from_pack(args: argparse.Namespace, question: str) -> JsonObject:
    from resift.agent.knowledge_graph_agent import KnowledgeGraphAgent

    if args.pack is not None and _is_index(args.pack):
        raise ConfigError(
            f"{args.pack} is an index, not a pack. Ask it with: --store {shell_path(args.pack)}"
        )
    if args.where:
        raise ConfigError("--where goes with --store: passages of a pack have no metadata to test.")
    writer = _writer(args)
    with KnowledgeGraphAgent(
        args.pack or _sample(),
        enable_cross_encoder=args.cross_encoder,
        max_results=args.max_results,
        hops=args.hops,
        writer=writer,
    ) as agent:
        return agent.query(question, deadline_s=args.deadline, explain=args.explain)


def _is_index(path: Path) -> bool:
    """Whether a file is one of SQLite's, as indexes are and packs are not."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


def _writer(args: argparse.Namespace) -> Writer | None:
    if args.endpoint is None:
        return None
    if args.model is None:
        raise ConfigError("--endpoint needs --model: name the model that the endpoint serves.")
    from resift.agent.writers import ChatWriter
    from resift.rerankers.hosted import ChatClient

    client = ChatClient(
        args.endpoint, args.model, api_key_env=args.api_key_env, allow_loopback=args.allow_loopback
    )
    return ChatWriter(client)


def _sample() -> Path:
    from resift._internal.sync import run_sync
    from resift.agent.lighthouse_sample import sample_pack
    from resift.cli.render import Progress

    with Progress("building the sample pack") as meter:
        return run_sync(sample_pack(progress=meter.update))


def _print_answer(answer: JsonObject) -> None:
    from resift.cli.render import complain, paint, print_text, prose

    for warning in answer["warnings"]:
        complain(warning)
    if answer["degraded"]:
        complain(f"degraded: {answer['reason']}")
    if answer["found"] and answer["extractive"]:
        print_text(paint("Extractive answer, quoted from the sources:", "dim"))
    for line in answer["answer"].splitlines():
        print_text(paint(prose(line), "bold"))
    if answer["sources"]:
        print_text()
    for source in answer["sources"]:
        _print_source(source)
    for place, row in enumerate(answer.get("explanation", ()), start=1):
        print_text()
        print_text(paint(f"{place}. {row['title']}", "bold"))
        print_text(prose(row["why"]))
    for note in answer["notes"]:
        print_text(paint(prose(f"note: {note}"), "dim"))


def _print_source(source: JsonObject) -> None:
    from resift.cli.render import paint, print_text, width
    from resift.explain.escaping import clip_words

    mark = f"[{source['number']}]"
    style = "cyan" if source["cited"] else "dim"
    name = source["heading"] or source["title"]
    label = f"{mark} {name} ({source['id']})" if name and name != source["id"] else f"{mark} {source['id']}"
    if "page" in source:
        label += f", page {source['page']}"
    print_text(paint(clip_words(label, width()), style))
    if source["cited"]:
        print_text(f"    {clip_words(source['excerpt'], width() - 4)}")
