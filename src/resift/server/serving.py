"""What a running server holds: models, stores, keys, counts, and whether it is ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal

from resift.errors import InputError, ModelLoadError
from resift.models.embedder import Embedder as LocalEmbedder
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.scored_search import scorer_of
from resift.protocols import Embedder, OfModel, Scorer
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.server.admission import Admission
from resift.server.failures import RequestFailed
from resift.server.keys import Keys
from resift.server.metrics import Metrics
from resift.server.options import ServerOptions

State = Literal["starting", "ready", "draining", "closed", "failed"]

TURNS = 4
"""Bodies that are parsed in one turn of the event loop: a millisecond or two of work."""

log = logging.getLogger("resift.server")


class Serving:
    """The shared parts behind all routes. Parts given to it are used; the others are made when it starts."""

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
        self.turns = asyncio.Semaphore(TURNS)
        self.keys = Keys(file=options.key_file, env=options.key_env, given=options.keys)
        self.state: State = "starting"
        self.failure = ""
        self.on_failure: Callable[[], None] = lambda: None
        self.accept_when_ready = False
        self.pipeline = pipeline
        self.embedder = embedder
        self.scorers: dict[str, Scorer] = {} if scorer is None else {options.model: scorer}
        self._loading: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether requests are answered; an open breaker does not change it."""
        return self.state == "ready"

    def check_open(self) -> None:
        """Refuse work while the models are being loaded and when the server is about to end."""
        if self.state in ("starting", "failed"):
            raise RequestFailed("unavailable", self.failure or "The server is starting", retry_after_s=1)
        if self.state == "closed":
            raise RequestFailed("unavailable", "The server is shutting down", retry_after_s=1)

    def start(self) -> None:
        """Begin to load what is needed, beside the event loop, so that health can be asked meanwhile."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._load())

    async def before_accepting(self) -> None:
        """Wait for the models where other workers answer meanwhile, so that nobody meets a starting one."""
        self.start()
        if self.accept_when_ready:
            await self.loaded()

    async def loaded(self) -> None:
        """Wait until it is ready or cannot be: `failure` says why."""
        if self._loading is not None:
            await asyncio.wait([self._loading])

    async def close(self) -> None:
        """Stop loading and close what can be closed."""
        if self._loading is not None:
            self._loading.cancel()
        self.state = "closed"
        if self.pipeline is not None:
            await self.pipeline.close()

    def model(self, asked: str | None) -> tuple[str, Scorer]:
        """Return the name and the scorer of the model that a request names, or of the default."""
        name = self.options.model if not asked else self.options.aliases.get(asked, asked)
        if name in self.scorers:
            return asked or name, self.scorers[name]
        if self.options.any_model:
            return asked or name, self.scorers[self.options.model]
        served = ", ".join(self.model_names())
        raise RequestFailed(
            "unknown_model",
            f"The model {str(asked)[:80]!r} is not served here. Served: {served}. "
            "The server takes other names with --alias NAME=MODEL, or any name with --any-model",
        )

    @property
    def embedder_name(self) -> str:
        """What the embedding model is called."""
        own = self.embedder.model_name if isinstance(self.embedder, OfModel) else ""
        return own or self.options.embedder or "embedder"

    def embedder_for(self, asked: str | None) -> Embedder:
        """Return the embedder that a request names, or the only one."""
        if self.embedder is None:
            raise RequestFailed("not_found", "No embedding model is served here; start with --embedder MODEL")
        name = self.options.aliases.get(asked, asked) if asked else self.embedder_name
        if name == self.embedder_name or self.options.any_model:
            return self.embedder
        raise RequestFailed(
            "unknown_model",
            f"The model {str(asked)[:80]!r} embeds nothing here. Served: {self.embedder_name}. "
            "The server takes other names with --alias NAME=MODEL, or any name with --any-model",
        )

    def model_names(self) -> list[str]:
        """Return the names that a request may use: served models, then aliases."""
        aliases = [alias for alias, model in self.options.aliases.items() if model in self.scorers]
        return [*self.scorers, *aliases]

    async def _load(self) -> None:
        try:
            await asyncio.to_thread(self._load_all)
        except Exception as exc:
            self.failure = f"The server cannot start: {exc}"
            self.state = "failed"
            log.error("%s", self.failure)
            self.on_failure()
            return
        if self.state == "starting":
            self.state = "ready"
            log.info("ready: %s", ", ".join(self.model_names()))

    def _load_all(self) -> None:
        for file in filter(None, (*self.options.stores, self.options.pack)):
            # They are opened at the first question, which is too late to hear of a misspelt name.
            if not file.exists():
                raise InputError(
                    f"{file}: no such file. Correct the path, or make it: resift index, graph build."
                )
        if self.options.pipeline is not None and self.pipeline is None:
            from resift.config import pipeline_from_yaml

            self.pipeline = pipeline_from_yaml(self.options.pipeline, sink=self.metrics.sink)
        # Perhaps tiers, with a hosted provider first.
        behind = None if self.pipeline is None else scorer_of(self.pipeline)
        if behind is not None:
            self.scorers.setdefault(self.options.model, behind)
        for name in (self.options.model, *self.options.more_models):
            if name not in self.scorers:
                self.scorers[name] = _cross_encoder(name)
        if self.embedder is None and self.options.embedder is not None:
            self.embedder = LocalEmbedder(self.options.embedder)


def _cross_encoder(name: str) -> Scorer:
    scorer = CrossEncoderReranker(name)
    if scorer.failure:
        raise ModelLoadError(scorer.failure)
    return scorer
