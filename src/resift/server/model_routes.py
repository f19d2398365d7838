"""Which models there are: OpenAI's list and TEI's `/info`."""

from __future__ import annotations

import time

from resift import __version__
from resift.rerankers.cross_encoder import CrossEncoderReranker
from resift.server.endpoint import Call, Reply
from resift.server.error_forms import OPENAI, TEI
from resift.server.openapi import Operation
from resift.server.schema import array, mapping, record, text, whole
from resift.server.serving import Serving
from resift.types import JsonObject

_MODEL = record(
    {"id": text(), "object": text(), "created": whole(), "owned_by": text(), "task": text(), "root": text()},
    required=("id", "object", "created", "owned_by"),
    nullable=False,
)


def model_operations(serving: Serving) -> list[Operation]:
    """Return the operations of this file."""
    started = int(time.time())

    async def models(call: Call) -> Reply:
        serving.check_open()
        return Reply({"object": "list", "data": _models(serving, started)})

    async def info(call: Call) -> Reply:
        serving.check_open()
        return Reply(_info(serving))

    listed = record({"object": text(), "data": array(_MODEL)}, required=("object", "data"), nullable=False)
    return [
        Operation(
            serving,
            "GET /v1/models",
            "Models and their aliases (OpenAI)",
            models,
            answer=listed,
            errors=(OPENAI,),
        ),
        *(
            Operation(
                serving,
                f"GET {path}",
                "The reranker and the limits (TEI)",
                info,
                answer=mapping(),
                errors=(TEI,),
            )
            for path in ("/info", "/tei/info")
        ),
    ]


def _models(serving: Serving, started: int) -> list[JsonObject]:
    def row(name: str, task: str, root: str) -> JsonObject:
        fixed = {"object": "model", "created": started, "owned_by": "resift"}
        return {"id": name, **fixed, "task": task, "root": root}

    rows = [row(name, "rerank", name) for name in serving.scorers]
    if serving.embedder is not None:
        rows.append(row(serving.embedder_name, "embed", serving.embedder_name))
    for alias, model in serving.options.aliases.items():
        rows.append(row(alias, "rerank" if model in serving.scorers else "embed", model))
    return rows


def _info(serving: Serving) -> JsonObject:
    limits = serving.options.limits
    scorer = serving.scorers[serving.options.model]
    model = scorer.loaded_model if isinstance(scorer, CrossEncoderReranker) else None
    max_length = 512 if model is None else model.spec.max_length
    return {
        "model_id": serving.options.model,
        "model_sha": None if model is None else model.spec.revision,
        "model_dtype": "int8",
        "served_model_name": serving.options.model,
        "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
        "max_concurrent_requests": limits.max_requests,
        "max_input_length": max_length,
        "max_batch_tokens": limits.max_pairs * max_length,
        "max_batch_requests": None,
        "max_client_batch_size": limits.max_documents,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": __version__,
        "sha": None,
        "docker_label": None,
    }
