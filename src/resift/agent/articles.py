"""Files to articles: a title, passages under their headings, and what it links to."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from resift.agent.links import aliases_of, html_targets, title_key, without_links
from resift.errors import DataFormatError, ResiftError
from resift.ingest.chunking import ChunkSize, chunks
from resift.ingest.markup import front_matter, html_sections, markdown_sections
from resift.ingest.readers import HTML, JSONL, MARKDOWN, TEXT
from resift.ingest.sections import SEPARATOR, Section
from resift.ingest.sources import Source, open_source
from resift.ingest.tables import read_jsonl
from resift.ingest.walking import Found, find_files
from resift.ingest.worker import FileReader

LINKED = MARKDOWN | HTML | JSONL | TEXT
"""Kinds of files whose links are read."""

_WIKI_HEADING = re.compile(r"^(={2,6})(?!=)([^=\n]{1,300})\1[ \t]{0,20}$", re.MULTILINE)

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of an article that is searched and cited as one."""

    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class Article:
    """One article as its file has it."""

    id: str
    title: str
    source: str
    passages: tuple[Passage, ...]
    aliases: tuple[str, ...]
    targets: tuple[tuple[str, ...], ...]


def find_sources(source: Path, *, target: Path) -> tuple[Path, Found]:
    """Return the root and what is to be read of a folder or a single file; `target` is never read."""
    found = find_files([source], index=target)
    if not found.files:
        reasons = ", ".join(dict.fromkeys(one.reason for one in found.skipped))
        raise DataFormatError(
            f"No file here can be read{f' ({reasons})' if reasons else ''}.", file=str(source)
        )
    return (source if source.is_dir() else source.parent), found


async def read_articles(
    root: Path, files: Sequence[Path], *, size: ChunkSize, failed: Report, incomplete: Report
) -> AsyncGenerator[Article, None]:
    """Yield the articles of all files, by the readers of `resift index`.

    `failed` is called with each file or row that cannot be read, `incomplete` with what a file has besides
    text, such as scanned pages; the rest is read.
    """
    reader = FileReader()
    try:
        for path in files:
            name = path.relative_to(root).as_posix()
            try:
                if path.suffix.lower() in LINKED:
                    for article in _linked_file(path, name, size, failed):
                        yield article
                else:
                    for article in await _other_file(
                        reader, path, name, size, failed=failed, incomplete=incomplete
                    ):
                        yield article
            except (ResiftError, OSError) as exc:
                failed(str(exc))
    finally:
        await reader.close()


async def _other_file(
    reader: FileReader, path: Path, name: str, size: ChunkSize, *, failed: Report, incomplete: Report
) -> list[Article]:
    """Return the articles of a file without links: one for each row with an id, one for the rest."""
    rows: list[Article] = []
    sections: list[Section] = []
    title = ""
    async with aclosing(reader.sections(path, name=name)) as found:
        async for section in found:
            if section.problem:
                failed(f"{name}: {section.problem}")
            if section.flag:
                incomplete(f"{name}: {section.flag}")
            if section.id is not None:
                rows.append(_from_row(section, name, size))
            elif section.text.strip():
                sections.append(section)
                title = title or str(section.metadata.get("title") or "")
    if not sections:
        if not rows:
            incomplete(f"{name}: no text in it")
        return rows
    title = title or path.stem.replace("-", " ").replace("_", " ").strip() or path.name
    whole = Article(name, title, name, _passages(title, sections, size), aliases_of(name, title, name), ())
    return [whole, *rows]


def _linked_file(path: Path, name: str, size: ChunkSize, failed: Report) -> Iterator[Article]:
    suffix = path.suffix.lower()
    source = open_source(path, name=name)
    with source.file:
        if suffix in JSONL:
            yield from _from_rows(source, size, failed)
            return
        text = source.text(declares=suffix in HTML).text
    sections, targets = _html(text, name) if suffix in HTML else _markdown(text, name)
    title = _title(text, sections, path)
    aliases = aliases_of(name, title, name)
    yield Article(name, title, name, _passages(title, sections, size), aliases, targets)


def _from_rows(source: Source, size: ChunkSize, failed: Report) -> Iterator[Article]:
    for section in read_jsonl(source):
        if section.problem:
            failed(f"{source.name}: {section.problem}")
        else:
            yield _from_row(section, source.name, size)


def _markdown(text: str, name: str) -> tuple[list[Section], tuple[tuple[str, ...], ...]]:
    linked = without_links(text, source=name)
    return list(markdown_sections(linked.text)), linked.targets


def _html(text: str, name: str) -> tuple[list[Section], tuple[tuple[str, ...], ...]]:
    return list(html_sections(text)), html_targets(text, source=name)


def _title(text: str, sections: Sequence[Section], path: Path) -> str:
    title, _ = front_matter(text)
    if title:
        return title
    for section in sections:
        if section.context:
            return section.context.partition(SEPARATOR)[0]
    return path.stem.replace("-", " ").replace("_", " ").strip() or path.name


def _from_row(row: Section, name: str, size: ChunkSize) -> Article:
    extra = row.metadata
    title = str(extra.get("title") or row.id or f"{name}, line {extra.get('line', 0)}").strip()
    text = row.text if row.text != title else ""
    linked = without_links(_WIKI_HEADING.sub(lambda found: f"## {found[2].strip()}", text), source=name)
    sections = [*markdown_sections(linked.text), *_listed_sections(extra.get("sections"))]
    id = row.id or title
    targets = (*linked.targets, *_listed_links(extra.get("links")))
    return Article(id, title, name, _passages(title, sections, size), aliases_of(id, title), targets)


def _listed_sections(given: object) -> Iterator[Section]:
    for one in given if isinstance(given, list) else ():
        if isinstance(one, Mapping) and isinstance(one.get("text"), str) and one["text"].strip():
            heading = str(one.get("heading") or one.get("title") or "")
            yield Section(without_links(one["text"], source="").text, context=heading)


def _listed_links(given: object) -> Iterator[tuple[str, ...]]:
    for one in given if isinstance(given, list) else ():
        name = one.get("title") or one.get("id") if isinstance(one, Mapping) else one
        if isinstance(name, (str, int)) and str(name).strip():
            yield (title_key(str(name)), f"id:{str(name).strip()}")


def _passages(title: str, sections: Sequence[Section], size: ChunkSize) -> tuple[Passage, ...]:
    found: list[Passage] = []
    for section in sections:
        path = section.context or title
        heading = path if path.partition(SEPARATOR)[0] == title else f"{title}{SEPARATOR}{path}"
        found += [Passage(heading, text) for text in chunks(section.text, size)]
    # An article without a text can still be linked to, and is found by its title.
    return tuple(found) or (Passage(title, title),)
