"""`resift search`: a question to an index, answered by the default pipeline."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resift.cli.index import DEFAULT_STORE
from resift.cli.options import at_least_one
from resift.errors import InputError

if TYPE_CHECKING:
    from resift.types import Ranking

EXAMPLES = """\
Words and vectors are searched, fused, and the best 20 reranked by the cross-encoder where it is installed.

examples:
  resift search "how do I rotate the keys" --store docs.db
  resift search "rotate keys" --store docs.db -k 3 --explain
  resift search "rotate keys" --store docs.db --where path=docs/keys.md --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift search`."""
    parser.epilog = EXAMPLES
    parser.add_argument("query", help="what to look for")
    parser.add_argument(
        "--store",
        type=Path,
        default=Path(DEFAULT_STORE),
        metavar="FILE",
        help=f"the index (default: {DEFAULT_STORE})",
    )
    parser.add_argument("-k", type=at_least_one, default=10, help="how many hits (default: 10)")
    parser.add_argument(
        "--where", action="append", default=[], metavar="KEY=VALUE", help="only hits with this metadata"
    )
    parser.add_argument("--no-rerank", action="store_true", help="show the order of the first stage")
    parser.add_argument("--text-only", action="store_true", help="search words only, load no model")
    parser.add_argument("--explain", action="store_true", help="say why each hit stands where it stands")
    parser.add_argument("--json", action="store_true", help="write the whole ranking as JSON")


def run(args: argparse.Namespace) -> int:
    """Search and show; exit code 0 also when nothing was found."""
    from resift.sync import run_sync

    ranking = run_sync(_searched(args))
    if args.json:
        _print_data(args.query, ranking, explain=args.explain)
    else:
        _print_hits(ranking, explain=args.explain)
    return 0


async def _searched(args: argparse.Namespace) -> Ranking:
    from resift.ingest.opening import open_index
    from resift.retrieval.pipeline import Pipeline

    where = _where(args.where)
    store = open_index(args.store, text_only=args.text_only, read_only=True)
    try:
        rerank = not (args.no_rerank or args.text_only)
        return await Pipeline.default(store, rerank=rerank).search(args.query, k=args.k, where=where)
    finally:
        await store.close()


def _where(pairs: list[str]) -> dict[str, Any] | None:
    """Read KEY=VALUE pairs; a key given twice means either value, VALUE may be JSON (2020, true)."""
    where: dict[str, list[Any]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise InputError(f"--where {pair!r}: write KEY=VALUE, for example --where path=docs/keys.md")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        where.setdefault(key, []).append(value)
    return dict(where) or None


def _print_data(query: str, ranking: Ranking, *, explain: bool) -> None:
    from resift.cli.render import print_json

    data = {"query": query, **ranking.to_dict()}
    if explain:
        data["why"] = {hit.id: ranking.why(hit.id) for hit in ranking}
    else:
        del data["cut"]  # every candidate that k left out: long, and only of use to explain
    print_json(data)


def _print_hits(ranking: Ranking, *, explain: bool) -> None:
    from resift.cli.render import complain, paint, print_text, prose, table

    if ranking.degraded or ranking.failures:
        failed = "; ".join(f"{store}: {why}" for store, why in ranking.failures.items())
        complain(". ".join(part for part in (ranking.reason, failed) if part) or "degraded")
    if not ranking.hits:
        print_text("Nothing found.")
        return
    rows = [(rank, hit.score, hit.id, hit.text) for rank, hit in enumerate(ranking, start=1)]
    print_text(table(("#", "score", "id", "text"), rows))
    if explain:
        for hit in ranking:
            print_text()
            print_text(paint(hit.id, "bold"))
            print_text(prose(ranking.why(hit.id)))
