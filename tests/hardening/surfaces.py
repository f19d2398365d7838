"""Hostile content where version 0.3 reads new things: results and tables of other programs, lock files, query
templates, click logs, cost records, and the commands of the container files.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import io
import json
import math
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from resift.errors import DataFormatError, ModelFileError, ResiftError
from tests.hardening.report import ROOT, Outcome

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 10**400, 1e308, -1e308, math.nan, math.inf, -math.inf, "", " ", "\0", "\ud800", "\u202e",
    "9" * 5000, "1e999", "a" * 10_000, [], {}, [[]], [{}], [None], {"": ""}, {"id": None}, {"hits": {"hits": 3}},
    "../../etc/passwd", "<script>", "'; DROP TABLE x", "${HOME}", "d1", -0.0, [1, "a", None], {"a": {"b": {"c": [1]}}},
)  # fmt: skip
"""What a program may get as JSON in place of any value."""


def attack(seed: int, count: int) -> Outcome:
    """Change `count` responses, tables, lock files, click logs, cost records and templates in turn."""
    outcome = Outcome("hostile results and tables, lock files, templates, click logs and cost records")
    draw = random.Random(seed)
    attacks = (_results, _tables, _lock_files, _click_logs, _cost_records, _usage, _templates)
    tried: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for turn in range(count):
            attempt = attacks[turn % len(attacks)]
            outcome.tried += 1
            name = attempt.__name__.strip("_").replace("_", " ")
            tried[name] = tried.get(name, 0) + 1
            try:
                attempt(outcome, Path(folder), draw)
            except ResiftError as exc:
                outcome.check(bool(str(exc).strip()), f"{name}: an error without words")
            except Exception as exc:
                outcome.fail(f"{name}: raw {type(exc).__name__}: {str(exc)[:200]}")
    outcome.figures = dict(tried)
    return outcome


def change_json(value: Any, draw: random.Random, values: tuple[Any, ...] = VALUES) -> Any:
    """Return a copy in which one to three parts are replaced, removed, repeated or renamed."""
    changed = copy.deepcopy(value)
    for _ in range(draw.choice([1, 1, 2, 3])):
        parents = [parent for parent in _containers(changed) if parent]
        if not parents:
            return draw.choice(values)
        parent = draw.choice(parents)
        key = draw.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
        action = draw.random()
        if action < 0.7:
            parent[key] = copy.deepcopy(draw.choice(values))
        elif action < 0.8:
            del parent[key]
        elif isinstance(parent, list):
            parent.append(copy.deepcopy(draw.choice(parent)))
        else:
            parent[draw.choice(["id", "_id", "score", "text", "hits", "", "a.b", "\0"])] = parent.pop(key)
    return changed


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)


def change_bytes(data: bytes, draw: random.Random) -> bytes:
    """Return a copy with a changed bit, a cut, or some inserted bytes."""
    i = draw.randrange(len(data))
    action = draw.randrange(3)
    if action == 0:
        return data[:i] + bytes([data[i] ^ (1 << draw.randrange(8))]) + data[i + 1 :]
    return data[:i] if action == 1 else data[:i] + draw.choice([b"\0", b"\xff", b"\n", b"[" * 3000, b'"']) + data[i:]


def _rank(outcome: Outcome, what: str, results: Any, draw: random.Random) -> None:
    """Rerank or fuse the results. Hits are unique, scores are numbers, and the ranking survives its JSON."""
    import resift
    from resift.testing import OverlapScorer

    if draw.random() < 0.5:
        ranking = resift.rerank("travel costs", results, scorer=OverlapScorer(), k=draw.choice([None, 2]))
    else:
        ranking = resift.fuse([results, results], k=draw.choice([2, 10]))
    outcome.check(len(set(ranking.ids)) == len(ranking), f"{what}: an id twice in {ranking.ids}")
    scores = [hit.score for hit in ranking if hit.score is not None]
    outcome.check(all(math.isfinite(score) for score in scores), f"{what}: scores {scores}")
    ranking.originals()
    repr(ranking)
    again = resift.Ranking.from_json(ranking.to_json())
    outcome.check(again.ids == ranking.ids, f"{what}: {again.ids} from JSON instead of {ranking.ids}")


def _results(outcome: Outcome, folder: Path, draw: random.Random) -> None:
    from tests.external.recorded import RESPONSES

    system = draw.choice(sorted(RESPONSES))
    _rank(outcome, system, change_json(RESPONSES[system], draw), draw)


def _tables(outcome: Outcome, folder: Path, draw: random.Random) -> None:
    """A data frame or Arrow table with hostile cells, column names and index."""
    import pandas
    import polars
    import pyarrow

    names = draw.sample(
        ["id", "text", "title", "score", "body", "", " ", "\0", "a.b", "_id", "x" * 300], k=draw.randint(1, 4)
    )
    rows = draw.randint(0, 5)
    cells: tuple[Any, ...] = (*VALUES, "a text on travel", 1, -1.5, True, [1, 2], {"a": 1})
    columns = {name: [draw.choice(cells) for _ in range(rows)] for name in names}
    if draw.random() < 0.6:  # one type per column, as Arrow and Polars need it
        columns = {name: [str(i) * draw.randint(0, 3) for i in range(rows)] for name in names}
        columns[draw.choice(names)] = [draw.choice([None, math.nan, 1.0, math.inf]) for _ in range(rows)]
    makers: tuple[Callable[[Any], Any], ...] = (
        pandas.DataFrame, polars.DataFrame, pyarrow.table,
        lambda columns: pandas.DataFrame(columns, index=[draw.choice([1, "a", None, ""]) for _ in range(rows)]),
    )  # fmt: skip
    try:
        table = draw.choice(makers)(columns)
    except Exception:
        return  # the other library refuses the columns
    _rank(outcome, type(table).__name__, table, draw)


def _lock_files(outcome: Outcome, folder: Path, draw: random.Random) -> None:
    """A lock file changed in any place: it is refused, or it still pins the same bytes."""
    import hashlib

    from resift.models.locate import resolve
    from resift.models.lock_file import read_lock, use_lock

    path = folder / "resift-models.lock"
    if not path.exists():
        path.write_bytes(_make_lock(folder))
        path.with_suffix(".sound").write_bytes(path.read_bytes())
    sound = path.with_suffix(".sound").read_bytes()
    if draw.random() < 0.5:
        path.write_bytes(change_bytes(sound, draw))
    else:
        path.write_text(json.dumps(change_json(json.loads(sound), draw)), encoding="utf-8", errors="surrogatepass")
    try:
        models = read_lock(path)
    except ModelFileError as exc:
        outcome.check(path.name in str(exc), f"the lock file is not named: {exc}")
        return
    with use_lock(path):
        for id, model in models.items():
            files = resolve(id, download=False)
            for pinned in model.files:
                digest = hashlib.sha256((files.folder / pinned.name).read_bytes()).hexdigest()
                # Files are read when the model is loaded, which checks them again.
                outcome.check(digest == pinned.sha256 or not _loads(id), f"{id} with another {pinned.name} was loaded")


def _make_lock(folder: Path) -> bytes:
    from resift.models.pinning import add_model
    from tests.models.model_folders import network_folder

    model = network_folder(folder / "model")
    add_model(model, name="attack/model", lock=folder / "resift-models.lock", precision="fp32", probe=False)
    return (folder / "resift-models.lock").read_bytes()


def _loads(id: str) -> bool:
    import resift

    return not resift.rerank("q", ["a", "b"], model=id).degraded


def _click_logs(outcome: Outcome, folder: Path, draw: random.Random) -> None:
    from resift.evaluation.click_log import read_click_log

    pages: list[Any] = [{"query": f"q{i}", "results": ["a", "b", "c"], "clicked": ["b", 3]} for i in range(5)]
    pages += [{"query": f"q{i}", "id": "a", "position": 2, "clicked": True} for i in range(5)]
    if draw.random() < 0.5:
        suffix, i = ".jsonl", draw.randrange(len(pages))
        pages[i] = change_json(pages[i], draw)
        data = "".join(json.dumps(page) + "\n" for page in pages).encode()
    else:
        suffix = draw.choice([".csv", ".tsv"])
        rows = [["query", "id", "position", "clicked"], *([f"q{i}", "a", str(i + 1), "1"] for i in range(5))]
        i, column = draw.randrange(6), draw.randrange(4)
        rows[i][column] = draw.choice(["", "-1", "0", "1.5", "9" * 5000, "٣", "x" * 200_000, '"', "\0", "nan", "²"])
        data = "\n".join((", "[0] if suffix == ".csv" else "\t").join(row) for row in rows).encode()
    if draw.random() < 0.3:
        data = change_bytes(data, draw)
    path = folder / f"clicks{suffix}"
    path.write_bytes(data)
    try:
        log = read_click_log(path)
    except DataFormatError as exc:
        outcome.check(path.name in str(exc), f"the click log is not named: {exc}")
        return
    counts = [
        count for documents in log.counts.values() for positions in documents.values() for count in positions.values()
    ]
    outcome.check(sum(shown for shown, _ in counts) == log.impressions, "impressions that do not add up")
    outcome.check(all(0 <= clicked <= shown for shown, clicked in counts), "more clicks than impressions")


def _cost_records(outcome: Outcome, folder: Path, draw: random.Random) -> None:
    from resift.cli.main import main

    event = {
        "event": "provider_billed", "time": "2026-11-17T10:00:00", "provider": "jina", "model": "m", "tokens": 100,
        "search_units": 1, "cost_usd": 0.002, "estimated": False, "price_checked": True,
    }  # fmt: skip
    skipped = {"event": "cross_encoder_skipped", "provider": "jina", "reason": "cost"}
    events = [change_json(draw.choice([event, event, skipped]), draw) for _ in range(3)] + [event]
    data = "".join(json.dumps(row) + "\n" for row in events).encode()
    path = folder / "events.jsonl"
    path.write_bytes(change_bytes(data, draw) if draw.random() < 0.4 else data)
    words = ["report", "cost", str(path), *draw.choice([["--json"], []])]
    written, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(errors):
        code = main(words)
    outcome.check(code in (0, 1), f"report cost: exit code {code}")
    outcome.check(code == 0 or path.name in errors.getvalue(), f"report cost: {errors.getvalue()[:200]!r}")
    if code == 0 and "--json" in words:
        total = json.loads(written.getvalue(), parse_constant=str)["total_usd"]
        outcome.check(isinstance(total, float) and 0 <= total < math.inf, f"a total of {total} for {events!r}")


def _usage(outcome: Outcome, folder: Path, draw: random.Random) -> None:
    """What a provider reports as its usage: the cost is a number that limits can be compared with."""
    from resift.rerankers.hosted.cost import Price, Usage, read_usage

    answer = {"usage": {"total_tokens": 12}, "meta": {"billed_units": {"search_units": 1}}, "results": []}
    usage = read_usage(change_json(answer, draw), Usage(10, 1, estimated=True))
    cost = Price(0.02, 2.0).cost(usage)
    outcome.check(0 <= cost < math.inf, f"a cost of {cost}")


def _templates(outcome: Outcome, folder: Path, draw: random.Random) -> None:
    """A hostile query in a search body: it replaces the placeholder and changes nothing else."""
    from resift.stores.tables import ElasticsearchQuery
    from resift.stores.tables import elasticsearch as module
    from tests.stores.table_systems import HOSTILE

    body: dict[str, Any] = {
        "query": {"bool": {"must": [{"match": {"body": "$query"}}], "filter": ["$filter"]}},
        "size": "$k", "_source": ["body"],
    }  # fmt: skip
    if draw.random() < 0.3:
        body = change_json(body, draw, (*VALUES, "$query", "x $query", {"$query": 1}, "$vector", "$k"))
    store = ElasticsearchQuery("articles", url="http://127.0.0.1:1", body=body)
    query = draw.choice([*HOSTILE, "$query", "$k", "$filter", '", "script": {"source": "1"}, "x": "'])
    values = {"$query": query, "$k": 7, "$filter": {"term": {"a": query}}}
    filled = module._fill(store.body, values)
    # Taken back by position, the filled body is the template.
    outcome.check(_differences(store.body, filled) <= set(values), f"{query!r} changed the body: {filled!r}")
    json.loads(json.dumps(filled))
    asyncio.run(store.close())


def _differences(template: Any, filled: Any) -> set[str]:
    """Return the parts of the template that have another value in the filled body."""
    if type(template) is type(filled) and isinstance(template, dict) and template.keys() == filled.keys():
        return set().union(*(_differences(template[key], filled[key]) for key in template))
    if type(template) is type(filled) and isinstance(template, list) and len(template) == len(filled):
        return set().union(*(_differences(a, b) for a, b in zip(template, filled, strict=True)))
    if repr(template) == repr(filled):  # NaN does not equal itself
        return set()
    return {template if isinstance(template, str) else repr(template)}


def attack_containers(seed: int, count: int) -> Outcome:
    """Run the servers of the container files as they run there, without a file system to write to, `count` times."""
    from tests.server.process import real
    from tests.tools.test_containers import COMPOSE, container, instruction

    outcome = Outcome("servers of the container files on a read-only file system without rights")
    probe = subprocess.run([*READ_ONLY, "touch", str(ROOT / "x")], capture_output=True, check=False)
    if not shutil.which("unshare") or not probe.stderr.endswith(b"Read-only file system\n"):
        outcome.absent = "needs root and `unshare`"
        return outcome
    commands = {
        "Dockerfile": json.loads(instruction("CMD")),
        "compose.yaml": [str(word) for word in COMPOSE["services"]["resift"]["command"]],
        "Kubernetes": [str(word) for word in container()["args"]],
    }
    draw = random.Random(seed)
    env = {
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "RESIFT_API_KEYS": "a-long-key-of-the-attack",
    }
    for _ in range(count):
        for name, words in commands.items():
            kept = _local_words(words)
            server = real(*kept, env=env, before=READ_ONLY)
            outcome.tried += 1
            key = {"authorization": f"Bearer {env['RESIFT_API_KEYS']}"}
            body = {"query": "red fox", "documents": ["a whale", "a red fox"], "model": "any"}
            answer = server.ask("POST", "/v2/rerank", body, key)
            outcome.check(
                answer.status == 200 and "x-resift-degraded" not in answer.headers, f"{name}: {answer.body!r}"
            )
            outcome.check(server.get("/metrics").status == 401, f"{name}: the metrics need no key")
            wrong = server.ask("POST", "/v2/rerank", change_bytes(json.dumps(body).encode(), draw), key)
            outcome.check(wrong.status < 500, f"{name}: {wrong.status}")
            outcome.check(server.stop() == 0, f"{name}: the server did not exit with 0")
    return outcome


READ_ONLY = (
    "unshare", "--mount", "sh", "-c",
    'mount -o remount,bind,ro / / && exec setpriv --no-new-privs --bounding-set=-all "$@"', "sh",
)  # fmt: skip


def _local_words(words: list[str]) -> list[str]:
    """Return the words of `serve` that do not name the address or files of the container."""
    kept, skip = [], False
    for word in words[1:]:
        if skip or word in ("--host", "--port", "--store", "--api-key-file", "--drain-delay"):
            skip = not skip
            continue
        kept.append(word)
    return kept


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    result = attack(int(sys.argv[1]) if len(sys.argv) > 1 else 1, int(sys.argv[2]) if len(sys.argv) > 2 else 700)
    print(result.tried, result.failures, result.figures, *result.examples, sep="\n")
