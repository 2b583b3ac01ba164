"""A fake GitHub and webhook on a real socket, which can answer wrongly, late, or not at all."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass, field
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from reports.alerts.configuration import AlertConfiguration, Secrets
from reports.alerts.document import AlertDocument
from reports.alerts.journal import Journal
from reports.alerts.sending import Sender
from reports.alerts.transport import HttpAnswer, HttpRequest, TimeBudget, Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"  # noqa: S105 - of the fake service
HOOK_PATH = "/services/T00000000/B00000000/secretsecretsecret"
LABEL = "ftmatrix-alert"


def a_record(**other: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "kind": "regression",
        "device": "cpu",
        "title": "LoRA under FSDP1 raises while wrapping",
        "cause": "flatten",
        "cause_id": "flatten-uniform",
        "phase": "wrap",
        "moved": [{"name": "peft", "old": "0.20.0", "new": "0.21.0"}],
        "cells": [{"set": "2026-11", "case": "train-lora-fsdp1-bf16"}],
        "first_seen": "2026-11-24",
        "body": "```\nValueError: Must flatten tensors\n```",
    }
    return {**usual, **other}


def a_document(
    *records: dict[str, Any],
    night: int = 24,
    green: Sequence[str] | None = None,
    red: Sequence[str] = (),
    device: str = "cpu",
    schema: int = 2,
) -> AlertDocument:
    """A night of November 2026, or of December if the number is larger; each record states only what differs.

    ``green`` and ``red`` are the sets on which the usual case was so; a night with green ones, and without records,
    has no alert.
    """
    alerts = [a_record(**each) for each in records or (({},) if green is None else ())]
    day = date(2026, 11, 1) + timedelta(days=night - 1)
    listed = {"green": green or (), "red": red}
    rows = {
        name: [{"device": device, "set": each, "cases": ["train-lora-fsdp1-bf16"]} for each in sets]
        for name, sets in listed.items()
    }
    data = {"schema": schema, "night": f"{day}", "alerts": alerts, **rows}
    return AlertDocument.model_validate(data)


def cells(*sets: str) -> list[dict[str, str]]:
    return [{"set": each, "case": "train-lora-fsdp1-bf16"} for each in sets]


@pytest.fixture
def document() -> Callable[..., AlertDocument]:
    return a_document


@dataclass
class FakeService:
    """Issues and comments of one repository, and messages to a webhook. ``faults`` are by number of the request."""

    issues: list[dict[str, Any]] = field(default_factory=list)
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    messages: list[Any] = field(default_factory=list)
    faults: dict[int, str] = field(default_factory=dict)
    every: str = ""  # a fault of every request
    seen: list[str] = field(default_factory=list)
    per_page: int = 100
    may_label: bool = True
    url: str = ""

    def add(self, body: str, *, labels: tuple[str, ...] = (LABEL,), state: str = "open") -> dict[str, Any]:
        issue = {
            "number": len(self.issues) + 1,
            "body": body,
            "state": state,
            "state_reason": None,
            "labels": [{"name": each} for each in labels],
        }
        self.issues.append(issue)
        return issue

    @property
    def open(self) -> list[int]:
        return [each["number"] for each in self.issues if each["state"] == "open"]

    def all_comments(self) -> list[str]:
        return [each["body"] for rows in self.comments.values() for each in rows]

    def answer(self, method: str, path: str, query: dict[str, list[str]], data: Any) -> tuple[int, Any, dict[str, str]]:
        if not path.startswith("/repos/"):
            self.messages.append(data)
            return 200, {"ok": True}, {}
        match = re.fullmatch(r"/repos/o/r/issues(?:/(\d+)(?:/(comments|labels))?)?", path)
        if not match:
            return 404, {"message": "Not Found"}, {}
        number, part = int(match[1] or 0), match[2]
        if method == "GET":
            return self.page(self.comments.get(number, []) if part else self.listed(query), query, path)
        return self.written(number, part, data)

    def written(self, number: int, part: str | None, data: Any) -> tuple[int, Any, dict[str, str]]:
        if part == "comments":
            self.comments.setdefault(number, []).append({"body": data["body"]})
            return 201, {"id": 1}, {}
        if not number:
            return 201, self.add(data["body"], labels=tuple(data["labels"]) if self.may_label else ()), {}
        issue = self.issues[number - 1]
        if part == "labels":
            issue["labels"] += [{"name": each} for each in data["labels"]] if self.may_label else []
            return 200, issue["labels"], {}
        issue.update(data)
        return 200, issue, {}

    def listed(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        wanted = query.get("labels", [""])[0]
        return [each for each in self.issues if not wanted or wanted in {row["name"] for row in each["labels"]}]

    def page(self, rows: list[Any], query: dict[str, list[str]], path: str) -> tuple[int, Any, dict[str, str]]:
        number = int(query.get("page", ["1"])[0])
        start, end = (number - 1) * self.per_page, number * self.per_page
        words = "&".join(f"{name}={values[0]}" for name, values in query.items() if name != "page")
        link = {"Link": f'<{self.url}{path}?{words}&page={number + 1}>; rel="next"'} if end < len(rows) else {}
        return 200, rows[start:end], link


def limited(fault: str) -> tuple[int, Any, dict[str, str]]:
    reset = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 20)}
    return {
        "primary": (403, {"message": "API rate limit exceeded"}, reset),
        "far": (403, {"message": "API rate limit exceeded"}, {**reset, "X-RateLimit-Reset": "4102444800"}),
        "secondary": (403, {"message": "You have exceeded a secondary rate limit"}, {}),
        "after": (429, {"message": "slow down"}, {"Retry-After": "7"}),
    }[fault]


def handler(service: FakeService) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - a class of few branches
    class Handler(BaseHTTPRequestHandler):
        def serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            data = json.loads(self.rfile.read(size) or b"null")
            parts = urlsplit(self.path)
            fault = service.faults.get(len(service.seen), service.every)
            service.seen.append(f"{self.command} {parts.path}")
            if fault in {"primary", "far", "secondary", "after"}:
                self.reply(*limited(fault))
            elif fault.isdigit():
                self.reply(int(fault), {"message": f"no: {self.headers.get('Authorization')} {self.path}"}, {})
            elif fault != "closed":  # otherwise the connection ends without an answer
                done = service.answer(self.command, parts.path, parse_qs(parts.query), data)
                self.processed(fault, *done)

        do_GET = do_POST = do_PATCH = serve  # noqa: N815 - names of http.server

        def processed(self, fault: str, status: int, data: Any, headers: dict[str, str]) -> None:
            """Answer a request that took effect."""
            if fault == "done-502":
                self.reply(502, "bad gateway", {})
            elif fault == "done-slow":
                time.sleep(0.4)
                self.reply(status, data, headers)
            elif fault != "done-closed":
                self.reply(status, data, headers, cut=fault == "done-truncated")

        def reply(self, status: int, data: Any, headers: dict[str, str], *, cut: bool = False) -> None:
            body = json.dumps(data).encode()
            body = body[: len(body) // 2] if cut else body
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (BrokenPipeError, ConnectionResetError):  # the client gave up
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    fake = FakeService()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(fake))
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    server.shutdown()
    server.server_close()
    thread.join()


class CrashError(BaseException):
    """Ends the process, as far as a test can."""


@dataclass(kw_only=True)
class TestTransport(Transport):
    """Ends the process before or after the request of a number, counted over one call of the command."""

    __test__ = False
    crash_at: int = -1
    after: bool = False
    calls: int = 0

    def send(self, request: HttpRequest) -> HttpAnswer:
        number, self.calls = self.calls, self.calls + 1
        if number == self.crash_at and not self.after:
            raise CrashError
        answer = super().send(request)
        if number == self.crash_at:
            raise CrashError
        return answer


@dataclass
class FakeClock:
    """Time that passes only by sleeping."""

    time: float = 0.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.slept.append(seconds)

    def budget(self, seconds: float = 300.0) -> TimeBudget:
        return TimeBudget(
            seconds=seconds, monotonic=lambda: self.time, sleep=self.sleep, now=lambda: time.time() + self.time
        )


@dataclass
class Desk:
    """Calls the sender as the command does, each time with a new journal object on the same file."""

    service: FakeService
    folder: Path
    clock: FakeClock = field(default_factory=FakeClock)
    said: list[str] = field(default_factory=list)
    budget_s: float = 300.0
    channels: dict[str, Any] = field(default_factory=lambda: {"github": {"repository": "o/r"}})
    secret: str = TOKEN
    hook_path: str = HOOK_PATH
    calls: int = 0

    def crash(self, document: AlertDocument, number: int, *, after: bool) -> bool:
        """Send, and end the process at a request; return whether it got that far."""
        try:
            self.notify(document, crash_at=number, after=after)
        except CrashError:
            return True
        return False

    def notify(self, document: AlertDocument, *, crash_at: int = -1, after: bool = False) -> list[str]:
        """Send; return what is left unsent. The transport is shared by the channels, so that its calls are counted."""
        budget = self.clock.budget(self.budget_s)
        transport = TestTransport(budget=budget, request_s=0.2, crash_at=crash_at, after=after)
        journal = Journal.open(self.folder / "journal.jsonl")
        try:
            sender = Sender(
                configuration=AlertConfiguration.model_validate(self.channels),
                secrets=Secrets(token=TOKEN, webhook=f"{self.service.url}{HOOK_PATH}"),
                api=self.service.url,
                journal=journal,
                say=self.said.append,
                transport=lambda: transport,
            )
            sender.queue(document)
            return sender.send()
        finally:
            self.calls = transport.calls
            journal.close()

    def stored(self) -> str:
        return "".join(path.read_text() for path in self.folder.iterdir())


@pytest.fixture
def sets() -> Callable[..., list[dict[str, str]]]:
    return cells


@pytest.fixture
def desk(service: FakeService, tmp_path: Path) -> Desk:
    return Desk(service=service, folder=tmp_path)
