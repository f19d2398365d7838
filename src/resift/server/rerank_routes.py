"""Rerank requests in every dialect."""

from __future__ import annotations

from resift.server.dialects import ROUTES, ServedDialect
from resift.server.endpoint import Call, Endpoint, Reply
from resift.server.error_forms import error_form_at
from resift.server.openapi import Operation
from resift.server.rerank_work import rerank
from resift.server.schema import Schema, checked, either
from resift.server.serving import Serving


def rerank_operations(serving: Serving) -> list[Operation]:
    """Return the operations of this file."""
    return [_rerank_operation(serving, path) for path in ROUTES]


def request_schema(serving: Serving, dialect: ServedDialect) -> Schema:
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
        request = checked(body, schemas[dialect.name])
        answer = await call.unless_gone(rerank(call, dialect, request))
        return Reply(dialect.form(answer, dialect.rows(answer)))

    return Operation(
        path=path,
        method="POST",
        summary=f"Rerank documents ({' or '.join(schemas)})",
        endpoint=Endpoint(serving, path, run, errors=error_form_at(path)),
        request=either(*schemas.values()) if len(schemas) > 1 else next(iter(schemas.values())),
        answer=either(*(dialect.answer for dialect in dialects)) if len(dialects) > 1 else dialects[0].answer,
        errors=tuple(
            {id(form): form for form in (error_form_at(path), *(one.errors for one in dialects))}.values()
        ),
    )
