"""The page at `/docs`: the API's description as readable HTML that loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from resift._internal.markup import document, html, joined
from resift.types import JsonMapping

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1.5rem; }
h1 { margin-bottom: 0; }
code, pre { font: 0.9em/1.5 ui-monospace, monospace; }
details { border: 1px solid var(--line); border-radius: 6px; margin: 0.5rem 0; }
details > div { padding: 0 1rem 1rem; overflow-x: auto; }
summary { cursor: pointer; padding: 0.5rem 1rem; overflow-wrap: anywhere; }
summary b { display: inline-block; min-width: 3.5rem; }
summary span { opacity: 0.8; }
h3 { font-size: 1rem; margin: 1rem 0 0.25rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-top: 1px solid var(--line); padding: 0.25rem 0.5rem; text-align: left; vertical-align: top; }
td { overflow-wrap: anywhere; }
ul { list-style: none; padding: 0; }
"""
_MAX_DEPTH = 3
"""Objects inside objects that get rows of their own; deeper ones are named by their type."""


def api_page(description: JsonMapping) -> str:
    """Return the page of an OpenAPI document, one section per route."""
    info = description["info"]
    routes = [
        _route(method, path, operation)
        for path, methods in description["paths"].items()
        if not path.startswith("/playground/")
        for method, operation in methods.items()
    ]
    body = html(
        "<h1>{} {}</h1><p>{}</p><p>The same as data: <a href='openapi.json'><code>/openapi.json</code></a>. "
        "Where the server has keys, send <code>Authorization: Bearer KEY</code>.</p>{}",
        info["title"],
        info["version"],
        info["description"],
        joined(routes, "\n"),
    )
    return document(f"{info['title']} API", body, style=_STYLE, script="")


def _route(method: str, path: str, operation: JsonMapping) -> Markup:
    parts: list[Markup] = []
    if not operation["security"]:
        parts.append(html("<p>Needs no key.</p>"))
    if operation.get("parameters"):
        rows = [
            (one["name"], _type(one["schema"]), one.get("description", "")) for one in operation["parameters"]
        ]
        parts.append(html("<h3>Headers and parameters</h3>{}", _table(rows)))
    if "requestBody" in operation:
        parts.append(html("<h3>Request</h3>{}", _content(operation["requestBody"])))
    for code, response in operation["responses"].items():
        if code == "200":
            parts.append(html("<h3>Answer</h3>{}", _content(response)))
    others = [(code, one["description"]) for code, one in operation["responses"].items() if code != "200"]
    parts.append(html("<h3>Other statuses</h3>{}", _table(others)))
    return html(
        "<details><summary><b>{}</b> <code>{}</code> <span>{}</span></summary><div>{}</div></details>",
        method.upper(),
        path,
        operation["summary"],
        joined(parts),
    )


def _content(message: JsonMapping) -> Markup:
    [(media_type, content)] = message["content"].items()
    schema = content["schema"]
    forms = schema.get("anyOf", [schema])
    shown = [
        _table(list(_fields(form))) if form.get("properties") else html("<p>{}</p>", _type(form))
        for form in forms
    ]
    return html("<p><code>{}</code></p>{}", media_type, html("<p>or</p>").join(shown))


def _fields(schema: JsonMapping, prefix: str = "", depth: int = 1) -> Iterator[tuple[str, str, str]]:
    required = schema.get("required", ())
    for name, given in schema["properties"].items():
        field = _without_null(given)
        yield f"{prefix}{name}", _type(field), "required" if name in required else ""
        inner = _without_null(field["items"]) if field.get("type") == "array" else field
        if inner.get("properties") and depth < _MAX_DEPTH:
            mark = "[]." if field.get("type") == "array" else "."
            yield from _fields(inner, f"{prefix}{name}{mark}", depth + 1)


def _without_null(schema: JsonMapping) -> JsonMapping:
    forms = [form for form in schema.get("anyOf", ()) if form.get("type") != "null"]
    return forms[0] if len(forms) == 1 else schema


def _type(schema: JsonMapping) -> str:
    """Return a schema in words, such as "array of string, 1 to 10000 items"."""
    if "anyOf" in schema:
        forms = [_type(form) for form in schema["anyOf"] if form.get("type") != "null"]
        return " or ".join(dict.fromkeys(forms))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"array of {_type(schema['items'])}{_bounds(schema, 'minItems', 'maxItems', ' items')}"
    if kind == "string":
        return f"string{_bounds(schema, 'minLength', 'maxLength', ' characters')}"
    return f"{kind}{_bounds(schema, 'minimum', 'maximum', '')}"


def _bounds(schema: JsonMapping, low: str, high: str, unit: str) -> str:
    least, most = schema.get(low), schema.get(high)
    if most is not None:
        return f", {least or 0} to {most}{unit}"
    return f", {least} or more{unit}" if least else ""


def _table(rows: Sequence[tuple[str, ...]]) -> Markup:
    lines = (
        html("<tr><td><code>{}</code></td>{}</tr>", name, joined(html("<td>{}</td>", cell) for cell in cells))
        for name, *cells in rows
    )
    return html("<table>{}</table>", joined(lines))
