"""The server as a Ray Serve deployment: replicas, autoscaling by ongoing pairs, a bounded queue, a drain.

`serve deploy ray-serve.yaml` with `import_path: resift.integrations.ray_serve:build`. What a request may be
and how it is answered is the server's; how many replicas there are and who waits outside is Ray Serve's.
"""

from __future__ import annotations

import math
from typing import Any

from resift.errors import require
from resift.models.engine import use_workers
from resift.models.local_models import allow_again, allowed_folders
from resift.models.model_files import ModelFiles
from resift.server import Limits, ServerOptions, serve_app
from resift.types import JsonMapping, JsonObject

PAIRS = "pairs"
TARGET_PAIRS = 256
"""Pairs that a replica should have at hand: a second or two of work for the default model on one core."""


class PairsPolicy:
    """Ray Serve's autoscaling by pairs: a request of a thousand documents is worth fifty of twenty."""

    def __init__(self, target_pairs: float = TARGET_PAIRS) -> None:
        self.target_pairs = target_pairs

    def __call__(self, context: Any) -> tuple[int, JsonObject]:
        """Return how many replicas the pairs at hand call for; Ray Serve applies its bounds and delays."""
        said = (context.aggregated_metrics or {}).get(PAIRS) or {}
        pairs = sum(said.values())
        # Requests that wait outside the replicas have not been read: they count as those inside do.
        inside = max(1.0, context.total_num_requests - (context.total_queued_requests or 0))
        waiting = (context.total_queued_requests or 0) * pairs / inside
        return max(1, math.ceil((pairs + waiting) / self.target_pairs)), {}


def build(arguments: JsonMapping) -> Any:
    """Return the Serve application. Arguments are fields of ServerOptions; `limits` has those of Limits."""
    serve = require("ray.serve", extra="ray")
    config = require("ray.serve.config", extra="ray")
    given = dict(arguments)
    options = ServerOptions(**{**given, "limits": Limits(**given.get("limits", {}))})

    replica = serve.deployment(
        name="resift",
        max_ongoing_requests=options.limits.max_requests,
        max_queued_requests=2 * options.limits.max_requests,
        backpressure_config=config.BackpressureConfig(status_code=429, retry_after_s=1),
        autoscaling_config=config.AutoscalingConfig(
            policy=config.AutoscalingPolicy(policy_function=f"{__name__}:{PairsPolicy.__name__}")
        ),
        graceful_shutdown_timeout_s=30,
    )(serve.ingress()(Replica))
    return replica.bind(options, allowed_folders())


class Replica:
    """One process with its models; it is given requests only when they are loaded."""

    def __init__(self, options: ServerOptions, models: tuple[ModelFiles, ...] = ()) -> None:
        allow_again(models)
        ray = require("ray", extra="ray")
        cores = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        use_workers(max(1, int(cores)))
        self._app = serve_app(options)
        self._serving = self._app.state.serving
        self._serving.accept_when_ready = True

    def __serve_build_asgi_app__(self) -> Any:
        return self._app

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Tell Ray Serve how many pairs are at hand."""
        admission = self._serving.admission
        return {PAIRS: float(admission.in_flight + admission.waiting)}

    async def check_health(self) -> None:
        """Raise where this replica can never answer: Ray Serve then starts another one."""
        if self._serving.state == "failed":
            raise RuntimeError(self._serving.failure)
