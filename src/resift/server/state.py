"""The shared state of a running server: models, pipeline, keys, metrics and lifecycle phase."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from resift.errors import InputError, ModelLoadError, require
from resift.models.embedder import Embedder as LocalEmbedder
from resift.pipeline.pipeline import Pipeline
from resift.protocols import Embedder, HasModelName, Scorer
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.server.admission import Admission
from resift.server.keys import Keys
from resift.server.schema import RequestFailed
from resift.server.server_options import ServerOptions
from resift.telemetry import PrometheusSink
from resift.types import JsonObject

if TYPE_CHECKING:
    from resift.server.endpoint import Request

Phase = Literal["starting", "ready", "draining", "closed", "failed"]

PARSE_CONCURRENCY = 2  # large bodies that are parsed concurrently in threads
MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

log = logging.getLogger("resift.server")


class ServerState:
    """State shared by all routes. Missing models and pipelines are loaded at startup."""

    def __init__(
        self,
        options: ServerOptions,
        *,
        scorer: Scorer | None = None,
        embedder: Embedder | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        self.options = options
        self.metrics = Metrics()
        self.admission = Admission(options.limits, on_refusal=self.metrics.refusals.inc)
        self.parsing = asyncio.Semaphore(PARSE_CONCURRENCY)
        self.keys = Keys(file=options.key_file, env=options.key_env, keys=options.keys)
        self.phase: Phase = "starting"
        self.failure = ""
        self.on_failure: Callable[[], None] = lambda: None
        self.accept_when_ready = False
        self.pipeline = pipeline
        self.embedder = embedder
        self.scorers: dict[str, Scorer] = {} if scorer is None else {options.model: scorer}
        self._loading: asyncio.Task[None] | None = None

    @property
    def state(self) -> Phase:
        """The phase. This is its name in 0.2."""
        return self.phase

    def check_open(self) -> None:
        """Reject requests before the models are loaded and once the server is closing."""
        if self.phase in ("starting", "failed"):
            raise RequestFailed("unavailable", self.failure or "The server is starting", retry_after_s=1)
        if self.phase == "closed":
            raise RequestFailed("unavailable", "The server is shutting down", retry_after_s=1)

    def start(self) -> None:
        """Load the models in a thread, so that health checks work in the meantime."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._load())

    async def wait_until_loaded(self) -> None:
        """Wait until the server is ready or has failed to start. `failure` is the reason."""
        if self._loading is not None:
            await asyncio.wait([self._loading])

    async def close(self) -> None:
        """Stop loading and close the pipeline."""
        if self._loading is not None:
            self._loading.cancel()
        self.phase = "closed"
        if self.pipeline is not None:
            await self.pipeline.close()

    def model(self, requested: str | None) -> tuple[str, Scorer]:
        """Return the display name and the scorer for the requested model, or for the default model."""
        name = self.options.aliases.get(requested, requested) if requested else self.options.model
        if name in self.scorers:
            return requested or name, self.scorers[name]
        if self.options.any_model:
            return requested or name, self.scorers[self.options.model]
        raise _unknown_model(requested, "is not served", self.model_names())

    def model_names(self) -> list[str]:
        """Return the reranker names that requests may use: served models, then aliases."""
        return [*self.scorers, *(alias for alias, model in self.options.aliases.items() if model in self.scorers)]

    @property
    def embedder_name(self) -> str:
        """Name of the embedding model."""
        name = self.embedder.model_name if isinstance(self.embedder, HasModelName) else ""
        return name or self.options.embedder or "embedder"

    def embedder_for(self, requested: str | None) -> Embedder:
        """Return the embedder if the request names it or names no model."""
        if self.embedder is None:
            raise RequestFailed("not_found", "No embedding model is served; start the server with --embedder MODEL")
        name = self.options.aliases.get(requested, requested) if requested else self.embedder_name
        if name == self.embedder_name or self.options.any_model:
            return self.embedder
        raise _unknown_model(requested, "is not served for embeddings", [self.embedder_name])

    async def _load(self) -> None:
        try:
            await asyncio.to_thread(self._load_parts)
        except Exception as exc:
            self.failure = f"The server cannot start: {exc}"
            self.phase = "failed"
            log.error("%s", self.failure)
            self.on_failure()
            return
        # A full garbage collection of modules and models blocks the event loop for 20 to 30 ms.
        gc.freeze()
        if self.phase == "starting":
            self.phase = "ready"
            log.info("ready: %s", ", ".join(self.model_names()))

    def _load_parts(self) -> None:
        for file in filter(None, (*self.options.stores, self.options.pack)):
            # Files are opened at the first request, which is too late to report a misspelled name.
            if not file.exists():
                raise InputError(f"{file}: no such file. Correct the path, or run resift index or graph build.")
        if self.options.pipeline is not None and self.pipeline is None:
            from resift.config import pipeline_from_yaml

            self.pipeline = pipeline_from_yaml(self.options.pipeline, sink=self.metrics.sink)
        # The scorer of a pipeline may have tiers, with a hosted provider first.
        if self.pipeline is not None and self.pipeline.scorer is not None:
            self.scorers.setdefault(self.options.model, self.pipeline.scorer)
        for name in (self.options.model, *self.options.more_models):
            if name not in self.scorers:
                scorer = CrossEncoderReranker(name)
                if scorer.failure:
                    raise ModelLoadError(scorer.failure)
                self.scorers[name] = scorer
                self.admission.cpu_bound = True
        if self.embedder is None and self.options.embedder is not None:
            self.embedder = LocalEmbedder(self.options.embedder)


