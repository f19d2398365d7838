"""`resift search`: search an index; `resift explain`: explain a ranking; `resift ask`: answer a question."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from resift._internal.sync import run_sync
from resift.cli.arguments import score_scale, select
from resift.cli.rerank import choose_input, read_input, refuse_index
from resift.cli.terminal import Progress, bar, in_pipe, out, style, width, wrap
from resift.errors import ConfigError, DataFormatError, InputError, shell_path
from resift.explain.flow import find_move, hit_body, hit_location, hit_title, read_flow
from resift.index import search_with_scores
from resift.ingest.indexing import open_index
from resift.ingest.sources import decode
from resift.pipeline.pipeline import Pipeline
from resift.ranking.calibration import drop_below
from resift.ranking.context import PromptContext
from resift.rerankers.rescore import relevance, shipped_calibrator_for
from resift.stores.filters import parse_shell_filter
from resift.text.snippets import clip, clip_phrase, clip_words, display_width, short_id, snippet
from resift.types import Hit, JsonObject, Ranking
from resift.validation import check_query

if TYPE_CHECKING:
    from rich.text import Text

    from resift.agent.writers import ChatWriter

_BAR_COLUMNS, _MARGIN = 8, "   "
DisplayScores = Sequence[float | None]  # of the hits, then of the hits below --min-score
SearchResult = tuple[Ranking, DisplayScores, PromptContext | None]


def run_search(args: argparse.Namespace) -> int:
    """Search and show the hits; exit code 0 even if nothing was found."""
    query = " ".join(args.query)
    ranking, scores, context = run_sync(_search(args, query))
    if args.json:
        return _print_data(args, query, (ranking, scores, context))
    for warning in ranking.warnings:
        out.error(warning)
    if ranking.degraded or ranking.failures:
        failures = "; ".join(f"{store}: {reason}" for store, reason in ranking.failures.items())
        out.error(". ".join(part for part in (ranking.reason, failures) if part) or "degraded")
    if not ranking.hits:
        best = max((score for score in scores if score is not None), default=None)
        if args.min_score is None or best is None:
            out.error("nothing found")
        else:
            out.error(f"no hit has a score of {args.min_score:g} or more; the best score is {best:.3g}")
    elif context is not None:
        if context.reason:
            out.error(context.reason)
        out.text(context.text)
    elif args.ids or (in_pipe() and not args.explain):
        for rank, (hit, score) in enumerate(zip(ranking, scores, strict=False), start=1):
            text = "" if args.ids else hit.text if args.full else snippet(hit.text, query).text
            out.tsv(*((hit.id,) if args.ids else (rank, score, hit.id, text)))
    else:
        _print_hits(ranking, scores[: len(ranking)], query, args)
    return 0


def _print_data(args: argparse.Namespace, query: str, result: SearchResult) -> int:
    ranking, scores, context = result
    data = {"query": query, "candidates": len(ranking) + len(ranking.cut), **ranking.to_dict()}
    if score_scale(args) != "raw":
        for row, score in zip(data["hits"], scores, strict=False):
            row["relevance"] = score
    if context is not None:
        data["context"] = context.to_dict()
    if args.explain:
        data["why"] = ranking.why_all()
    else:
        del data["cut"]  # the texts of dropped candidates are long; the trace contains their ids and ranks
    return out.json(data)


async def _search(args: argparse.Namespace, query: str) -> SearchResult:
    """Return the ranking, its displayed scores and, if requested, its context."""
    where = parse_shell_filter(args.where) or None
    if args.pipeline is not None:
        pipeline = Pipeline.from_yaml(args.pipeline)
    else:
        store = open_index(args.store, text_only=args.text_only, read_only=True)
        rerank = not (args.no_rerank or args.text_only)
        pipeline = Pipeline.default(store.text if args.text_only else store, rerank=rerank)
    try:
        scale = score_scale(args)
        options = {"k": args.k, "where": where, "deadline_s": args.deadline}
        scores: DisplayScores
        if scale == "relevance" and args.calibration is None:
            ranking = await pipeline.search(query, **options)
            # The hits keep the scores from the pipeline.
            scores = relevance(ranking, shipped_calibrator_for(pipeline.scorer))
            if args.min_score is not None:
                ranking = drop_below(ranking, args.min_score, shown=scores)
        else:
            options |= {"scores": "raw" if scale == "raw" else "probability", "calibration": args.calibration}
            ranking = await search_with_scores(pipeline, query, min_score=args.min_score, **options)
            scores = [hit.score for hit in (*ranking, *ranking.cut)]
        # Build the context while the store is open: it needs the chunks around the hits.
        return ranking, scores, None if args.context is None else await ranking.acontext(args.context)
    finally:
        await pipeline.close()


def _print_hits(ranking: Ranking, scores: DisplayScores, query: str, args: argparse.Namespace) -> None:
    flow = read_flow(ranking, query=query)
    moves = {path.id: find_move(path, flow) for path in flow.kept}
    bars = score_scale(args) != "raw"
    for rank, (hit, score) in enumerate(zip(ranking, scores, strict=True), start=1):
        if rank > 1:
            out.text()
        tail = ("–" if score is None else format(score, ".2f" if bars else ".3g")).rjust(7)
        if bars and width() >= 60:
            tail = f"{bar(score or 0.0, 1.0, _BAR_COLUMNS)} {tail}"
        room = width() - len(_MARGIN) - display_width(tail)
        title = short_id(hit_title(hit), room - 1)
        gap = " " * max(1, room - display_width(title))
        out.text(f"{rank:>2} {style(title, 'bold')}{gap}{style(tail, 'cyan')}")
        if place := hit_location(hit):
            _print_dim(place)
        for line in _snippet_lines(hit, query, max_lines=None if args.full else 2):
            out.rich(line)
        if (move := moves.get(hit.id)) is not None:
            _print_dim(clip_phrase(f"{move.sign} {move.reason}", width() - len(_MARGIN)))
    for rank, hit in enumerate(ranking if args.explain else (), start=1):
        out.text()
        out.text(style(f"{rank:>2} {short_id(hit_title(hit), width() - 3)}", "bold"))
        out.text(wrap(ranking.why(hit.id), indent=_MARGIN))


def _print_dim(text: str) -> None:
    out.text(_MARGIN + style(clip(text, width() - len(_MARGIN)), "dim"))


def _snippet_lines(hit: Hit, query: str, *, max_lines: int | None) -> list[Text]:
    """Return the wrapped text of a hit, with matches in bold and all but the best sentence dimmed."""
    from rich.console import Console
    from rich.text import Text

    body, columns = hit_body(hit), width() - len(_MARGIN)
    part = snippet(body, query, length=len(body) + 1 if max_lines is None else 2 * columns - 8)
    text = Text("".join(char if char.isprintable() else " " for char in part.text))
    if part.matches and style("x", "dim") != "x":
        text.stylize("dim", 0, part.best[0])
        text.stylize("dim", part.best[1])
        for match in part.matches:
            text.stylize("bold not dim color(130)", *match)
    lines = list(text.wrap(Console(width=columns), columns))
    if max_lines is not None and len(lines) > max_lines:
        lines = lines[:max_lines]
        lines[-1].truncate(columns - 1)
        lines[-1].append("…")
    return [Text.assemble(_MARGIN, line) for line in lines]


MAX_BYTES = 256 << 20


def run_explain(args: argparse.Namespace) -> int:
    """Explain a ranking; exit code 0 unless the file is not a ranking."""
    ranking, query = _read_ranking(choose_input(args.file, expected="a ranking as JSON"), args.line)
    if args.id:
        reason = ranking.why(args.id)
        if args.json:
            return out.json({"id": args.id, "why": reason})
        out.text(wrap(reason))
        return 0
    explanation = ranking.explain(query=query, top=args.top)
    if args.output:
        out.note(str(explanation.save(args.output)))
    elif args.json:
        flow, hits = explanation.flow, []
        for path in (*flow.kept, *flow.cut):
            move, places = find_move(path, flow), path.places
            ranks = {column.label: places[column.key].rank for column in flow.columns if column.key in places}
            hits.append({"id": path.id, "place": path.final, "move": move.up, "reason": move.reason, "ranks": ranks})
        out.json({"query": flow.query, "columns": [column.label for column in flow.columns], "hits": hits})
    else:
        out.text(explanation.text(width=width(), paint=style, curves=not in_pipe()))
    return 0


def _read_ranking(file: str, line: int) -> tuple[Ranking, str]:
    name = "stdin" if file == "-" else file
    content = read_input(file, max_bytes=MAX_BYTES)
    refuse_index(content, name, "a ranking as JSON, from: resift search … --store INDEX --explain --json")
    text = decode(content, file=name).text
    lines = [part for part in text.split("\n") if part.strip()]
    if not lines:
        raise DataFormatError("the file is empty; expected a ranking as JSON", file=name)
    with suppress(ValueError, RecursionError):
        json.loads(text)
        lines = [text]
    if line > len(lines):
        raise DataFormatError(f"--line is {line}, but the last line with a ranking is {len(lines)}", file=name)
    try:
        data = json.loads(lines[line - 1])
    except (ValueError, RecursionError):
        raise DataFormatError("not JSON; expected a ranking as JSON", file=name) from None
    if not isinstance(data, dict):
        raise DataFormatError('not a ranking: expected an object with "hits"', file=name)
    ranking = data.get("ranking", data)
    if not isinstance(ranking, dict) or not isinstance(ranking.get("hits"), list):
        raise DataFormatError('not a ranking: there is no list of "hits"', file=name)
    query = data.get("query") or data.get("question") or ""
    try:
        result = Ranking.from_dict(ranking)
        if "cut" not in ranking:
            # Without --explain, the JSON omits dropped candidates, but the trace contains their ids.
            kept = set(result.ids)
            ids = [id for record in result.trace for id in record.dropped if id not in kept]
            result = replace(result, cut=tuple(Hit(id) for id in dict.fromkeys(ids)))
    except (InputError, TypeError, AttributeError, ValueError) as exc:
        raise DataFormatError(f"not a ranking: {exc}", file=name) from exc
    return result, query if isinstance(query, str) else ""


DEFAULT_HOPS = 1


def run_ask(args: argparse.Namespace) -> int:
    """Answer the question; exit code 0 even if there is no answer."""
    if args.store is not None and args.pack is not None:
        raise ConfigError("--store and --pack are mutually exclusive: ask either an index or a knowledge pack.")
    from resift.index import Index

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
    return out.json(answer) if args.json else _print_answer(answer)


def _ask_pack(args: argparse.Namespace, question: str) -> JsonObject:
    from resift.agent import KnowledgeGraphAgent, sample_pack

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
    options = select(args, "max_results", "hops")
    with KnowledgeGraphAgent(pack, enable_cross_encoder=args.cross_encoder, writer=writer, **options) as agent:
        return agent.query(question, deadline_s=args.deadline, explain=args.explain)


def _create_writer(args: argparse.Namespace) -> ChatWriter | None:
    if args.endpoint is None:
        return None
    if args.model is None:
        raise ConfigError("--endpoint requires --model: name a model served by the endpoint.")
    from resift.agent.writers import ChatWriter
    from resift.rerankers.hosted import ChatClient

    client = ChatClient(args.endpoint, args.model, api_key_env=args.api_key_env, allow_loopback=args.allow_loopback)
    return ChatWriter(client)


def _print_answer(answer: JsonObject) -> int:
    for warning in answer["warnings"]:
        out.error(warning)
    if answer["degraded"]:
        out.error(f"degraded: {answer['reason']}")
    if answer["found"] and answer["extractive"]:
        out.text(style("Extractive answer, quoted from the sources:", "dim"))
    for line in answer["answer"].splitlines():
        out.text(style(wrap(line), "bold"))
    if answer["sources"]:
        out.text()
    for source in answer["sources"]:
        label, name = f"[{source['number']}]", source["heading"] or source["title"]
        label += f" {name} ({source['id']})" if name and name != source["id"] else f" {source['id']}"
        if "page" in source:
            label += f", page {source['page']}"
        out.text(style(clip_words(label, width()), "cyan" if source["cited"] else "dim"))
        if source["cited"]:
            out.text(f"    {clip_words(source['excerpt'], width() - 4)}")
    for rank, row in enumerate(answer.get("explanation", ()), start=1):
        out.text()
        out.text(style(f"{rank}. {row['title']}", "bold"))
        out.text(wrap(row["why"]))
    for note in answer["notes"]:
        out.text(style(wrap(f"note: {note}"), "dim"))
    return 0
