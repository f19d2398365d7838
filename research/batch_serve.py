"""The server on Ray Serve, from the shipped config file: answers, overload, more replicas, drain, stop.

python -m research.batch_serve            # about a minute
python -m research.batch_serve --quick    # the same, nothing written

examples/ray-serve.yaml is deployed on a cluster of its own, with small limits so that two cores are enough to
reach them; requests come over HTTP; the deployment is deleted while requests are in flight.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import yaml

from benchmarks.harness import HERE, descendants, versions, write_results

CONFIG = HERE.parent / "examples" / "ray-serve.yaml"
QUERY = "what do bees make?"
LEAST_OVERLOAD_S = 10
TEXT = "Bees visit flowers and make honey, which people have eaten for thousands of years. "


def small_config(folder: Path, port: int) -> Path:
    """Return the shipped config with limits that two cores reach within seconds."""
    config = yaml.safe_load(CONFIG.read_text())
    config["http_options"]["port"] = port
    config["proxy_location"] = "HeadOnly"
    [app] = config["applications"]
    app["args"] |= {"embedder": None, "limits": {"max_pairs": 120, "max_requests": 4}}
    [deployment] = app["deployments"]
    deployment |= {"max_ongoing_requests": 4, "max_queued_requests": 4}
    deployment["autoscaling_config"] |= {
        "max_replicas": 2,
        "upscale_delay_s": 2,
        "downscale_delay_s": 600,
        "look_back_period_s": 11,
        "policy": {
            "policy_function": "resift.integrations.ray_serve:PairsPolicy",
            "policy_kwargs": {"target_pairs": 60},
        },
    }
    path = folder / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def ask(url: str, documents: int) -> tuple[int, str, float]:
    """Send one request; return its status, its Retry-After and how long it took."""
    started = time.perf_counter()
    body = {"model": "m", "query": QUERY, "documents": [f"{TEXT * 3}{n}" for n in range(documents)]}
    answer = httpx.post(f"{url}/v2/rerank", json=body, timeout=60)
    if answer.status_code == 200:
        assert len(answer.json()["results"]) == documents
    return answer.status_code, answer.headers.get("retry-after", ""), time.perf_counter() - started


def wait_until_ready(url: str, process: subprocess.Popen[Any], most_s: float) -> float:
    started = time.perf_counter()
    while time.perf_counter() - started < most_s:
        if process.poll() is not None:
            raise RuntimeError(f"serve run ended with {process.returncode}")
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return time.perf_counter() - started
        except httpx.HTTPError:
            pass
        time.sleep(0.3)
    raise RuntimeError("not ready in time")


def overload(url: str, process: subprocess.Popen[Any], callers: int, most_s: float) -> dict[str, Any]:
    """Send more than fits, from many callers, until there is a second replica; return what came back."""
    began = time.perf_counter()
    enough = threading.Event()

    def caller(_: int) -> list[tuple[int, str, float]]:
        found = []
        while not enough.is_set():
            found.append(ask(url, 40))
            if found[-1][0] == 429:
                time.sleep(0.2)
        return found

    with ThreadPoolExecutor(callers) as pool:
        asked = [pool.submit(caller, number) for number in range(callers)]
        while time.perf_counter() - began < most_s:
            time.sleep(1)
            if time.perf_counter() - began > LEAST_OVERLOAD_S and replicas(process) > 1:
                break
        enough.set()
        answers = [one for some in asked for one in some.result()]
    refused = [one for one in answers if one[0] == 429]
    return {
        "callers": callers,
        "seconds": round(time.perf_counter() - began, 1),
        "statuses": dict(Counter(str(one[0]) for one in answers)),
        "refused_with_retry_after": sum(one[1].isdecimal() and int(one[1]) >= 1 for one in refused),
        "refused": len(refused),
    }


def replicas(process: subprocess.Popen[Any]) -> int:
    """Return how many replicas there are: the processes below this one that Ray calls so."""
    told = []
    for pid in descendants(process.pid):
        with suppress(OSError):
            told.append(Path(f"/proc/{pid}/cmdline").read_text())
    return sum("ServeReplica:resift" in one for one in told)


def drain(url: str, process: subprocess.Popen[Any], documents: int) -> dict[str, Any]:
    """End the deployment while requests are in flight; all of them must be answered."""
    with ThreadPoolExecutor(2) as pool:
        flying = [pool.submit(ask, url, documents) for _ in range(2)]
        time.sleep(1.5)
        assert process.stdin
        process.stdin.close()
        answers = [one.result()[0] for one in flying]
    started = time.perf_counter()
    process.wait(timeout=90)
    return {
        "documents": documents,
        "in_flight": answers,
        "exit_code": process.returncode,
        "stop_s": time.perf_counter() - started,
    }


@contextmanager
def started(words: list[str], env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[Any]]:
    """Run a program and end it, and what it started, by its own process group."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            words,
            env=env,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, number)
                    process.wait(timeout=20)


