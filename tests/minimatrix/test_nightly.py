"""Tests a night on the fake ecosystem, with real environments and processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from matrix.versions import locking, locks, sets, uv

if TYPE_CHECKING:
    from collections.abc import Callable

DRIVER = Path(__file__).with_name("drive_nightly.py")


def lock_base(mini: Any) -> Any:
    """Lock the base set, as a packaged one is."""
    (good,) = sets.select(sets.load(mini.versions), "good")
    tool = uv.on_this_machine(mini.folder / "cache", environ=mini.variables)
    made = locking.resolve(good, uv=tool)
    assert isinstance(made, locks.Lock)
    locks.write(made, folder=locks.locks_folder(mini.versions))
    return mini


@pytest.fixture(scope="session")
def one_night(kept_answer: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """The answers of two runs of the same night."""

    def run_twice(mini: Any) -> dict[str, Any]:
        first, measured = found(night(lock_base(mini))), measured_cells(mini)
        return {
            **first,
            "again": found(night(mini, "trl==0.0.3")),
            "measured": measured,
            "measured_again": measured_cells(mini),
        }

    return kept_answer("night", run_twice)


def measured_cells(mini: Any) -> list[str]:
    """The stored outcomes of the night, without blocked ones, which are tried again."""
    (path,) = (mini.folder / "nightly").glob("2026*/outcomes.jsonl")
    return [line for line in path.read_text(encoding="utf-8").splitlines() if '"verdict":"blocked"' not in line]


def night(mini: Any, *changes: str, minutes: str = "30") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DRIVER), str(mini.versions), str(mini.folder), minutes, *changes]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=mini.variables, timeout=240)


def found(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def culprits(alert: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each["name"], each["old"], each["new"]) for each in alert["moved"]]


def test_a_night_names_the_release_that_broke_a_cell(one_night: dict[str, Any]) -> None:
    assert {"nightly+trl", "nightly"} <= {*one_night["sets"]}
    single = next(each for each in one_night["alerts"] if "not like this" in each["gist"])
    assert culprits(single) == [("trl", "0.0.2", "0.0.3")]
    assert single["title"].startswith("trl 0.0.3: ")
    assert {each["set"] for each in single["cells"]} == {"nightly+trl", "nightly"}


def test_a_night_names_a_pair_that_breaks_only_together(one_night: dict[str, Any]) -> None:
    pair = next(each for each in one_night["alerts"] if "not together" in each["gist"])
    assert culprits(pair) == [("accelerate", "0.0.1", "0.0.2"), ("trl", "0.0.1", "0.0.2")]
    assert {each["set"] for each in pair["cells"]} == {"nightly"}


def test_a_release_that_does_not_fit_is_named(one_night: dict[str, Any]) -> None:
    assert any(note.startswith("nightly+peft was not measured: resolve: ") for note in one_night["notes"])


def test_the_same_night_goes_on_with_the_cells_that_it_has(one_night: dict[str, Any]) -> None:
    assert one_night["measured_again"] == one_night["measured"]
    first, again = ([each["title"] for each in answer["alerts"]] for answer in (one_night, one_night["again"]))
    assert again[: len(first)] == first


def test_a_change_is_compared_with_the_base_set_too(one_night: dict[str, Any]) -> None:
    (alert,) = (each for each in one_night["again"]["alerts"] if each["cells"][0]["set"] == "good+trl@")
    assert "not like this" in alert["gist"]
    assert culprits(alert) == [("trl", "0.0.1", "0.0.3")]


def test_a_budget_too_small_for_one_cell_is_one_sentence(mini: Any) -> None:
    done = night(lock_base(mini), minutes="0")
    assert done.stderr == "UserError: --minutes 0: too little for one cell of every set; allow more\n"
