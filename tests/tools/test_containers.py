"""Container files: they parse, fit the server's ports, paths and metrics, and run without rights."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from resift.cli.main import build_parser
from resift.server.keys import OPEN_PATHS
from resift.server.state import Metrics

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/resift.yaml").read_text(encoding="utf-8")))
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
DASHBOARD = json.loads((ROOT / "deploy/grafana/resift.json").read_text(encoding="utf-8"))
PORT = 8787


def instruction(name: str) -> str:
    """Return the last instruction of this name, with its continued lines."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"(?m)^{name}\s+(.*)$", joined)[-1].strip()


def deployment() -> dict:
    return next(each for each in KUBERNETES if each["kind"] == "Deployment")["spec"]["template"]["spec"]


def container() -> dict:
    return deployment()["containers"][0]


@pytest.mark.parametrize(
    "words",
    [
        json.loads(instruction("CMD")),
        [str(word) for word in COMPOSE["services"]["resift"]["command"]],
        [str(word) for word in container()["args"]],
    ],
    ids=["Dockerfile", "compose", "kubernetes"],
)
def test_commands_are_understood_and_use_the_port(words):
    """The commands are those of `resift serve`, on the port that the files publish."""
    args = build_parser().parse_args(words)
    assert (args.host, args.port) == ("0.0.0.0", PORT)
    assert instruction("EXPOSE") == str(PORT)
    assert container()["ports"][0]["containerPort"] == PORT
    assert COMPOSE["services"]["resift"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]


def test_probes_ask_paths_that_need_no_key():
    probes = [container()[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")]
    assert probes == ["/readyz", "/readyz", "/livez"]
    assert set(probes) <= set(OPEN_PATHS)
    assert f"http://127.0.0.1:{PORT}/readyz" in instruction("HEALTHCHECK")


def test_the_server_runs_without_rights():
    """No root, a read-only file system, no capabilities; only /tmp and the index can be written."""
    user = instruction("USER").partition(":")[0]
    assert user.isdigit()
    assert int(user) > 0
    assert deployment()["securityContext"]["runAsUser"] == int(user)
    assert deployment()["securityContext"]["runAsNonRoot"]
    assert container()["securityContext"]["readOnlyRootFilesystem"]
    service = COMPOSE["services"]["resift"]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["tmpfs"] == ["/tmp"]


def test_there_is_time_to_drain():
    args = build_parser().parse_args([str(word) for word in container()["args"]])
    assert deployment()["terminationGracePeriodSeconds"] >= args.drain_delay + args.drain


def test_prometheus_reads_metrics_with_the_key_of_the_server():
    """The metrics need a key: the monitor sends the key that the deployment mounts, to the port of its container."""
    monitor = yaml.safe_load((ROOT / "deploy/kubernetes/monitoring.yaml").read_text(encoding="utf-8"))
    endpoint = monitor["spec"]["podMetricsEndpoints"][0]
    assert "/metrics" not in OPEN_PATHS
    assert endpoint["path"] == "/metrics"
    assert endpoint["port"] == container()["ports"][0]["name"]
    secrets = [volume["secret"]["secretName"] for volume in deployment()["volumes"] if "secret" in volume]
    assert endpoint["authorization"]["credentials"] == {"name": secrets[0], "key": "keys"}
    adapter = yaml.safe_load((ROOT / "deploy/kubernetes/prometheus-adapter.yaml").read_text(encoding="utf-8"))
    scaling = next(each for each in KUBERNETES if each["kind"] == "HorizontalPodAutoscaler")
    offered = [rule["name"]["as"] for rule in adapter["rules"]["custom"]]
    assert offered == [each["pods"]["metric"]["name"] for each in scaling["spec"]["metrics"]]


def test_dashboard_and_scaling_use_metrics_that_exist():
    names = set()
    for family in Metrics().registry.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
        names |= {family.name + suffix for suffix in suffixes}
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    used = {name for query in queries for name in re.findall(r"resift_\w+", query)}
    scaling = next(each for each in KUBERNETES if each["kind"] == "HorizontalPodAutoscaler")
    used |= {each["pods"]["metric"]["name"] for each in scaling["spec"]["metrics"]}
    assert len(used) > 8
    assert used - names == set()
    scrape = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"][0]
    assert (scrape["metrics_path"], scrape["static_configs"][0]["targets"]) == ("/metrics", [f"resift:{PORT}"])


def test_the_image_gets_everything_it_copies():
    """What .dockerignore lets through is what the Dockerfile copies, and it exists."""
    kept = re.findall(r"(?m)^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"))
    copied = [
        word.removeprefix("./")
        for line in re.findall(r"(?m)^COPY (?!--from)(.+)$", DOCKERFILE)
        for word in line.split()[:-1]
    ]
    assert sorted(kept) == sorted(copied)
    assert all((ROOT / name).exists() for name in copied)
    mounted = [
        volume.partition(":")[0]
        for service in COMPOSE["services"].values()
        for volume in service.get("volumes", ())
        if volume.startswith("./")
    ]
    assert len(mounted) == 3
    assert all((ROOT / name).exists() for name in mounted)
