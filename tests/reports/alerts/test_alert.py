"""A fingerprint identifies a cause on every night; texts are safe to print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from matrix.errors import UserError
from reports.alerts.alert import normal_gist, printable
from reports.alerts.document import SCHEMA_FILE, json_schema, read, validated

Fixture = Any  # a builder of conftest.py


def fingerprint(document: Fixture, **other: Any) -> str:
    return str(document(other).alerts[0].alert.fingerprint)


@pytest.mark.parametrize(
    "other",
    [{"first_seen": "2026-12-01"}, {"cells": []}, {"kind": "fixed"}, {"title": "x"}, {"body": "x"}, {"gist": "x"}],
)
def test_a_fingerprint_does_not_depend_on_the_night_or_the_cells(document: Fixture, other: dict[str, Any]) -> None:
    assert fingerprint(document, **other) == fingerprint(document)


@pytest.mark.parametrize("other", [{"device": "cuda"}, {"phase": "save"}, {"cause_id": "other"}])
def test_a_fingerprint_depends_on_device_phase_and_cause(document: Fixture, other: dict[str, Any]) -> None:
    assert fingerprint(document, **other) != fingerprint(document)


def test_a_fingerprint_never_changes_between_releases(document: Fixture) -> None:
    """Open issues carry it."""
    assert fingerprint(document) == "06e2bc2be15ef97c"


def test_a_gist_has_no_addresses_folders_and_numbers() -> None:
    first = normal_gist("rank 3: <Tensor at 0x7f00ab> in /opt/envs/a1/peft/lora.py, shape 64x1.5e-3")
    assert first == normal_gist("rank 0: <Tensor at 0x7e11cd> in /tmp/other/peft/lora.py,  shape 8x2.5e-4")
    assert "lora.py" in first


def test_control_characters_and_directions_are_removed() -> None:
    assert printable("a\x1b[31m\u202eb\x00\r\nc\td\ufffe\U0001f600") == "a[31mb\nc\td\U0001f600"


def test_the_committed_schema_is_the_documents(assert_golden: Fixture) -> None:
    assert_golden(json_schema(), SCHEMA_FILE)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "no whole number under 'schema'"),
        ({"schema": 3}, "newer than 2"),
        ({"schema": 1, "night": "x", "alerts": []}, "night: "),
        ({"schema": 1, "night": "2026-11-24", "alerts": [{"kind": "bad"}]}, "alerts[0].kind: "),
    ],
)
def test_a_wrong_document_is_refused_in_one_sentence(data: Any, words: str) -> None:
    with pytest.raises(UserError, match=r"a\.json: ") as caught:
        validated(data, "a.json")
    assert words in str(caught.value)


def test_reading_masks_secrets_and_removes_control_characters(document: Fixture, tmp_path: Any) -> None:
    row = document({"title": "a mysecretvalue \x1b[31m", "body": "ghp_0123456789abcdefghijABCDEF"})
    path = tmp_path / "alerts.json"
    path.write_text(json.dumps(row.model_dump(mode="json", by_alias=True)))
    (record,) = read(path, secrets=frozenset({"mysecretvalue"})).alerts
    assert (record.title, record.body) == ("a *** [31m", "***")
