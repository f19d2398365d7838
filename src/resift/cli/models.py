"""`resift models`: pin models from the hub or a folder in the lock file; list, verify and time them."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

import msgspec

from resift.cli.arguments import select
from resift.cli.terminal import Progress, count, out, style, wrap
from resift.errors import ModelError, ModelNotAllowedError
from resift.events import Event
from resift.models import registry
from resift.models.engine import shared_engine, usable_cores
from resift.models.known_models import known_models
from resift.models.loading import Model
from resift.models.locate import resolve
from resift.models.pinning import AddedModel, add_model, remove_model
from resift.models.registry import LockedModel
from resift.types import JsonObject


def run_models(args: argparse.Namespace) -> int:
    """Run one action; exit code 1 if a model is missing, damaged or rejected."""
    actions = {"add": _add, "list": _list, "show": _show, "verify": _verify, "bench": _bench}
    with registry.use_lock(args.lock):
        if args.action != "remove":
            return actions[args.action](args)
        lock = remove_model(args.name)
    if args.json:
        return out.json({"removed": args.name, "lock": str(lock)})
    out.text(wrap(f"Removed {args.name} from {lock}. Its files stay where they are."))
    return 0


def _add(args: argparse.Namespace) -> int:
    with Progress("downloading") as progress:

        def show_download(event: Event) -> None:
            fields = asdict(event)
            progress.label = str(fields["file"])
            progress.update(fields["done_bytes"] >> 20, max(1, fields["total_bytes"] >> 20))

        notify: Callable[[str], None] = out.note if sys.stderr.isatty() else lambda line: None
        options = select(args, "name", "precision", "languages", "max_length")
        result = add_model(args.source, probe=not args.no_probe, notify=notify, progress=show_download, **options)
    if args.json:
        probe = None if result.probe is None else {**asdict(result.probe), "passed": result.probe.passed}
        head = {"head": result.contents.head, "lock": str(result.lock), "probe": probe}
        return out.json({**_to_json(result.model), **head})
    out.text(style(result.model.id, "bold"))
    _print_rows(_describe(result))
    option = "embedder" if result.model.kind == "bi-encoder" else "reranker"
    usage = f'resift.Index("docs.db", {option}="{result.model.id}")'
    out.text(wrap(f"Pinned in {result.lock}. Use it by name: {usage}"))
    return 0


def _describe(result: AddedModel) -> list[tuple[str, str]]:
    model, report = result.model, result.probe
    pooling = "cls" if model.pooling == "first" else model.pooling
    rows = [
        ("kind", "static" if model.architecture in ("static", "model2vec") else model.kind),
        ("architecture", model.architecture),
        ("parameters", f"{model.parameters / 1e6:.1f} M"),
        ("maximum length", f"{model.max_length} tokens"),
        ("languages", _join(model.languages)),
        ("license", model.license),
    ]
    if model.engine == "native":
        rows += [("pooling", pooling), ("head", " > ".join(result.contents.head) or "none")]
    else:
        rows.append(("engine", "PyTorch"))
    if model.kind == "cross-encoder":
        rows.append(("activation", model.score_activation))
    for label, prefix in (("query prefix", model.query_prefix), ("document prefix", model.document_prefix)):
        rows += [(label, repr(prefix))] if prefix else []
    size = sum(file.size for file in model.files)
    rows.append(("files", f"{count(len(model.files), 'file')}, {size / 1e6:.1f} MB"))
    if report is None:
        return [*rows, ("precision", model.precision), ("probe", "skipped: the scores were not checked")]
    precision: str = model.precision
    if report.int8_error is not None:
        precision += f" (int8 changes scores by up to {report.int8_error:.1%} of their spread)"
    probe = f"{report.ordered} of {report.comparisons} comparisons are correct"
    if report.known_answers:
        probe += f", {count(report.known_answers, 'known answer')} match"
    weak = [code for code, passed in report.languages.items() if not passed]
    if weak:
        probe += f"; weak in {', '.join(weak)}"
    return [*rows, ("precision", precision), ("probe", probe)]


def _to_json(model: LockedModel) -> JsonObject:
    """Return all fields of a model; the lock file omits fields that have their default value."""
    return {**msgspec.structs.asdict(model), "files": msgspec.to_builtins(model.files)}


def _list(args: argparse.Namespace) -> int:
    if args.known:
        return _list_known(args)
    lock = registry.default_lock_path()
    probed = {id: model.probed for id, model in registry.read_lock(lock).items()}
    rows: list[JsonObject] = []
    for id in (*sorted(registry.locked_models()), *registry.builtin_ids()):
        spec = registry.find_spec(id)
        row = select(spec, "id", "kind", "precision", "languages", "license", "max_length")
        rows.append({**row, "pinned": "lock file" if id in probed else "built in", "probed": probed.get(id, True)})
    if args.json:
        return out.json({"lock": str(lock), "models": rows})
    keys = ("id", "kind", "pinned", "precision")
    out.table(["model", *keys[1:]], [[row[key] for key in keys] for row in rows], stretch=0)
    pinned_models = count(len(probed), "pinned model")
    out.text(style(wrap(f"Lock file: {lock} ({pinned_models}). More: resift models list --known"), "dim"))
    return 0


def _list_known(args: argparse.Namespace) -> int:
    pinned, models = set(registry.locked_models()), known_models().values()
    if args.json:
        more = {model.id: {"pinned": model.id in pinned, "add": model.add_command} for model in models}
        return out.json({"models": [{**msgspec.to_builtins(model), **more[model.id]} for model in models]})
    for kind, title in (("cross-encoder", "reranker"), ("bi-encoder", "embedder")):
        rows = [model for model in models if model.kind == kind]
        table = [(row.id, f"{row.parameters_m:g}", row.mteb_retrieval, _join(row.languages)) for row in rows]
        out.table([title, "M params", "nDCG@10", "languages"], table, stretch=0)
        out.text()
    note = "nDCG@10 on the retrieval tasks of MTEB, as published; the first stages reach .493 on their own."
    advice = "These models are not verified. To download, check and pin one, run: resift models add MODEL"
    out.text(style(wrap(f"{note} {advice}"), "dim"))
    return 0


def _show(args: argparse.Namespace) -> int:
    model = registry.read_lock(registry.default_lock_path()).get(args.name)
    known_model = known_models().get(args.name)
    fields: JsonObject
    if model is None and known_model is not None:
        fields = msgspec.to_builtins(known_model)
        if args.json:
            return out.json({**fields, "pinned": False, "add": known_model.add_command})
        _print_rows([(key, _join(value)) for key, value in fields.items() if value not in ("", None)])
        out.text(f"Not pinned. To use it, run: {known_model.add_command}")
        return 0
    spec = registry.find_spec(args.name)
    if model is not None:
        fields = _to_json(model)
    else:
        hidden = ("aliases", "package", "hub")
        fields = {
            key: value for key, value in asdict(spec).items() if value not in ("", None, ()) and key not in hidden
        }
    if args.json:
        return out.json({**fields, "pinned": True})
    _print_rows([(key, _join(value)) for key, value in fields.items() if key not in ("files", "weights")])
    out.text()
    for file in spec.files:
        out.text(f"{file.sha256}  {file.name}")
    return 0


def _verify(args: argparse.Namespace) -> int:
    rows: list[JsonObject] = []
    for name in args.names or sorted(registry.locked_models()):
        try:
            ok, message = True, f"verified, in {resolve(name, download=False).folder}"
        except ModelNotAllowedError:
            raise
        except ModelError as exc:
            ok, message = False, str(exc)
        rows.append({"id": name, "ok": ok, "message": message})
    if args.json:
        out.json({"lock": str(registry.default_lock_path()), "models": rows})
    else:
        for row in rows:
            mark = style("✓", "green") if row["ok"] else style("✕", "red")
            out.text(f"{mark} {row['id']}  {row['message']}")
        if not rows:
            out.text(wrap(f"{registry.default_lock_path()} does not pin any models."))
    return 0 if all(row["ok"] for row in rows) else 1


def _bench(args: argparse.Namespace) -> int:
    for name in args.names:
        registry.find_spec(registry.check_model_id(name))
    results = []
    for name in args.names:
        model = Model(resolve(name, check=False))
        tokens = min(args.tokens, model.spec.max_length)
        template = model.tokenizer.template
        word = (model.tokenizer.ids("word") or [0])[0]
        if model.spec.kind in ("cross-encoder", "nli"):
            row = template.pair([word] * 8, [word] * max(1, tokens - 8 - template.size))
        else:
            row = template.single([word] * max(1, tokens - 2))

        def run(model: Model = model, row: tuple[list[int], list[int]] = row) -> None:
            model.forward(*row)

        one_thread, all_threads = [], []
        for _ in range(args.rounds):
            started = time.perf_counter()
            for _ in range(args.pairs):
                run()
            between = time.perf_counter()
            shared_engine().submit([run] * args.pairs).future.result()
            one_thread.append((between - started) * 1000 / args.pairs)
            all_threads.append((time.perf_counter() - between) * 1000 / args.pairs)
        times = min(one_thread), min(all_threads), statistics.median(all_threads)
        results.append((name, len(row[0]), model.spec.precision, *(round(time_ms, 3) for time_ms in times)))
    if args.json:
        names = ("id", "tokens", "precision", "ms_1_thread", "ms_all_threads", "median_ms")
        rows = [dict(zip(names, result, strict=True)) for result in results]
        return out.json({"threads": usable_cores(), "pairs": args.pairs, "models": rows})
    threads = count(usable_cores(), "thread")
    headers = ["model", "tokens", "precision", "ms, 1 thread", f"ms, {threads}", "median"]
    out.table(headers, results, stretch=0)
    return 0


def _print_rows(rows: list[tuple[str, str]]) -> None:
    size = max(len(label) for label, _ in rows)
    for label, value in rows:
        out.text(f"  {label:<{size}}  {value}")


def _join(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