def _unknown_model(requested: str | None, problem: str, served: list[str]) -> RequestFailed:
    advice = "To accept other names, start the server with --alias NAME=MODEL or --any-model"
    names = ", ".join(served)
    return RequestFailed("unknown_model", f"The model {str(requested)[:80]!r} {problem}. Served: {names}. {advice}")


class Metrics:
    """Prometheus metrics of one process. With several workers, each reports the metrics of all."""

    def __init__(self) -> None:
        self._client = require("prometheus_client", extra="server")
        self.registry = self._client.CollectorRegistry()
        options: JsonObject = {"registry": self.registry}
        counter, gauge, histogram = self._client.Counter, self._client.Gauge, self._client.Histogram
        labels = ["route", "dialect"]
        self.requests = counter("resift_http_requests", "Completed requests.", [*labels, "status"], **options)
        self.seconds = histogram("resift_http_request_seconds", "Response time.", labels, buckets=_BUCKETS_S, **options)
        self.pairs = counter("resift_pairs", "Query-document pairs admitted.", ["dialect"], **options)
        self.refusals = counter("resift_refusals", "Requests rejected because of load.", **options)
        self.hangups = counter("resift_hangups", "Requests whose client disconnected.", **options)
        options["multiprocess_mode"] = "livesum"
        self.in_flight = gauge("resift_pairs_in_flight", "Pairs in progress.", **options)
        self.waiting = gauge("resift_pairs_waiting", "Pairs waiting for admission.", **options)
        self.ready = gauge("resift_ready", "Number of ready workers.", **options)
        self.sink = PrometheusSink(self.registry)

    def observe(self, request: Request, elapsed_s: float) -> None:
        """Count a finished request."""
        labels = request.route, request.dialect
        self.requests.labels(*labels, str(request.status)).inc()
        self.seconds.labels(*labels).observe(elapsed_s)
        if request.pairs:
            self.pairs.labels(request.dialect).inc(request.pairs)
        if request.status == 499:
            self.hangups.inc()

    def text(self, server: ServerState) -> bytes:
        """Return the metrics in the Prometheus text format."""
        self.in_flight.set(server.admission.in_flight)
        self.waiting.set(server.admission.waiting)
        self.ready.set(int(server.phase == "ready"))
        registry = self.registry
        if MULTIPROCESS_VARIABLE in os.environ:
            registry = self._client.CollectorRegistry()
            require("prometheus_client.multiprocess", extra="server").MultiProcessCollector(registry)
        text: bytes = self._client.generate_latest(registry)
        return text