def run(port: int) -> dict[str, Any]:
    """Start the deployment on a cluster of its own, and go through its life."""
    # In /tmp, for Ray's sockets have names of a bounded length; never an address of somebody else's cluster.
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        env = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
        env |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder)}
        words = [sys.executable, "-m", "research.batch_serve", "--deploy", str(small_config(folder, port))]
        with started(words, env, folder / "serve.log") as process:
            try:
                return life(f"http://127.0.0.1:{port}", process)
            except Exception:
                sys.stderr.write((folder / "serve.log").read_text()[-3000:])
                raise


def deploy(config: Path) -> None:
    """Do what `serve deploy` does, on a cluster of this process; take the deployment away when stdin ends."""
    import ray
    from ray import serve
    from ray.serve._private.api import serve_start
    from ray.serve.schema import ServeDeploySchema

    schema = ServeDeploySchema.model_validate(yaml.safe_load(config.read_text()))
    ray.init(address="local", namespace="serve")
    client = serve_start(http_options=schema.http_options.model_dump(), proxy_location=schema.proxy_location)
    client.deploy_apps(schema, _blocking=False)
    sys.stdin.read()
    serve.delete("resift")
    serve.shutdown()
    ray.shutdown()


def life(url: str, process: subprocess.Popen[Any]) -> dict[str, Any]:
    """Return what a deployment did from its start to its end."""
    ready_s = wait_until_ready(url, process, 300)
    alone = [ask(url, 10) for _ in range(5)]
    result: dict[str, Any] = {
        "ready_s": round(ready_s, 1),
        "alone": {"statuses": [one[0] for one in alone], "last_ms": round(alone[-1][2] * 1000, 1)},
        "overload": overload(url, process, 16, 90),
    }
    result["replicas_after_overload"] = replicas(process)
    result["after"] = ask(url, 10)[0]
    # Some seconds of work each, on this machine as it is now.
    result["drain"] = drain(url, process, max(10, min(400, round(40 / alone[-1][2]))))
    return result


def missed(result: dict[str, Any]) -> list[str]:
    """Return what did not hold."""
    load = result["overload"]
    checks = {
        "answers when alone": set(result["alone"]["statuses"]) == {200},
        "only 200 and 429 under overload": set(load["statuses"]) == {"200", "429"},
        "every refusal says when to come back": load["refused_with_retry_after"] == load["refused"],
        "a second replica": result["replicas_after_overload"] == 2,
        "answers afterwards": result["after"] == 200,
        "nothing in flight is lost": set(result["drain"]["in_flight"]) == {200},
    }
    return [name for name, held in checks.items() if not held]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m research.batch_serve", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="nothing is written")
    parser.add_argument("--port", type=int, default=8797)
    parser.add_argument("--deploy", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.deploy:
        deploy(args.deploy)
        return 0
    result = run(args.port)
    wrong = missed(result)
    print(json.dumps(result, indent=2))
    if not args.quick:
        write_results("batch_serve", {"missed": wrong, "versions": versions(["ray", "resift"]), **result})
    for name in wrong:
        print(f"missed: {name}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
