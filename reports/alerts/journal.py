"""Remembers on this machine what is still to be sent, what was sent, and when each cause was first seen.

The journal is a file of JSON lines, each on disk before the next request leaves. It never has a secret: alerts are
cleaned before they are stored.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from matrix.errors import UserError
from reports.render.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

JOURNAL_SCHEMA: Final = 1
QUEUED, STARTED, SENT, SEEN = "queued", "started", "sent", "seen"
KEPT_SENT: Final = 2_000  # keys of sent items that a shortened journal keeps
KEPT_SEEN: Final = 5_000  # causes whose first night it keeps


@dataclass(kw_only=True)
class Journal:
    """Items to send, by key, in the order in which they were queued. This process holds the lock until ``close``.

    ``seen`` has the first night of each cause, by fingerprint.
    """

    path: Path
    waiting: dict[str, Any] = field(default_factory=dict)
    started: dict[str, str] = field(default_factory=dict)
    sent: dict[str, None] = field(default_factory=dict)
    seen: dict[str, date] = field(default_factory=dict)
    lock: TextIO | None = field(default=None, repr=False)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read and lock a journal, and drop the contents of sent items from it.

        Raises:
            UserError: another process uses it, or it cannot be written.
        """
        try:
            lock = path.with_name(f"{path.name}.lock").open("a", encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror}); name another folder with --out") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            journal = cls.read(path)
            journal.lock = lock
            write_whole(path, "".join(f"{json.dumps(line)}\n" for line in journal.lines()))
        except BlockingIOError:
            lock.close()
            raise UserError(f"{path}: another process is sending; run the same command again when it ended") from None
        except OSError as error:
            lock.close()
            raise UserError(f"{path}: cannot be written ({error.strerror}); free some space") from None
        except UserError:
            lock.close()
            raise
        return journal

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a journal without a lock; a missing file is an empty one.

        Raises:
            UserError: it cannot be read, or a newer harness wrote it.
        """
        journal = cls(path=path)
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return journal
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}); name another folder with --out") from None
        for line in text.splitlines():
            journal.apply(parsed_line(line, path))
        return journal

    def apply(self, line: Mapping[str, Any]) -> None:
        """Apply one line of the file."""
        key, event = str(line.get("key", "")), line.get("event")
        if event == QUEUED:
            self.waiting[key] = line.get("item")
        elif event == STARTED:
            self.started.setdefault(key, str(line.get("at", "")))
        elif event == SENT:
            self.waiting.pop(key, None)
            self.started.pop(key, None)
            self.sent[key] = None
        elif event == SEEN and (night := parsed_date(line.get("at"))):
            self.seen[key] = min(night, self.seen.get(key, night))

    def lines(self) -> Iterable[dict[str, Any]]:
        """Return the lines of a file with the same content as short as possible."""
        yield from (self.line(SENT, key) for key in list(self.sent)[-KEPT_SENT:])
        yield from (self.line(SEEN, key, at=f"{night}") for key, night in [*self.seen.items()][-KEPT_SEEN:])
        yield from (self.line(QUEUED, key, item=item) for key, item in self.waiting.items())
        yield from (self.line(STARTED, key, at=at) for key, at in self.started.items())

    def queue(self, key: str, item: Any) -> None:
        """Remember an item until it is sent; an item that was sent before is not sent again."""
        if key not in self.sent and key not in self.waiting:
            self.append(self.line(QUEUED, key, item=item))

    def see(self, fingerprint: str, night: date) -> None:
        """Remember the night of a cause, if it is the first."""
        if night < self.seen.get(fingerprint, date.max):
            self.append(self.line(SEEN, fingerprint, at=f"{night}"))

    def start(self, key: str, at: str) -> None:
        """Remember when an item was first tried: the server may have it, even if no answer arrives."""
        if key not in self.started:
            self.append(self.line(STARTED, key, at=at))

    def finish(self, key: str) -> None:
        self.append(self.line(SENT, key))

    def append(self, line: dict[str, Any]) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(line)}\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written ({error.strerror}); free some space") from None
        self.apply(line)

    def close(self) -> None:
        if self.lock:
            self.lock.close()

    @staticmethod
    def line(event: str, key: str, **more: Any) -> dict[str, Any]:
        return {"schema": JOURNAL_SCHEMA, "event": event, "key": key, **more}


def parsed_date(value: Any) -> date | None:
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        return None


def parsed_line(text: str, path: Path) -> dict[str, Any]:
    """Parse a line; a torn one, after which a process ended, is empty."""
    try:
        line = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(line, dict):
        return {}
    if isinstance(line.get("schema"), int) and line["schema"] > JOURNAL_SCHEMA:
        raise UserError(f"{path}: schema {line['schema']} is newer than {JOURNAL_SCHEMA}; update ftmatrix")
    return line
