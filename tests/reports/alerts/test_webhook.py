"""Messages stay within the limits of the services, and their addresses stay secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reports.alerts.configuration import WebhookKind
from reports.alerts.webhook import message

Fixture = Any  # a builder of conftest.py
HOSTILE = "<!channel> @everyone *_~`|>#[]() & </script> \U0001f600" * 200


def hostile(document: Fixture, number: int) -> Any:
    texts = dict.fromkeys(("title", "cause", "body", "gist", "device", "phase"), HOSTILE)
    cells = [{"set": "2026-11", "case": HOSTILE}] * 5
    return document(*({**texts, "cause_id": str(each), "cells": cells} for each in range(number)))


@pytest.mark.parametrize("number", [1, 10, 11, 49, 50, 200])
def test_slack_limits_hold(document: Fixture, number: int) -> None:
    payload = message(WebhookKind.SLACK, hostile(document, number))
    assert len(payload["blocks"]) == min(number + 1, 50)
    assert all(0 < len(block["text"]["text"]) <= 3_000 for block in payload["blocks"])
    assert len(payload["blocks"][0]["text"]["text"]) <= 150
    assert "<!channel>" not in json.dumps(payload)


@pytest.mark.parametrize("number", [1, 10, 11, 200])
def test_discord_limits_hold(document: Fixture, number: int) -> None:
    payload = message(WebhookKind.DISCORD, hostile(document, number))
    texts = [each.get(name, "") for each in payload["embeds"] for name in ("title", "description")]
    assert len(payload["embeds"]) == min(number, 10)
    assert sum(len(each.encode("utf-16-le")) // 2 for each in texts) <= 6_000
    assert max(len(each.get("title", "")) for each in payload["embeds"]) <= 256
    assert payload["allowed_mentions"] == {"parse": []}


def test_the_message_says_how_many_alerts_are_left_out(document: Fixture) -> None:
    assert "and 152 more alerts" in json.dumps(message(WebhookKind.SLACK, hostile(document, 200)))
    assert "and 191 more alerts" in json.dumps(message(WebhookKind.DISCORD, hostile(document, 200)))


@pytest.mark.parametrize("kind", list(WebhookKind))
def test_one_message_is_sent_per_night(desk: Fixture, document: Fixture, kind: WebhookKind) -> None:
    desk.channels = {"webhook": {"kind": kind}}
    assert (desk.notify(document()), desk.notify(document())) == ([], [])
    assert len(desk.service.messages) == 1


@pytest.mark.parametrize("fault", ["500", "closed", "after"])
def test_a_temporary_fault_loses_no_message(desk: Fixture, document: Fixture, fault: str) -> None:
    desk.channels = {"webhook": {"kind": "slack"}}
    desk.service.faults = {0: fault}
    assert desk.notify(document()) == []
    assert len(desk.service.messages) == 1


@pytest.mark.parametrize("fault", ["400", "401", "403", "404", "410", "418", "500", "far"])
def test_a_refusal_does_not_show_the_address(
    desk: Fixture, document: Fixture, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    desk.channels = {"webhook": {"kind": "slack"}}
    desk.service.every = fault
    (sentence,) = desk.notify(document())
    assert desk.hook_path not in sentence + caplog.text + desk.stored() + "".join(desk.said)
    assert "webhook" in sentence or "127.0.0.1" in sentence
