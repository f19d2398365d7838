"""The one door to markup: whatever goes into a template is escaped, and a page runs only what it brings.

`html("<b>{}</b>", text)` escapes `text`, whoever wrote it; markup made here passes as it is. A page's
policy names the digests of its own style and script, so that nothing else runs even if a hole were found.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable

from markupsafe import Markup, escape

# Control characters, lone surrogates and non-characters: no XML parser takes them, some cannot be written.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def html(template: str, *values: object, **named: object) -> Markup:
    """Return the template with the values in it, escaped; format specifications work as in str.format."""
    return Markup(template).format(*map(_clean, values), **{key: _clean(one) for key, one in named.items()})  # noqa: S704 - templates are ours, values are escaped


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Return the parts one after another; those that are no markup are escaped."""
    return escape(between).join(escape(_clean(part)) for part in parts)


def document(title: str, body: Markup, *, style: str, script: str) -> str:
    """Return a self-contained page that loads nothing and runs nothing but this style and this script."""
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = html(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="{}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n<title>{}</title>\n',
        Markup(policy),  # noqa: S704 - made of digests; its quotes must stay quotes for those who read the file
        title,
    )
    # Style and script are data of this package; escaping would change what their digests are of.
    styled = f"{head}<style>{style}</style>\n</head>\n<body>\n{body}\n"
    return f"{styled}<script>{script}</script>\n</body>\n</html>\n"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _clean(value: object) -> object:
    """Return the value without characters that no XML parser takes; markup was cleaned when it was made."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _FORBIDDEN.sub("\ufffd", value)
    return value
