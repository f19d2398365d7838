"""Links in texts: taken out as keys, replaced by their words, and resolved to articles at the end."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_FENCED = re.compile(r"^ {0,3}(```|~~~).*?^ {0,3}\1", re.MULTILINE | re.DOTALL)
_WIKI = re.compile(r"\[\[([^\[\]|\n]{1,300})(?:\|([^\[\]\n]{0,300}))?\]\]")
_IMAGE = re.compile(r"!\[[^\[\]\n]{0,500}\]\([^()\n]{0,2000}\)")
_INLINE = re.compile(r"\[([^\[\]\n]{1,500})\]\(\s*<?([^()<>\s]{1,2000})>?(?:\s+\"[^\"\n]{0,300}\")?\s*\)")
_FILE_SUFFIX = re.compile(r"\.(?:md|markdown|html?|xhtml|txt)$", re.IGNORECASE)
_SILENT = frozenset({"nav", "footer", "aside", "script", "style", "template"})


class Linked(NamedTuple):
    """A text without link marks, and what it linked to: each target as its keys, best first."""

    text: str
    targets: tuple[tuple[str, ...], ...]


def fold(title: str) -> str:
    """Return a title as links spell it: case, underscores and spaces do not count."""
    plain = unicodedata.normalize("NFKC", title).casefold().replace("_", " ")
    return " ".join(plain.split())


def title_key(title: str) -> str:
    """Return the key by which a title is looked up."""
    return f"title:{fold(title)}"


def path_key(path: str) -> str:
    """Return the key by which a file is looked up, relative to the root of the source."""
    return f"path:{path}"


def without_links(text: str, *, source: str) -> Linked:
    """Take wiki-links and Markdown links out of a text of the file `source`; their words stay."""
    prose = _FENCED.sub("", text)
    targets = [_wiki_keys(match[1]) for match in _WIKI.finditer(prose)]
    targets += [
        keys for match in _INLINE.finditer(_IMAGE.sub("", prose)) if (keys := href_keys(match[2], source))
    ]
    plain = _WIKI.sub(lambda match: match[2] or match[1].partition("#")[0] or match[1], text)
    plain = _INLINE.sub(lambda match: match[1], _IMAGE.sub("", plain))
    return Linked(plain, tuple(filter(None, targets)))


def href_keys(href: str, source: str) -> tuple[str, ...]:
    """Return the keys of an address: the file it leads to, else the title its last part spells."""
    try:
        parts = urlsplit(href)
    except ValueError:
        return ()
    if parts.scheme not in ("", "http", "https") or not parts.path:
        return ()
    path = unquote(parts.path)
    last = _FILE_SUFFIX.sub("", posixpath.basename(path.rstrip("/")))
    keys = [title_key(last), title_key(last.replace("-", " "))] if last else []
    if not parts.netloc:
        here = posixpath.dirname(source)
        keys.insert(0, path_key(posixpath.normpath(posixpath.join(here, path)).lstrip("/")))
    return tuple(dict.fromkeys(keys))


def html_targets(text: str, *, source: str) -> tuple[tuple[str, ...], ...]:
    """Return the targets of a page's links, those in navigation and footers left out."""
    page = _Hrefs()
    page.feed(text)
    page.close()
    return tuple(keys for href in page.found if (keys := href_keys(href, source)))


def aliases_of(id: str, title: str, path: str = "") -> tuple[str, ...]:
    """Return the keys by which an article can be meant, the surest first."""
    stem = _FILE_SUFFIX.sub("", posixpath.basename(path))
    own = [f"id:{id}", title_key(title)]
    if path:
        own += [path_key(path), path_key(_FILE_SUFFIX.sub("", path)), title_key(stem)]
        own.append(title_key(stem.replace("-", " ")))
    return tuple(dict.fromkeys(own))


class LinkResolver:
    """Remembers who is called what and who mentions whom; where names clash, the first article has it."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[int, str]] = {}
        self._mentions: dict[str, Counter[tuple[str, ...]]] = {}

    def add(self, id: str, aliases: Iterable[str], targets: Iterable[tuple[str, ...]]) -> None:
        """Add one article with its names and what it links to."""
        for weakness, key in enumerate(aliases):
            held = self._owners.get(key)
            # A title of its own beats a file name that happens to spell the same.
            if held is None or weakness < held[0]:
                self._owners[key] = (weakness, id)
        counted = Counter(targets)
        if counted:
            self._mentions[id] = counted

    def links(self) -> dict[tuple[str, str], int]:
        """Return (from, to) -> how often, without links to nowhere and to oneself."""
        found: Counter[tuple[str, str]] = Counter()
        for id, targets in self._mentions.items():
            for keys, times in targets.items():
                owner = self._owner(keys, self._owners)
                if owner is not None and owner != id:
                    found[id, owner] += times
        return dict(sorted(found.items()))

    @staticmethod
    def _owner(keys: tuple[str, ...], owners: Mapping[str, tuple[int, str]]) -> str | None:
        return next((owners[key][1] for key in keys if key in owners), None)


def _wiki_keys(target: str) -> tuple[str, ...]:
    name = target.partition("#")[0].strip().lstrip(":")
    return (title_key(name), f"id:{name}") if name else ()


class _Hrefs(HTMLParser):
    """Collects the addresses of a page's own links."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._silent: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the address of a link that is content."""
        if tag in _SILENT:
            self._silent.append(tag)
        elif tag == "a" and not self._silent:
            self.found += [value for name, value in attrs if name == "href" and value]

    def handle_endtag(self, tag: str) -> None:
        """Leave an element that is no content, and what was left open inside it."""
        if tag in self._silent:
            del self._silent[self._silent.index(tag) :]
