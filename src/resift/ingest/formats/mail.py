"""Mail: subject, people, date and body; text attachments too, others named as not read."""

from __future__ import annotations

import contextlib
import email.errors
from collections.abc import Iterator
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from email.utils import parsedate_to_datetime
from typing import Any

from resift.errors import DataFormatError
from resift.ingest.formats.html import html_sections
from resift.ingest.sections import Section
from resift.ingest.sources import Source
from resift.types import JsonObject


def read_mail(source: Source) -> Iterator[Section]:
    """Yield the body, plain text before HTML, then the attachments that are text."""
    try:
        mail: Any = BytesParser(policy=policy.default).parsebytes(source.bytes())
        subject = " ".join(str(mail.get("subject", "")).split())[:300]
        metadata = _metadata(mail, subject)
        body = mail.get_body(preferencelist=("plain", "html"))
        others = [part for part in mail.iter_attachments() if not _is_text(part)]
        attached = [part for part in mail.iter_attachments() if _is_text(part)]
        names = ", ".join(str(part.get_filename() or part.get_content_type()) for part in others[:5])
        flag = f"attachments not read: {names}" if names else ""
        yield from _body(body, subject, metadata, flag)
        for part in attached:
            yield Section(_content(part), context=str(part.get_filename() or subject), metadata=metadata)
    except (email.errors.MessageError, ValueError, LookupError, AttributeError, TypeError, IndexError) as exc:
        raise DataFormatError(f"Not a readable mail ({type(exc).__name__}).", file=source.name) from exc


def _body(body: Any, subject: str, metadata: JsonObject, flag: str) -> Iterator[Section]:
    text = "" if body is None else _content(body)
    if body is not None and body.get_content_type() == "text/html":
        found = html_sections(text)
        text = "\n\n".join(f"{one.context}\n{one.text}" if one.context else one.text for one in found)
    if text.strip():
        yield Section(text, context=subject, metadata=metadata, flag=flag)
    elif subject:
        yield Section(subject, metadata=metadata, flag=flag)


def _content(part: EmailMessage) -> str:
    try:
        content = part.get_content()
    except LookupError:  # a charset that nobody knows
        content = (part.get_payload(decode=True) or b"").decode("utf-8", "replace")  # type: ignore[union-attr]
    return content if isinstance(content, str) else ""


def _is_text(part: EmailMessage) -> bool:
    return part.get_content_maintype() == "text"


def _metadata(mail: Any, subject: str) -> JsonObject:
    found = {key: " ".join(str(mail.get(key, "")).split())[:500] for key in ("from", "to")}
    with contextlib.suppress(TypeError, ValueError, IndexError):
        found["date"] = parsedate_to_datetime(str(mail["date"])).isoformat()
    return {key: value for key, value in {"title": subject, **found}.items() if value}
