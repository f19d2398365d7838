"""`resift search`: a question to an index, answered by the default pipeline."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from resift.cli.options import (
    add_repeated,
    add_scores,
    add_store,
    at_least_one,
    number,
    scale_of,
    seconds,
)

if TYPE_CHECKING:
    from resift.types import Ranking

EXAMPLES = """\
Words and vectors are searched, fused, and the best reranked by the cross-encoder where it is installed. In a
pipe each hit is a line: rank, score, id, snippet, with tabs between. A score only orders the hits of one
answer; --scores probability shows instead how probable it is that a hit is relevant.

examples:
  resift search how do I rotate the keys --store docs.db
  resift search rotate keys --store docs.db --ids | xargs -n1 echo
  resift search rotate keys --pipeline mine.yaml --deadline 0.5
  resift search rotate keys --scores probability --min-score 0.3
  resift search "rotate keys" --store docs.db -k 3 --explain
  resift search "rotate keys" --store docs.db --where path=docs/keys.md --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `resift search`."""
    parser.epilog = EXAMPLES
    parser.add_argument("query", nargs="+", metavar="WORD", help="what to look for; quotes are not needed")
    add_store(parser)
    parser.add_argument("--pipeline", type=Path, metavar="FILE", help="search as this pipeline file says")
    parser.add_argument("-k", type=at_least_one, default=10, help="how many hits (default: 10)")
    add_repeated(
        parser, "--where", "TEST", "only hits whose metadata passes: topic=food, 'price>=10', 'path=*.md'"
    )
    parser.add_argument("--no-rerank", action="store_true", help="show the order of the first stage")
    parser.add_argument("--text-only", action="store_true", help="search words only, load no model")
    parser.add_argument(
        "--deadline", type=seconds, default=None, metavar="S", help="answer within so many seconds"
    )
    add_scores(parser)
    parser.add_argument(
        "--min-score", type=number, metavar="X", help="leave out hits whose score, as it is shown, is lower"
    )
    parser.add_argument("--full", action="store_true", help="show whole texts instead of snippets")
    parser.add_argument("--ids", action="store_true", help="write ids only, one a line")
    parser.add_argument("--explain", action="store_true", help="say why each hit stands where it stands")
    parser.add_argument("--json", action="store_true", help="write the whole ranking as JSON")


def run(args: argparse.Namespace) -> int:
    """Search and show; exit code 0 also when nothing was found."""
    from resift.cli.render import complain, in_pipe
    from resift.sync import run_sync

    query = " ".join(args.query)
    ranking = run_sync(_search(args, query))
    if args.json:
        _print_data(query, ranking, explain=args.explain)
        return 0
    _print_degraded(ranking)
    if not ranking.hits:
        complain(_nothing(ranking, args.min_score))
    elif args.ids or (in_pipe() and not args.explain):
        _print_rows(ranking, query, ids=args.ids, full=args.full)
    else:
        _print_hits(ranking, query, args)
    return 0


def _nothing(ranking: Ranking, least: float | None) -> str:
    """Return why there is nothing to show."""
    scores = [hit.score for hit in ranking.cut if hit.score is not None]
    if least is None or not scores:
        return "nothing found"
    return f"no hit has a score of {least:g} or more; the best has {max(scores):.3g}"


async def _search(args: argparse.Namespace, query: str) -> Ranking:
    from resift.ingest.opening import open_index
    from resift.retrieval.pipeline import Pipeline
    from resift.retrieval.scored_search import search_with_scores
    from resift.stores.where_text import where_from

    where = where_from(args.where) or None
    if args.pipeline is not None:
        pipeline = Pipeline.from_yaml(args.pipeline)
    else:
        store = open_index(args.store, text_only=args.text_only, read_only=True)
        asked = store.text if args.text_only else store
        pipeline = Pipeline.default(asked, rerank=not (args.no_rerank or args.text_only))
    try:
        return await search_with_scores(
            pipeline,
            query,
            k=args.k,
            where=where,
            deadline_s=args.deadline,
            scores=scale_of(args),
            calibration=args.calibration,
            min_score=args.min_score,
        )
    finally:
        await pipeline.close()


def _print_data(query: str, ranking: Ranking, *, explain: bool) -> None:
    from resift.cli.render import print_json

    data = {"query": query, **ranking.to_dict()}
    if explain:
        data["why"] = ranking.why_all()
    else:
        del data["cut"]  # every candidate that k left out: long, and only of use to explain
    print_json(data)


def _print_degraded(ranking: Ranking) -> None:
    from resift.cli.render import complain

    if ranking.degraded or ranking.failures:
        failed = "; ".join(f"{store}: {why}" for store, why in ranking.failures.items())
        complain(". ".join(part for part in (ranking.reason, failed) if part) or "degraded")


def _print_rows(ranking: Ranking, query: str, *, ids: bool, full: bool) -> None:
    """Write one line per hit for other programs."""
    from resift.cli.render import print_tsv
    from resift.text import snippet

    for rank, hit in enumerate(ranking, start=1):
        if ids:
            print_tsv(hit.id)
        else:
            print_tsv(rank, hit.score, hit.id, hit.text if full else snippet(hit.text, query).text)


def _print_hits(ranking: Ranking, query: str, args: argparse.Namespace) -> None:
    from resift.cli.cards import cards, title_of
    from resift.cli.render import paint, print_text, prose, width
    from resift.explain.escaping import short_id

    for line in cards(ranking, query, full=args.full, probability=scale_of(args) == "probability"):
        print_text(line)
    if args.explain:
        for rank, hit in enumerate(ranking, start=1):
            print_text()
            print_text(paint(f"{rank:>2} {short_id(title_of(hit), width() - 3)}", "bold"))
            print_text(prose(ranking.why(hit.id), indent="   "))
