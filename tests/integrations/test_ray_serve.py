"""Ray Serve: the config file is whole, and replicas follow the pairs (research.batch_serve runs it)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from resift.integrations.ray_serve import PairsPolicy, build

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "examples" / "ray-serve.yaml"


def context(pairs: dict[str, float], requests: float = 0, queued: float = 0) -> Any:
    return SimpleNamespace(
        aggregated_metrics={"pairs": pairs} if pairs else None,
        total_num_requests=requests,
        total_queued_requests=queued,
    )


@pytest.mark.parametrize(
    ("given", "replicas"),
    [
        (context({}), 1),
        (context({"a": 0.0}), 1),
        (context({"a": 100.0}), 1),
        (context({"a": 101.0}), 2),
        (context({"a": 150.0, "b": 160.0}), 4),
        # Two requests inside with 50 pairs each, six more wait outside: 400 pairs are at hand.
        (context({"a": 100.0}, requests=8, queued=6), 4),
    ],
)
def test_the_number_of_replicas_follows_the_pairs(given, replicas):
    assert PairsPolicy(target_pairs=100)(given) == (replicas, {})


@pytest.mark.filterwarnings("ignore")
def test_the_config_file_is_valid_for_ray_serve():
    """Ray Serve's own schema reads it, finds the policy, and the arguments make the deployment."""
    schema = pytest.importorskip("ray.serve.schema")
    config = schema.ServeDeploySchema.model_validate(yaml.safe_load(CONFIG.read_text()))
    [app] = config.applications
    assert app.import_path == f"{build.__module__}:{build.__name__}"
    [deployment] = app.deployments
    policy = schema.AutoscalingConfig.model_validate(deployment.autoscaling_config).policy
    assert policy.get_policy()(**policy.policy_kwargs).target_pairs == 256
    made = build(app.args)
    bound = made._bound_deployment
    assert bound.name == deployment.name
    assert bound.backpressure_config.status_code == 429
    assert bound.init_args[0].limits.max_pairs == app.args["limits"]["max_pairs"]


def test_the_page_shows_the_config_file():
    page = (ROOT / "docs" / "integrations" / "ray-serve.md").read_text(encoding="utf-8")
    assert CONFIG.read_text(encoding="utf-8") in page
