"""Run the server as a Ray Serve deployment: replicas, autoscaling by pairs, a bounded queue, draining.

Set `import_path: resift.integrations.ray_serve:build` in ray-serve.yaml and run `serve deploy ray-serve.yaml`.
Resift's server handles the requests. Ray Serve manages replicas and queues.
"""

from __future__ import annotations

import math
from typing import Any

from resift.errors import require
from resift.models.engine import use_workers
from resift.models.registry import ModelFiles, allowed_folders, restore_allowed
from resift.server import Limits, ServerOptions, serve_app
from resift.types import JsonMapping

PAIRS = "pairs"
TARGET_PAIRS = 256  # in progress per replica: one or two seconds of work for the default model on one core


class PairsPolicy:
    """Autoscaling by pairs: one request with 1,000 documents counts as much as 50 requests with 20 each."""

    def __init__(self, target_pairs: float = TARGET_PAIRS) -> None:
        self.target_pairs = target_pairs

    def __call__(self, context: Any) -> tuple[int, dict[str, object]]:
        """Return the number of replicas for the current load. Ray Serve applies its bounds and delays."""
        pairs = sum(((context.aggregated_metrics or {}).get(PAIRS) or {}).values())
        queued = context.total_queued_requests or 0
        # The size of queued requests is unknown. Assume that they are as large as those in progress.
        in_progress = max(1.0, context.total_num_requests - queued)
        queued_pairs = queued * pairs / in_progress
        return max(1, math.ceil((pairs + queued_pairs) / self.target_pairs)), {}


def build(arguments: JsonMapping) -> Any:
    """Return the Serve application. Arguments are fields of ServerOptions; `limits` contains fields of Limits."""
    serve = require("ray.serve", extra="ray")
    config = require("ray.serve.config", extra="ray")
    options = ServerOptions(**{**arguments, "limits": Limits(**arguments.get("limits", {}))})
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
    """One process with its models. It receives requests once they are loaded."""

    def __init__(self, options: ServerOptions, models: tuple[ModelFiles, ...] = ()) -> None:
        restore_allowed(models)
        ray = require("ray", extra="ray")
        cores = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        use_workers(max(1, int(cores)))
        self._app = serve_app(options)
        self._server = self._app.state.server
        self._server.accept_when_ready = True

    def __serve_build_asgi_app__(self) -> Any:
        return self._app

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Report the pairs in progress to Ray Serve."""
        admission = self._server.admission
        return {PAIRS: float(admission.in_flight + admission.waiting)}

    async def check_health(self) -> None:
        """Raise if this replica failed to start. Ray Serve then starts another one."""
        if self._server.phase == "failed":
            raise RuntimeError(self._server.failure)
