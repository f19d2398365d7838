"""The reference pages of the HTTP interface and of environment variables, for `tools.build_reference`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src" / "resift"

VARIABLES = {
    "Resift": {
        "RESIFT_HOME": "Folder of downloaded models and settings. Default: the folders of your system.",
        "RESIFT_MODELS_LOCK": "The lock file with pinned models. Default: `resift-models.lock` in the "
        "working folder if it exists, else in your configuration folder.",
        "RESIFT_NATIVE": "Forces the compiled code that runs the models: `avx512`, `avx2`, `i8mm`, `neon`, "
        "`portable`, or `0` for none. Default: the fastest that your CPU can run.",
        "RESIFT_CROSS_ENCODER_RERANKING_ENABLED": "`0`, `false`, `no` or `off`: no hosted rerankers.",
    },
    "Server": {"RESIFT_API_KEYS": "API keys of `resift serve`, separated by commas or line ends."},
    "Pipeline files": {
        "RESIFT_ALLOW_VARIABLES": "Names, separated by commas, of variables that pipeline files may use in "
        "addresses and as keys.",
        "RESIFT_ALLOW_KEY_FILES": "Files and folders, separated as in `PATH`, from which pipeline files may read keys.",
        "RESIFT_COLLECTION": "Set by `resift eval` while it runs: the index file of the collection, for "
        "pipeline files with `path: ${RESIFT_COLLECTION}`.",
    },
    "Hosted rerankers": {},
    "Hugging Face": {
        "HF_ENDPOINT": "A mirror of the hub, for `resift models add`.",
        "HF_HUB_OFFLINE": "`1` forbids downloads.",
        "HF_HOME": "Cache folder of the hub.",
    },
    "Terminal": {"NO_COLOR": "Any value switches colors off.", "COLUMNS": "Width of the output."},
}


def environment_page(note: str) -> str:
    """Return the page of environment variables."""
    from resift.rerankers.hosted.providers import PROVIDERS

    sections = {title: dict(rows) for title, rows in VARIABLES.items()}
    for name, provider in PROVIDERS.items():
        for variable in provider.key_env:
            known = sections["Hosted rerankers"].get(variable, "API key of ")
            sections["Hosted rerankers"][variable] = known + (", " if known[-1] == "`" else "") + f"`{name}`"
    lines = ["# Environment variables\n", note, "All of them are optional.\n"]
    for title, rows in sections.items():
        lines += [f"## {title}\n", "| variable | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {text if text.endswith('.') else text + '.'} |" for name, text in rows.items()]
        lines.append("")
    return "\n".join(lines)


def variables_in_source() -> set[str]:
    """Return the variables of Resift that the code mentions."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        found |= set(re.findall(r"\bRESIFT_[A-Z_]+[A-Z]\b", path.read_text(encoding="utf-8")))
    return found - {"RESIFT_INTERFACE"}  # a macro of the C files


def http_page(note: str) -> str:
    """Return every route of the server: request, answer and statuses."""
    description = openapi()
    schemas = description["components"]["schemas"]
    lines = ["# HTTP reference\n", note]
    lines.append(
        "A running server has the same at `/docs`, and as data at `/openapi.json`. If it has keys, send "
        "`Authorization: Bearer KEY`. How to run one: [Server](../guides/run/server.md).\n"
    )
    groups: dict[str, list[str]] = {}
    operations: dict[str, Mapping[str, Any]] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            if not path.startswith("/playground/"):
                key = repr(operation)  # routes that differ in their path only share a section
                groups.setdefault(key, []).append(f"`{method.upper()} {path}`")
                operations[key] = operation
    for key, routes in groups.items():
        operation = operations[key]
        lines.append(f"## {operation['summary']}\n\n{', '.join(routes)}\n")
        if not operation["security"]:
            lines.append("Needs no key.\n")
        if "requestBody" in operation:
            lines += ["**Request**\n", *_body(operation["requestBody"], schemas)]
        responses = dict(operation["responses"])
        lines += ["**Answer**\n", *_body(responses.pop("200"), schemas)]
        if responses:
            lines.append(f"Other statuses: {', '.join(responses)}.\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def openapi() -> Mapping[str, Any]:
    """Return the description that a server gives at `/openapi.json`."""
    from starlette.testclient import TestClient

    from resift.server import serve_app
    from resift.testing import OverlapScorer

    with TestClient(serve_app(scorer=OverlapScorer()), base_url="http://127.0.0.1") as client:
        answer: Mapping[str, Any] = client.get("/openapi.json").json()
    return answer


def _body(message: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    [(media_type, content)] = message["content"].items()
    forms = content["schema"].get("anyOf", [content["schema"]])
    if media_type != "application/json":
        yield f"`{media_type}`\n"
    for number, form in enumerate(forms):
        resolved = _resolve(form, schemas)
        if number:
            yield "or\n"
        fields = resolved.get("properties")
        if not fields:
            yield f"{_type(form, schemas)}\n"
            continue
        required = set(resolved.get("required", ()))
        yield "| field | type | |"
        yield "|---|---|---|"
        for name, schema in fields.items():
            about = " ".join(_resolve(schema, schemas).get("description", schema.get("description", "")).split())
            mark = "required. " if name in required else ""
            default = schema.get("default")
            shown = f" Default: `{default}`." if name not in required and default not in (None, "", [], {}) else ""
            yield f"| `{name}` | {_type(schema, schemas)} | {mark}{about}{shown} |".replace("  ", " ")
        yield ""


def _resolve(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" in schema:
        return _resolve(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    inner = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    return _resolve(inner[0], schemas) if len(inner) == 1 else schema


def _type(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int = 0) -> str:
    """Return a type in words: string, list of objects, and the fields of small objects."""
    if "$ref" in schema:
        schema = _resolve(schema, schemas)
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        kinds = [_type(each, schemas, depth) for each in schema["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    kind = schema.get("type", "any value")
    if isinstance(kind, list):
        return " or ".join(each for each in kind if each != "null")
    if kind == "array":
        items = schema.get("items") or {}
        return f"list of {_type(items, schemas, depth)}" if items else "list"
    if kind == "object" and schema.get("properties") and depth < 1:
        names = ", ".join(f"`{name}`" for name in schema["properties"])
        return f"object ({names})"
    return str(kind)
