"""Tests that secrets of the environment and tokens of known forms are masked."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from pydantic import BaseModel

from matrix.run import secrets
from matrix.run.secrets import masked, masked_record, masked_values

if TYPE_CHECKING:
    from collections.abc import Callable

A, H = "aB3" * 20, "0123456789abcdef0123"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4"

TOKENS = {
    "Hugging Face": f"hf_{A}",
    "GitHub": f"ghp_{A}",
    "GitHub, fine-grained": f"github_pat_{A}",
    "GitLab": f"glpat-{A}",
    "Slack": "xoxb-123456789012-123456789012-aBcDeFgHiJkL",
    "AWS": "AKIA" + "Q" * 16,
    "AWS, temporary": "ASIA" + "Q" * 16,
    "Google": "AIza" + "b" * 35,
    "Google OAuth": f"ya29.{A}",
    "npm": f"npm_{A}",
    "PyPI": f"pypi-AgEIcHlwaS5vcmc{A}",
    "OpenAI": f"sk-{A}",
    "WANDB": f"wandb_v1_{A}",
    "Google client secret": f"GOCSPX-{A}",
    "Google refresh": f"1//{A}",
    "Stripe": f"sk_live_{A}",
    "Docker": f"dckr_pat_{A}",
    "Databricks": "dapi" + "0123abcd" * 4,
    "JWT": JWT,
}
IN_CONTEXT = {
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG+x": "aws_secret_access_key = ***",
    '{"SessionToken": "FwoGZXIvYXdzE"}': '{"SessionToken": "***"}',
    "wandb: Appending key: " + H * 2: "wandb: Appending key: ***",
    "export WANDB_API_KEY=" + H * 2: "export WANDB_API_KEY=***",
    "WANDB: no project of " + H * 2: "WANDB: no project of ***",
    "export DEPLOY_TOKEN=correct-horse": "export DEPLOY_TOKEN=***",
    "https://hooks.slack.com/services/T0/B0/abcdefgh": "https://hooks.slack.com/***",
    "Authorization: Bearer abcdefghijklmnop": "Authorization: ***",
    "a bearer abcdefghijklmnop": "a bearer ***",
    "https://user:pa@ss@host/simple": "https://***@host/simple",
    "machine api.wandb.ai login user password hunter22": "machine api.wandb.ai login user password ***",
    "https://x.org/a?X-Amz-Signature=0123456789ab&x=1": "https://x.org/a?X-Amz-Signature=***&x=1",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END": "-----BEGIN RSA PRIVATE KEY-----***-----END",
}
ORDINARY = (
    "torch==2.8.0+cu128 --hash=sha256:" + "0123abcd" * 8,
    "bos_token='<|begin_of_text|>', pad_token_id=128001, max_new_tokens=1000000000",
    "commit 84776d1e0a9f8b7c6d5e4f3a2b1c0d9e8f7a6b5c",
    "LlamaTokenizerFast(name_or_path='hf_internal', is_fast=True)",
    "train-lora-nf4-fsdp2-bf16__sk-learn-pypi-torch",
    "file:///opt/pypi/simple and https://example.org/simple",
)
REPEATED = (
    *("a", "A", "=", "eyJ", "hf_", "sk-", "://", "xoxb-a", "TOKEN_", "A_TOKEN= ", "login ", "password", "password = "),
    *("-----BEGIN PRIVATE KEY-----", "wandb", "?token=", "Authorization: ", "glpat-", "eyJaaaaaaaa.", "AKIA", "1//"),
)


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_tokens_of_known_forms_are_masked(token: str) -> None:
    assert masked(f"token {token} end", {}) == "token *** end"


@pytest.mark.parametrize(("text", "expected"), IN_CONTEXT.items())
def test_secrets_are_recognised_by_their_context(text: str, expected: str) -> None:
    assert masked(text, {}) == expected


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_kept(text: str) -> None:
    assert masked(text, {}) == text


@pytest.mark.parametrize(
    "name",
    [
        *("GITLAB_TOKEN", "CLIENT_SECRET", "PGPASSWORD", "MYSQL_PASSWD", "SOME_API_KEY", "AWS_ACCESS_KEY_ID"),
        *("CREDENTIALS", "BASIC_AUTH", "COOKIE", "MY_SESSION", "lower_password", "SSH_PASSPHRASE", "PRIVATE_KEY"),
        *("ENCRYPTION_KEY", "DB_PASS", "DB_PWD", "GH_PAT", "SENTRY_DSN"),
    ],
)
def test_values_of_secret_variables_are_masked(name: str) -> None:
    assert masked("it is correct-horse, twice", {name: "correct-horse"}) == "it is ***, twice"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "disabled"),
        ("GIT_AUTHOR_NAME", "Ada Lovelace"),
        ("AUTHOR", "Ada Lovelace"),
        ("SSH_AUTH_SOCK", "unix:agent.1"),
        ("DESKTOP_SESSION", "gnome-xorg"),
        ("SOME_TOKEN", "short"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/hosts"),
        ("COLOUR", "turquoise"),
    ],
)
def test_values_of_other_variables_are_kept(name: str, value: str) -> None:
    assert masked(f"it is {value}", {name: value}) == f"it is {value}"


def test_the_longest_value_is_masked_first() -> None:
    assert masked("longer-secret", {"A_TOKEN": "longer-s", "B_TOKEN": "longer-secret"}) == "***"


@pytest.mark.parametrize("printed", ["pass'word\n1", '"pass\'word\\n1"', "pass%27word%0A1"])
def test_a_value_is_masked_however_it_is_printed(printed: str) -> None:
    assert "word" not in masked(printed, {"A_PASSWORD": "pass'word\n1"})


@pytest.mark.parametrize("printed", [repr, json.dumps, quote])
def test_a_value_with_both_quotes_is_masked_however_it_is_printed(printed: Callable[[str], str]) -> None:
    value = 'it\'s "the word"'
    assert "word" not in masked(printed(value), {"A_PASSWORD": value})


def test_a_short_line_of_a_secret_is_kept_as_an_ordinary_word() -> None:
    assert masked("the training", {"SIGNING_KEY": "training\n" + "b" * 30}) == "the training"


def test_each_line_of_a_long_secret_is_masked() -> None:
    assert masked("b" * 30, {"SIGNING_KEY": "a" * 30 + "\n" + "b" * 30}) == "***"


def test_all_texts_of_plain_data_are_masked() -> None:
    plain = {"facts": {"url": "https://me:you@host"}, "checks": [{"value": JWT, "ok": True}], JWT: 1}
    assert masked_values(plain, {}) == {
        "facts": {"url": "https://***@host"},
        "checks": [{"value": "***", "ok": True}],
        "***": 1,
    }


class Record(BaseModel):
    reason: str
    steps: tuple[str, ...] = ()


def test_a_record_without_secrets_is_returned_unchanged() -> None:
    record = Record(reason="torch 2.8.0 is missing", steps=("one",))
    assert masked_record(record) is record


def test_a_record_with_secrets_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "correct-horse")
    assert masked_record(Record(reason="correct-horse", steps=("a",))) == Record(reason="***", steps=("a",))


@pytest.mark.parametrize("piece", REPEATED)
def test_a_line_of_a_megabyte_takes_linear_time(piece: str) -> None:
    environ = {"A_TOKEN": piece * 3 + "-secret"}
    masked(piece * 100, environ)  # compile the pattern of the values
    began = time.process_time()
    masked(piece * (10**6 // len(piece)), environ)
    assert time.process_time() - began < 5


def test_masking_a_text_twice_changes_nothing() -> None:
    once = masked("\n".join([*TOKENS.values(), *IN_CONTEXT]), {})
    assert masked(once, {}) == once


def test_the_shortest_secret_has_eight_characters() -> None:
    assert secrets.secret_values({"A_TOKEN": "1234567", "B_TOKEN": "12345678"}) == {"12345678"}
