"""What alerts say once the culprit of a regression is known."""

from __future__ import annotations

import time
from datetime import date
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from matrix.bisect import request as bisection
from matrix.errors import UserError
from matrix.nightly.slices import Clock
from reports.alerts.alert import AlertKind
from reports.alerts.document import AlertDocument, AlertRecord, CellRow
from reports.alerts.from_diff import NO_SUSPECT
from reports.commands.nights.culprits import CulpritSearch, joined, named, with_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.bisect.answer import BisectAnswer

FIRST_OFF = "First off: output of `model.layers.0.self_attn.q_proj`, step 1, rank 0."


def record(gist: str, *cases: str, night: int = 2) -> AlertRecord:
    return AlertRecord(
        kind=AlertKind.REGRESSION,
        device="cpu",
        title=gist,
        cause=gist,
        gist=gist,
        cells=tuple(CellRow(set="nightly+peft", case=each) for each in cases),
        first_seen=date(2026, 11, night),
        body="evidence",
    )


def test_alerts_that_begin_at_the_same_place_become_one_with_all_cells() -> None:
    both = joined(record("loss", "a", "b"), record("loss, logits", "b", "c", night=1))
    assert [each.case for each in both.cells] == ["a", "b", "c"]
    assert both.gist == "loss"  # it identifies the issue
    assert both.first_seen == date(2026, 11, 1)
    assert both.body == "evidence\n\nAlso shown by 2 cells with: loss, logits"


def test_words_are_added_only_if_there_are_any() -> None:
    assert with_words(record("loss", "a"), "").body == "evidence"
    assert with_words(record("loss", "a").model_copy(update={"body": ""}), "more").body == "more"


def test_the_title_of_a_silent_failure_says_where_it_begins(answer: Callable[..., BisectAnswer]) -> None:
    found = answer({"package": "peft", "last_good": "0.21.2", "first_bad": "0.21.3", "first_bad_set": "x"})
    silent = named(record("loss, gradient", "a"), found, FIRST_OFF)
    place = "output of `model.layers.0.self_attn.q_proj`, step 1, rank 0"
    assert silent.title == f"peft 0.21.3: silently wrong, first off: {place}"
    loud = named(with_words(record("ValueError: no", "a"), f"{NO_SUSPECT}\n\nmore"), found, "")
    assert loud.body == "evidence\n\nmore"  # the culprit is known now
    assert loud.title == "peft 0.21.3: ValueError: no"
    assert [(each.name, each.old, each.new) for each in loud.moved] == [("peft", "0.21.2", "0.21.3")]


@pytest.mark.parametrize(("took_s", "bisected"), [(0.0, ["a", "b"]), (700.0, ["a"])])
def test_a_bisection_begins_only_if_the_last_one_would_fit(
    took_s: float, bisected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 780 s, 80 s are left after a bisection of 700 s, which is more than the shortest one takes."""
    now = [time.monotonic()]
    begun: list[str] = []

    def ended_without_answer(wish: Any, **_: object) -> Any:
        begun.append(wish)
        now[0] += took_s
        raise UserError("the difference does not reproduce")

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(bisection, "run", ended_without_answer)
    monkeypatch.setattr(CulpritSearch, "first_off", lambda _, cell: f"First off: {cell.case}.")
    monkeypatch.setattr(CulpritSearch, "wish", lambda _, cell, __: cell.case)
    request: Any = SimpleNamespace(versions="versions.toml")
    search = CulpritSearch(
        request=request,
        directory=request,
        base="2026-11",
        moved={"nightly+peft": 1},
        clock=Clock(seconds=780.0),
        pre=False,
        say=lambda _: None,
    )
    alerts = (record("loss", "a"), record("logits", "b"))
    found = search.explained(AlertDocument(night=date(2026, 11, 26), alerts=alerts)).alerts
    assert begun == bisected
    assert ["Not bisected" in each.body for each in found] == [each not in bisected for each in ("a", "b")]
    assert all(f"First off: {each}." in alert.body for each, alert in zip("ab", found, strict=True))
