"""`resift search`: a question to an index, answered by the default pipeline."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
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
pipe each hit is a line: rank, score, id, snippet, with tabs between. The score is from 0 to 1 and falls with
the rank: how well a hit answers, by the reranker. --scores raw shows the numbers that decided the order.

examples:
  resift search how do I rotate the keys --store docs.db
  resift search rotate keys --store docs.db --ids | xargs -n1 echo
  resift search rotate keys --pipeline mine.yaml --deadline 0.5
  resift search rotate keys --store docs.db --min-score 0.1
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
    from resift._internal.sync import run_sync
    from resift.cli.render import complain, in_pipe

    query = " ".join(args.query)
    ranking, shown = run_sync(_search(args, query))
    if args.json:
        _print_data(query, ranking, None if scale_of(args) == "raw" else shown, explain=args.explain)
        return 0
    _print_degraded(ranking)
    if not ranking.hits:
        complain(_nothing(shown, args.min_score))
    elif args.ids or (in_pipe() and not args.explain):
        _print_rows(ranking, shown, query, ids=args.ids, full=args.full)
    else:
        _print_hits(ranking, shown, query, args)
    return 0


Shown = Sequence[float | None]
"""The scores as they are shown: of the hits, then of those under --min-score."""


def _nothing(shown: Shown, min_score: float | None) -> str:
    """Return why there is nothing to show."""
    scores = [score for score in shown if score is not None]
    if min_score is None or not scores:
        return "nothing found"
    return f"no hit has a score of {min_score:g} or more; the best has {max(scores):.3g}"


async def _search(args: argparse.Namespace, query: str) -> tuple[Ranking, Shown]:
    from resift.ingest.opening import open_index
    from resift.pipeline.pipeline import Pipeline
    from resift.pipeline.scored_search import search_with_relevance, search_with_scores
    from resift.stores.filters import where_from

    where = where_from(args.where) or None
    if args.pipeline is not None:
        pipeline = Pipeline.from_yaml(args.pipeline)
    else:
        store = open_index(args.store, text_only=args.text_only, read_only=True)
        asked = store.text if args.text_only else store
        pipeline = Pipeline.default(asked, rerank=not (args.no_rerank or args.text_only))
    try:
        scale = scale_of(args)
        if scale == "relevance" and args.calibration is None:
            return await search_with_relevance(
                pipeline,
                query,
                k=args.k,
                where=where,
                deadline_s=args.deadline,
                min_score=args.min_score,
            )
        ranking = await search_with_scores(
            pipeline,
            query,
            k=args.k,
            where=where,
            deadline_s=args.deadline,
            scores="raw" if scale == "raw" else "probability",
            calibration=args.calibration,
            min_score=args.min_score,
        )
        return ranking, [hit.score for hit in (*ranking, *ranking.cut)]
    finally:
        await pipeline.close()


def _print_data(query: str, ranking: Ranking, shown: Shown | None, *, explain: bool) -> None:
    from resift.cli.render import print_json

    data = {"query": query, "candidates": len(ranking) + len(ranking.cut), **ranking.to_dict()}
    if shown is not None:
        for hit, value in zip(data["hits"], shown, strict=False):
            hit["relevance"] = value
    if explain:
        data["why"] = ranking.why_all()
    else:
        del data["cut"]  # the texts of all dropped candidates are long; the trace has their ids and ranks
    print_json(data)


def _print_degraded(ranking: Ranking) -> None:
    from resift.cli.render import complain

    for warning in ranking.warnings:
        complain(warning)
    if ranking.degraded or ranking.failures:
        failed = "; ".join(f"{store}: {why}" for store, why in ranking.failures.items())
        complain(". ".join(part for part in (ranking.reason, failed) if part) or "degraded")


def _print_rows(ranking: Ranking, shown: Shown, query: str, *, ids: bool, full: bool) -> None:
    """Write one line per hit for other programs."""
    from resift.cli.render import print_tsv
    from resift.text import snippet

    for rank, (hit, score) in enumerate(zip(ranking, shown, strict=False), start=1):
        if ids:
            print_tsv(hit.id)
        else:
            print_tsv(rank, score, hit.id, hit.text if full else snippet(hit.text, query).text)


def _print_hits(ranking: Ranking, shown: Shown, query: str, args: argparse.Namespace) -> None:
    from resift.cli.cards import cards, title_of
    from resift.cli.render import paint, print_text, prose, width
    from resift.explain.escaping import short_id

    for line in cards(
        ranking, query, scores=shown[: len(ranking)], full=args.full, bars=scale_of(args) != "raw"
    ):
        print_text(line)
    if args.explain:
        for rank, hit in enumerate(ranking, start=1):
            print_text()
            print_text(paint(f"{rank:>2} {short_id(title_of(hit), width() - 3)}", "bold"))
            print_text(prose(ranking.why(hit.id), indent="   "))
