"""HTML and SVG from templates: every value is escaped, and a page runs only its own style and script.

`html("<b>{}</b>", text)` escapes `text`; `Markup` passes unchanged. The content security policy of a page
contains the digests of its style and script, so nothing else runs even if some text were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable

from markupsafe import Markup, escape

# Control characters, lone surrogates and non-characters: XML parsers reject them, some cannot be encoded.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def html(template: str, *values: object, **named: object) -> Markup:
    """Return the template with the escaped values; format specifications work as in `str.format`."""
    cleaned = {key: _clean(value) for key, value in named.items()}
    return Markup(template).format(*map(_clean, values), **cleaned)  # noqa: S704 - values are escaped


def join_markup(parts: Iterable[object], separator: str = "") -> Markup:
    """Join the parts; those that are not Markup are escaped."""
    return escape(separator).join(escape(_clean(part)) for part in parts)


def html_page(title: str, body: Markup, *, style: str, script: str) -> str:
    """Return a self-contained page that loads nothing and runs only this style and this script."""
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = html(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="{}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n<title>{}</title>\n',
        Markup(policy),  # noqa: S704 - contains digests only, and its quotes must not be escaped
        title,
    )
    # Style and script are constants of Resift; escaping would change their digests.
    styled = f"{head}<style>{style}</style>\n</head>\n<body>\n{body}\n"
    return f"{styled}<script>{script}</script>\n</body>\n</html>\n"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _clean(value: object) -> object:
    """Replace characters that XML parsers reject; Markup was cleaned when it was made."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _FORBIDDEN.sub("\ufffd", value)
    return value
