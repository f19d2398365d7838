"""Read articles from files: a title, passages with their headings, and links to other articles.

A link is stored as the keys that it could match, until `resolve_links` knows all articles.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from resift.errors import DataFormatError, ResiftError, require
from resift.ingest.chunking import SEPARATOR, ChunkSize, Section, chunks
from resift.ingest.data_files import read_jsonl
from resift.ingest.documents import front_matter, html_sections, markdown_sections
from resift.ingest.sources import HTML, JSONL, MARKDOWN, TEXT, open_source
from resift.ingest.walking import FoundFiles, find_files
from resift.ingest.worker import FileReader

LINKED_KINDS = MARKDOWN | HTML | JSONL | TEXT  # suffixes of files whose links are read

_FENCED = re.compile(r"^ {0,3}(```|~~~).*?^ {0,3}\1", re.MULTILINE | re.DOTALL)
_WIKI_HEADING = re.compile(r"^(={2,6})(?!=)([^=\n]{1,300})\1[ \t]{0,20}$", re.MULTILINE)
_WIKI_LINK = re.compile(r"\[\[([^\[\]|\n]{1,300})(?:\|([^\[\]\n]{0,300}))?\]\]")
_IMAGE = re.compile(r"!\[[^\[\]\n]{0,500}\]\([^()\n]{0,2000}\)")
_INLINE_LINK = re.compile(r"\[([^\[\]\n]{1,500})\]\(\s*<?([^()<>\s]{1,2000})>?(?:\s+\"[^\"\n]{0,300}\")?\s*\)")
_FILE_SUFFIX = re.compile(r"\.(?:md|markdown|html?|xhtml|txt)$", re.IGNORECASE)
_BOILERPLATE_TAGS = ["nav", "footer", "aside", "script", "style", "template"]

Report = Callable[[str], None]
Targets = tuple[tuple[str, ...], ...]  # for each link, the keys that it could match, best first


class ArticlePassage(NamedTuple):
    """A chunk of an article: the unit of search and citation."""

    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class Article:
    """An article as read from its file."""

    id: str
    title: str
    source: str
    passages: tuple[ArticlePassage, ...]
    aliases: tuple[str, ...]
    targets: Targets


def find_sources(source: Path, *, target: Path) -> tuple[Path, FoundFiles]:
    """Return the root folder and the files to read for a folder or a single file, excluding `target`."""
    files = find_files([source], index=target)
    if not files.files:
        reasons = ", ".join(dict.fromkeys(skipped.reason for skipped in files.skipped))
        raise DataFormatError(f"No readable files{f' ({reasons})' if reasons else ''}.", file=source)
    return (source if source.is_dir() else source.parent), files


async def read_articles(
    root: Path, files: Sequence[Path], *, size: ChunkSize, failed: Report, incomplete: Report
) -> AsyncGenerator[Article, None]:
    """Yield the articles of all files, using the readers of `resift index`.

    `failed` is called for files and rows that cannot be read, and `incomplete` for parts without text.
    """
    reader = FileReader()
    try:
        for path in files:
            name = path.relative_to(root).as_posix()
            try:
                articles: Iterable[Article]
                if path.suffix.lower() in LINKED_KINDS:
                    articles = _read_linked_file(path, name, size, failed)
                else:
                    articles = await _read_other_file(reader, path, name, size, failed=failed, incomplete=incomplete)
                for article in articles:
                    yield article
            except (ResiftError, OSError) as exc:
                failed(str(exc))
    finally:
        await reader.close()


async def _read_other_file(
    reader: FileReader, path: Path, name: str, size: ChunkSize, *, failed: Report, incomplete: Report
) -> list[Article]:
    """Read a file without links: one article per row with an id, and one for all other text."""
    rows: list[Article] = []
    sections: list[Section] = []
    title = ""
    async with aclosing(reader.sections(path, name=name)) as stream:
        async for section in stream:
            if section.problem:
                failed(f"{name}: {section.problem}")
            if section.flag:
                incomplete(f"{name}: {section.flag}")
            if section.id is not None:
                rows.append(_article_from_row(section, name, size))
            elif section.text.strip():
                sections.append(section)
                title = title or str(section.metadata.get("title") or "")
    if not sections:
        if not rows:
            incomplete(f"{name}: contains no text")
        return rows
    title = title or _title_from_path(path)
    passages = _split_passages(title, sections, size)
    return [Article(name, title, name, passages, article_keys(name, title, name), ()), *rows]


def _read_linked_file(path: Path, name: str, size: ChunkSize, failed: Report) -> Iterator[Article]:
    suffix = path.suffix.lower()
    source = open_source(path, name=name)
    with source.file:
        if suffix in JSONL:
            for section in read_jsonl(source):
                if section.problem:
                    failed(f"{name}: {section.problem}")
                else:
                    yield _article_from_row(section, name, size)
            return
        text = source.text(declares=suffix in HTML).text
    if suffix in HTML:
        sections = html_sections(text)
        # Pages that are nested too deeply are read without their structure and therefore without links.
        targets = () if any(section.flag for section in sections) else html_links(text, source=name)
    else:
        text_without_links, targets = extract_links(text, source=name)
        sections = markdown_sections(text_without_links)
    heading = next((section.context for section in sections if section.context), "")
    title = front_matter(text)[0] or heading.partition(SEPARATOR)[0] or _title_from_path(path)
    yield Article(name, title, name, _split_passages(title, sections, size), article_keys(name, title, name), targets)


def _article_from_row(row: Section, name: str, size: ChunkSize) -> Article:
    extra = row.metadata
    title = str(extra.get("title") or row.id or f"{name}, line {extra.get('line', 0)}").strip()
    text = row.text if row.text != title else ""
    as_markdown = _WIKI_HEADING.sub(lambda heading: f"## {heading[2].strip()}", text)
    text_without_links, targets = extract_links(as_markdown, source=name)
    sections = markdown_sections(text_without_links)
    links = extra.get("links")
    for item in links if isinstance(links, list) else []:
        key = item.get("title") or item.get("id") if isinstance(item, Mapping) else item
        if isinstance(key, (str, int)) and str(key).strip():
            targets += ((title_key(str(key)), f"id:{str(key).strip()}"),)
    id = row.id or title
    return Article(id, title, name, _split_passages(title, sections, size), article_keys(id, title), targets)


def _title_from_path(path: Path) -> str:
    return path.stem.replace("-", " ").replace("_", " ").strip() or path.name


def _split_passages(title: str, sections: Sequence[Section], size: ChunkSize) -> tuple[ArticlePassage, ...]:
    passages: list[ArticlePassage] = []
    for section in sections:
        path = section.context or title
        heading = path if path.partition(SEPARATOR)[0] == title else f"{title}{SEPARATOR}{path}"
        passages += [ArticlePassage(heading, text) for text in chunks(section.text, size)]
    # An article without text can still be a link target, and its title is searched.
    return tuple(passages) or (ArticlePassage(title, title),)


def extract_links(text: str, *, source: str) -> tuple[str, Targets]:
    """Return a text of the file `source` with links replaced by their link text, and the targets of the links."""
    prose = _FENCED.sub("", text)
    names = [match[1].partition("#")[0].strip().lstrip(":") for match in _WIKI_LINK.finditer(prose)]
    targets: list[tuple[str, ...]] = [(title_key(name), f"id:{name}") for name in names if name]
    targets += [href_keys(match[2], source) for match in _INLINE_LINK.finditer(_IMAGE.sub("", prose))]
    plain = _WIKI_LINK.sub(lambda match: match[2] or match[1].partition("#")[0] or match[1], text)
    plain = _INLINE_LINK.sub(lambda match: match[1], _IMAGE.sub("", plain))
    return plain, tuple(filter(None, targets))


def html_links(text: str, *, source: str) -> Targets:
    """Return the targets of the links in a page, except those in navigation and footers."""
    page = require("selectolax.lexbor", extra="files").LexborHTMLParser(text)
    page.strip_tags(_BOILERPLATE_TAGS)
    hrefs = [node.attributes.get("href") or "" for node in page.css("a[href]")]
    return tuple(keys for href in hrefs if (keys := href_keys(href, source)))


def href_keys(href: str, source: str) -> tuple[str, ...]:
    """Return the keys of a URL in the file `source`: the linked file, and the last part of the path as a title."""
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
        keys.insert(0, f"path:{posixpath.normpath(posixpath.join(posixpath.dirname(source), path)).lstrip('/')}")
    return tuple(dict.fromkeys(keys))


def title_key(title: str) -> str:
    """Return the key of a title. Case, underscores and repeated spaces make no difference."""
    folded = unicodedata.normalize("NFKC", title).casefold().replace("_", " ")
    return f"title:{' '.join(folded.split())}"


def article_keys(id: str, title: str, path: str = "") -> tuple[str, ...]:
    """Return the keys that identify an article, most reliable first."""
    keys = [f"id:{id}", title_key(title)]
    if path:
        stem = _FILE_SUFFIX.sub("", posixpath.basename(path))
        keys += [f"path:{path}", f"path:{_FILE_SUFFIX.sub('', path)}"]
        keys += [title_key(stem), title_key(stem.replace("-", " "))]
    return tuple(dict.fromkeys(keys))


def resolve_links(articles: Iterable[Article]) -> dict[tuple[str, str], int]:
    """Return (from, to) -> number of mentions, without unknown targets and self-links."""
    owners: dict[str, tuple[int, str]] = {}
    articles = list(articles)
    for article in articles:
        for priority, key in enumerate(article.aliases):
            # The title of an article takes precedence over the file name of another one.
            if key not in owners or priority < owners[key][0]:
                owners[key] = (priority, article.id)
    links: Counter[tuple[str, str]] = Counter()
    for article in articles:
        for keys in article.targets:
            owner = next((owners[key][1] for key in keys if key in owners), None)
            if owner is not None and owner != article.id:
                links[article.id, owner] += 1
    return dict(sorted(links.items()))
