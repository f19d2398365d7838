"""A file being read: its bytes, its name for messages, and the limits it must keep."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from resift._internal.atomic_files import O_BINARY, O_NOFOLLOW, O_NONBLOCK
from resift.errors import DataFormatError
from resift.ingest.decoding import SAMPLE_BYTES, Decoded, Encoding, decode, encoding_of, open_text
from resift.ingest.limits import DEFAULT_LIMITS, Limits


class Line(NamedTuple):
    """A line of a text file; `text` is None where it was longer than a line may be."""

    number: int
    text: str | None
    position: int


@dataclass(slots=True)
class Source:
    """An open file that readers share; `suffix` says what it is, `name` is what errors call it.

    `text_keys` are the fields to read of its records, None for all text fields.
    """

    file: BinaryIO
    name: str
    suffix: str
    size: int
    limits: Limits = DEFAULT_LIMITS
    text_keys: tuple[str, ...] | None = None

    @property
    def parseable(self) -> bool:
        """Whether it is small enough to be parsed as a whole."""
        return self.size <= self.limits.parsed_bytes

    def sample(self) -> bytes:
        """Return the beginning."""
        self.file.seek(0)
        return self.file.read(SAMPLE_BYTES)

    def bytes(self) -> bytes:
        """Return everything; raise DataFormatError when that is too much."""
        if not self.parseable:
            most = self.limits.parsed_bytes >> 20
            raise DataFormatError(f"{self.size >> 20} MB; this kind is read up to {most} MB.", file=self.name)
        self.file.seek(0)
        return self.file.read(self.limits.parsed_bytes + 1)

    def text(self, *, declares: bool = False) -> Decoded:
        """Return everything as text."""
        return decode(self.bytes(), file=self.name, declares=declares)

    def encoding(self) -> Encoding:
        """Return the encoding, judged by the beginning."""
        return encoding_of(self.sample(), file=self.name, complete=self.size <= SAMPLE_BYTES)

    def lines(self, encoding: str, *, newline: str | None = "") -> Iterator[Line]:
        """Yield the lines with their ends; a line that is too long is passed over, not held."""
        longest = self.limits.line_bytes
        text = open_text(self.file, encoding, newline=newline)
        try:
            number = 0
            while line := text.readline(longest + 1):
                number += 1
                too_long = len(line) > longest
                while too_long and line and not line.endswith("\n"):
                    line = text.readline(longest)
                yield Line(number, None if too_long else line, min(self.size, self.file.tell()))
        finally:
            text.detach()


def open_source(
    path: Path,
    *,
    name: str,
    limits: Limits = DEFAULT_LIMITS,
    follow: bool = True,
    text_keys: tuple[str, ...] | None = None,
) -> Source:
    """Open a regular file; anything else (a pipe, a device, a folder) never ends or is no text.

    `follow=False` refuses a link that took the file's place after it was listed.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    flags = os.O_RDONLY | O_NONBLOCK | O_BINARY
    if not follow:
        flags |= O_NOFOLLOW
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise DataFormatError("Not a regular file. Write its content to a file first.", file=name)
        file = os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
    return Source(file, name, path.suffix.lower(), status.st_size, limits, text_keys)
