"""Writes an Atom feed (RFC 4287) of alerts, and keeps the entries of earlier nights."""

from __future__ import annotations

import uuid
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Final
from xml.parsers import expat

from matrix.errors import UserError
from reports.alerts.alert import cell_lines, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reports.alerts.alert import Alert
    from reports.alerts.document import AlertDocument

ATOM: Final = "http://www.w3.org/2005/Atom"
NAMESPACE: Final = uuid.UUID("6f0d2c54-94a4-5c7e-8b9f-3d3f6f6b7a10")  # of the ids of entries; never change it
NEWEST: Final = 200  # entries of a feed
LONGEST_CONTENT: Final = 20_000
EPOCH: Final = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEntry:
    id: str
    title: str
    updated: str
    published: str
    kind: str
    summary: str
    content: str


def entry(alert: Alert, night: date) -> FeedEntry:
    """Return the entry of an alert. The same cause has the same id on every night on which it is repeated."""
    parts = (alert.fingerprint, alert.kind.value)
    text = "\n\n".join(part for part in (alert.body, "\n".join(cell_lines(alert.cells, limit=5_000))) if part)
    return FeedEntry(
        id=f"urn:uuid:{uuid.uuid5(NAMESPACE, ' '.join(parts))}",
        title=printable(alert.line),
        updated=timestamp(night),
        published=timestamp(alert.first_seen),
        kind=alert.kind.value,
        summary=printable(f"{alert.summary}. {' '.join(alert.cause.split())}"),
        content=printable(text)[:LONGEST_CONTENT],
    )


def timestamp(day: date) -> str:
    return f"{datetime.combine(day, time.min, tzinfo=UTC):%Y-%m-%dT%H:%M:%SZ}"


def merged(known: Iterable[FeedEntry], documents: Iterable[AlertDocument]) -> list[FeedEntry]:
    """Add the alerts of nights to the entries of a feed, newest first.

    A later night replaces an entry, which keeps the day on which it was first published.
    """
    entries = {each.id: each for each in known}
    for document in documents:
        for each in (entry(record.alert, document.night) for record in document.alerts):
            before = entries.get(each.id, each)
            if before.updated <= each.updated:
                entries[each.id] = replace(each, published=min(before.published, each.published))
    return sorted(entries.values(), key=lambda each: (each.updated, each.id), reverse=True)[:NEWEST]


def feed(entries: Iterable[FeedEntry], *, title: str, url: str) -> str:
    """Write a feed. It is as recent as its newest entry, so that the same entries give the same text."""
    entries = list(entries)
    root = ET.Element("feed", xmlns=ATOM)
    add(root, "id", url)
    add(root, "title", title)
    add(root, "updated", max((each.updated for each in entries), default=EPOCH))
    ET.SubElement(root, "link", rel="self", type="application/atom+xml", href=printable(url))
    add(ET.SubElement(root, "author"), "name", "ftmatrix")
    for each in entries:
        add_entry(root, each)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def add_entry(root: ET.Element, each: FeedEntry) -> None:
    element = ET.SubElement(root, "entry")
    for name in ("id", "title", "updated", "published"):
        add(element, name, getattr(each, name))
    ET.SubElement(element, "category", term=each.kind)
    add(element, "summary", each.summary)
    add(element, "content", each.content)


def add(parent: ET.Element, name: str, text: str) -> None:
    ET.SubElement(parent, name).text = printable(text)


def read(content: bytes, name: str) -> list[FeedEntry]:
    """Read the entries of a feed that this module wrote; an empty file has none.

    Raises:
        UserError: it is no such feed.
    """
    if not content.strip():
        return []
    try:
        root = parsed(content)
    except ET.ParseError as error:
        raise UserError(f"{name}: not XML ({error}); remove the file, or name another folder") from None
    if root.tag != f"{{{ATOM}}}feed":
        raise UserError(f"{name}: no Atom feed; remove the file, or name another folder")
    return [entry_of(each) for each in root.iter(f"{{{ATOM}}}entry")]


def parsed(content: bytes) -> ET.Element:
    """Parse XML without a document type: entities could make a small file expand to gigabytes."""
    builder = ET.TreeBuilder()
    parser = expat.ParserCreate(namespace_separator="}")

    def refuse(*_: object) -> None:
        raise ET.ParseError("a document type is not allowed")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda tag, values: builder.start(f"{{{tag}" if "}" in tag else tag, values)
    parser.EndElementHandler = lambda tag: builder.end(f"{{{tag}" if "}" in tag else tag)
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(content, True)  # noqa: FBT003 - the signature of expat
    except expat.ExpatError as error:
        raise ET.ParseError(str(error)) from None
    return builder.close()


def entry_of(element: ET.Element) -> FeedEntry:
    def text(name: str) -> str:
        return element.findtext(f"{{{ATOM}}}{name}") or ""

    category = element.find(f"{{{ATOM}}}category")
    kind = "" if category is None else category.get("term", "")
    return FeedEntry(
        kind=kind, **{name: text(name) for name in ("id", "title", "updated", "published", "summary", "content")}
    )
