"""Rerank requests in every dialect."""

from __future__ import annotations

from resift.server.dialects import ROUTES, ServedDialect
from resift.server.endpoint import Call, Reply
from resift.server.error_forms import error_form_at
from resift.server.openapi import Operation
from resift.server.rerank_work import rerank
from resift.server.schema import RequestSchema, either
from resift.server.serving import Serving


def rerank_operations(serving: Serving) -> list[Operation]:
    """Return the operations of this file."""
    return [_rerank_operation(serving, path) for path in ROUTES]


def request_schema(serving: Serving, dialect: ServedDialect) -> RequestSchema:
    """Return the schema of a dialect's requests under this server's limits."""
    limits = serving.options.limits
    return dialect.request(
        most_documents=limits.max_documents,
        most_chars=limits.max_text_chars,
        strict=serving.options.strict,
        least_cutoff=0 if serving.options.zero_means_all else 1,
    )


def _rerank_operation(serving: Serving, path: str) -> Operation:
    choose, dialects = ROUTES[path]
    schemas = {dialect.name: request_schema(serving, dialect) for dialect in dialects}

    async def run(call: Call) -> Reply:
        body = await call.json()
        dialect = choose(body)
        call.errors = dialect.errors
        call.info.dialect = dialect.name
        request = schemas[dialect.name].read(body)
        answer = await call.unless_gone(rerank(call, dialect, request))
        return Reply(dialect.answer.body(answer, dialect.rows(answer)))

    forms = [error_form_at(path), *(dialect.errors for dialect in dialects)]
    return Operation(
        serving,
        f"POST {path}",
        f"Rerank documents ({' or '.join(schemas)})",
        run,
        request=either(*schemas.values()),
        answer=either(*(dialect.answer.schema for dialect in dialects)),
        errors=[form for at, form in enumerate(forms) if form not in forms[:at]],
    )
