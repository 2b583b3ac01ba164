"""``notify`` sends nothing without its secrets, shows them never, and keeps what is unsent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., tuple[int, str, str]]

TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"  # noqa: S105 - of nobody
ADDRESS = "https://127.0.0.1:9/services/T0/B0/secretsecretsecret"
GITHUB = '[github]\nrepository = "o/r"\n'
WEBHOOK = '[webhook]\nkind = "slack"\n'
FEED = '[feed]\ntitle = "nights"\nurl = "https://example.org/alerts.atom"\n'
ALERT: dict[str, Any] = {
    "kind": "regression",
    "device": "cpu",
    "title": "LoRA raises",
    "cause": f"the token {TOKEN}",
    "cause_id": "flatten",
    "phase": "wrap",
    "cells": [{"set": "2026-11", "case": "train-lora-fsdp1-bf16"}],
    "first_seen": "2026-11-24",
}


@pytest.fixture
def notify(ftmatrix: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    for name in ("GITHUB_TOKEN", "GITHUB_API_URL", "ALERT_WEBHOOK_URL", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    document = {"schema": 1, "night": "2026-11-24", "alerts": [ALERT]}
    (tmp_path / "alerts.json").write_text(json.dumps(document))

    def run(configuration: str, *words: str) -> tuple[int, str, str]:
        (tmp_path / "alerts.toml").write_text(configuration)
        return ftmatrix("notify", str(tmp_path / "alerts.json"), "--config", str(tmp_path / "alerts.toml"), *words)

    return run


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ("", "nothing to send to"),
        ("[github]\nrepository = 'x'", "github.repository: 'x' is no repository"),
        ("[github]\nrepository = 'o/r'\nlabels = 'x'", "github.labels: "),
        ("[webhook]\nkind = 'irc'", "webhook.kind: "),
        ("[feed]\nurl = 'x'", "feed.url: expected an https address"),
        ("x", "not TOML"),
        (GITHUB, "no token: set GITHUB_TOKEN"),
        (WEBHOOK, "no webhook: set ALERT_WEBHOOK_URL"),
    ],
)
def test_a_bad_configuration_is_one_sentence(notify: Command, configuration: str, words: str) -> None:
    code, out, err = notify(configuration)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_a_secret_in_place_of_a_name_is_not_shown(notify: Command) -> None:
    _, out, err = notify(f'{WEBHOOK}url_variable = "{ADDRESS}"')
    assert "not its value" in err
    assert ADDRESS not in out + err


def test_a_token_in_place_of_its_name_is_not_shown(notify: Command) -> None:
    token = "ghp_" + "a1" * 18
    _, out, err = notify(f'[github]\nrepository = "o/n"\ntoken_variable = "{token}"')
    assert "not its value" in err
    assert token not in out + err


@pytest.mark.parametrize("value", ["http://example.org/secretpath", "secretpath", "https://x/secretpath y"])
def test_an_unsafe_address_is_refused_without_showing_it(
    notify: Command, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("ALERT_WEBHOOK_URL", value)
    code, out, err = notify(WEBHOOK)
    assert (code, "secretpath" in out + err) == (2, False)


def test_a_dry_run_needs_no_token_and_writes_nothing(notify: Command, tmp_path: Path) -> None:
    code, out, _ = notify(GITHUB + WEBHOOK + FEED, "--dry-run")
    assert code == 0
    assert "POST https://api.github.com/repos/o/r/issues" in out
    assert "<!-- ftmatrix-alert: " in out
    assert TOKEN not in out
    assert {path.name for path in tmp_path.iterdir()} == {"alerts.json", "alerts.toml"}


def test_a_dry_run_shows_what_green_cells_do(notify: Command, tmp_path: Path) -> None:
    green = [{"device": "cpu", "set": "2026-11", "cases": ["train-lora-fsdp1-bf16", "train-lora-ddp-fp32"]}]
    document = {"schema": 1, "night": "2026-11-25", "alerts": [], "green": green}
    (tmp_path / "alerts.json").write_text(json.dumps(document))
    out = notify(GITHUB, "--dry-run")[1]
    assert "issues/NUMBER, if an open issue lists any of 2 green cells, or cells that did not run; one that " in out


def test_a_dry_run_masks_the_secrets_of_the_environment(notify: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    monkeypatch.setenv("ALERT_WEBHOOK_URL", ADDRESS)
    _, out, err = notify(GITHUB + WEBHOOK, "--dry-run")
    assert not any(each in out + err for each in (TOKEN, ADDRESS, "secretsecretsecret"))


def test_a_feed_needs_no_secret(notify: Command, tmp_path: Path) -> None:
    code, _, err = notify(FEED)
    assert (code, err) == (0, "")
    assert "LoRA raises" in (tmp_path / "alerts.atom").read_text()
    assert TOKEN not in "".join(path.read_text() for path in tmp_path.glob("alerts.a*"))


def test_what_cannot_be_sent_is_kept(notify: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.alerts.transport.ATTEMPTS", 1)
    monkeypatch.setenv("ALERT_WEBHOOK_URL", ADDRESS)  # nothing listens there
    code, _, err = notify(WEBHOOK)
    assert (code, "1 message not sent: 127.0.0.1:9 cannot be reached" in err) == (1, True)
    kept = (tmp_path / "alerts.journal.jsonl").read_text()
    assert ("LoRA raises" in kept, TOKEN in kept, "secretsecretsecret" in kept + err) == (True, False, False)
