"""Tests the bisection on the fake ecosystem, with real environments and processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DRIVER = Path(__file__).with_name("drive_bisect.py")
LATER = {"trl": "0.0.4", "accelerate": "0.0.2"}


@pytest.fixture
def later(mini: Any) -> Any:
    """Adds a set with two other versions."""
    mini.add_set("later", LATER)
    return mini


def bisect(mini: Any, case: str, good: str = "good", bad: str = "later") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DRIVER), str(mini.versions), str(mini.out), case, good, bad]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=mini.variables, timeout=240)


def culprits(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str, str]]:
    assert done.returncode == 0, done.stderr
    return [(each["package"], each["last_good"], each["first_bad"]) for each in json.loads(done.stdout)["culprits"]]


def test_the_package_and_its_release_are_found(later: Any) -> None:
    done = bisect(later, "train-lora-single-fp32")
    assert culprits(done) == [("trl", "0.0.2", "0.0.3")]
    answer = json.loads(done.stdout)
    assert (answer["pins"], answer["pins_base"], answer["pins_green"]) == ({"trl": "0.0.2"}, "later", True)


def test_the_good_end_may_be_an_earlier_release(later: Any) -> None:
    assert culprits(bisect(later, "train-lora-single-fp32", good="trl==0.0.1")) == [("trl", "0.0.2", "0.0.3")]


def test_a_second_call_runs_nothing_again(later: Any) -> None:
    first = bisect(later, "train-lora-single-fp32")
    cells = len(later.lines())
    assert culprits(bisect(later, "train-lora-single-fp32")) == culprits(first)
    assert len(later.lines()) == cells


def test_a_pair_that_breaks_only_together_is_found(later: Any) -> None:
    assert culprits(bisect(later, "train-dora-single-fp32")) == [
        ("accelerate", "0.0.1", "0.0.2"),
        ("trl", "0.0.1", "0.0.2"),
    ]


def test_a_release_with_another_failure_is_stepped_over(later: Any) -> None:
    done = bisect(later, "train-vera-single-fp32")
    assert culprits(done) == [("trl", "0.0.1", "0.0.3")]
    assert json.loads(done.stdout)["culprits"][0]["untestable"] == ["0.0.2"]


def test_a_flaky_difference_is_refused(later: Any) -> None:
    done = bisect(later, "train-ia3-single-fp32")
    assert done.returncode == 1
    assert done.stderr.startswith("FlakyDifferenceError: the difference does not reproduce: ")


def test_a_failure_that_shows_in_some_runs_is_found(later: Any) -> None:
    done = bisect(later, "train-rslora-single-fp32")
    assert culprits(done) == [("trl", "0.0.2", "0.0.3")]
    sure = json.loads(done.stdout)["certainty"]
    assert 0.0 < sure["flake_rate"] < 1.0
    assert sure["boundary_runs"] > sure["repeats"] > 1
    assert 0.9 < sure["confidence"] < 1.0


@pytest.mark.parametrize(
    ("case", "good", "bad", "problem"),
    [
        ("train-lora-single-fp32", "good", "good", "have the same packages"),
        ("train-lora-single-fp32", "later", "good", "is not green at the good end later"),
        ("train-lora-single-fp16", "good", "later", "did you mean train-lora-single-fp32"),
        ("train-lora-single-fp32", "god", "later", "did you mean good"),
    ],
)
def test_bad_input_is_one_sentence(later: Any, case: str, good: str, bad: str, problem: str) -> None:
    done = bisect(later, case, good, bad)
    assert done.returncode == 1
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1
