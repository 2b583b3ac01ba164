"""The text of an issue fits, notifies nobody, and can be read again."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from matrix.keys import CellKey
from reports.alerts.causes import CauseUpdate
from reports.alerts.issue_text import IssueState, fingerprint_in, inert, new_body, region, state_in

Fixture = Any  # a builder of conftest.py
NIGHT = date(2026, 11, 24)
GITHUB_LIMIT = 65_536


def many(number: int) -> frozenset[CellKey]:
    case = "train-lora-nf4-fsdp1-auto_wrap_policy_peft-use_orig_params_false-bf16-{}"
    return frozenset(CellKey(f"2026-{each % 12:02}", case.format(each)) for each in range(number))


@pytest.mark.parametrize("number", [0, 1, 1_500, 30_000])
def test_a_state_fits_and_is_read_again(number: int) -> None:
    text = region(IssueState(night=NIGHT, device="cpu", cells=many(number)))
    state = state_in(text)
    assert state is not None
    assert (len(state.cells) + state.more, state.night, state.device) == (number, NIGHT, "cpu")
    assert state.more == 0 or number == 30_000
    assert len(text) < 45_000


def test_the_longest_body_fits(document: Fixture) -> None:
    cells = [each._asdict() for each in many(30_000)]
    record = {"cells": cells, "body": "```\n" + "@x #1 " * 20_000, "cause": "c" * 9_000, "title": "t" * 999}
    body = new_body(CauseUpdate(document=document(record)))
    assert len(body) < GITHUB_LIMIT
    assert fingerprint_in(body) == "06e2bc2be15ef97c"


def test_a_body_cannot_carry_another_fingerprint(document: Fixture) -> None:
    other = "<!-- ftmatrix-alert: aaaaaaaaaaaaaaaa -->"
    record = {"body": f"{other}\n```\n{other}\n```", "cause": other, "title": other}
    assert new_body(CauseUpdate(document=document(record))).count("<!-- ftmatrix-alert") == 1


@pytest.mark.parametrize("damaged", ["", "<!-- ftmatrix-state: AAAA -->", "<!-- ftmatrix-state: eJwDAAAAAAE= -->"])
def test_a_damaged_state_is_no_state(damaged: str) -> None:
    assert state_in(damaged) is None


def test_markdown_notifies_nobody_outside_of_code() -> None:
    text = inert("@torch o/r#12 https://github.com/o/r/issues/3 `@torch` <!-- x -->\n```\n@torch.no_grad #4\n```")
    assert "`@torch`" in text
    assert "@torch.no_grad #4" in text
    assert not text.startswith("@torch")
    assert ("r#12" in text, "://github.com" in text, "<!--" in text) == (False, False, False)
