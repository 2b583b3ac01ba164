"""Tests ``ftmatrix pr`` on the fake ecosystem, with real builds, environments and processes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    Pr = Callable[..., subprocess.CompletedProcess[str]]

TWICE = "SCALE = 2.0\n"


@pytest.fixture
def pr(mini: Any) -> Pr:
    """Runs ``ftmatrix pr``, with both runs in the folder ``compared``."""

    def compare(*words: str) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = mini.command("pr", "--out", str(mini.folder / "compared"), *words)
        return done

    return compare


@pytest.fixture
def peft(checkout: Callable[..., Any]) -> Any:
    return checkout("peft")


def cells(folder: Path) -> list[tuple[str, str]]:
    lines = (folder / "outcomes.jsonl").read_text().splitlines()
    return [(line["case"].split("-")[1], line["verdict"]) for line in map(json.loads, lines)]


def test_a_change_that_makes_a_cell_red_is_a_regression(mini: Any, pr: Pr, peft: Any) -> None:
    peft.change(TWICE)
    summary = mini.folder / "summary.md"
    done = pr("--with", str(peft.folder), "--summary", str(summary))
    assert done.returncode == 1, done.stderr
    assert "Regressed (1)" in done.stdout
    assert "red in 3 of 3 runs" in " ".join(done.stdout.split())
    assert "1 still red for the same reason" in " ".join(done.stdout.split())
    assert "## Regressed (1)" in summary.read_text()
    assert "peft 0.0.1 -> 0.0.1+g" in done.stdout
    assert sorted(cells(mini.folder / "compared" / "base")) == [("dora", "pass"), ("lora", "pass"), ("vera", "fail")]
    assert sorted(cells(mini.folder / "compared" / "new")) == [("dora", "pass"), ("lora", "wrong"), ("vera", "fail")]


def test_a_change_without_effect_is_no_regression(pr: Pr, peft: Any) -> None:
    peft.change("# a comment\n")
    done = pr("--with", str(peft.folder))
    assert done.returncode == 0, done.stderr
    assert "0 regressed" in done.stdout


def test_a_check_that_moves_within_its_tolerance_is_listed(mini: Any, pr: Pr, peft: Any) -> None:
    peft.change("SCALE = 1.03\n")
    summary = mini.folder / "summary.md"
    done = pr("--with", str(peft.folder), "--summary", str(summary))
    assert done.returncode == 0, done.stderr
    words = "gradient: 0% -> 50% of the tolerance"
    assert words in done.stdout
    assert "## Green, but checks moved within their tolerance (1)" in summary.read_text()
    assert words.replace("->", "-\\>") in summary.read_text()


def test_a_cell_that_becomes_green_is_repeated_on_the_base_side(mini: Any, pr: Pr, peft: Any) -> None:
    peft.change("REPAIRED = True\n")
    done = pr("--with", str(peft.folder))
    assert done.returncode == 0, done.stderr
    assert "Fixed (1)" in done.stdout
    assert cells(mini.folder / "compared" / "base" / "repeats") == [("vera", "fail"), ("vera", "fail")]


def test_a_second_change_runs_only_the_new_side(mini: Any, pr: Pr, peft: Any) -> None:
    pr("--with", str(peft.folder))
    peft.change("# a comment\n")
    done = mini.command("pr", "--with", str(peft.folder), "--out", str(mini.folder / "second"))
    assert done.returncode == 0, done.stderr
    source = mini.folder / "cache" / "pr" / "cpu-pypi"
    assert len(cells(source)) == 3
    assert len(cells(mini.folder / "second" / "new")) == 3


def test_the_base_may_be_an_earlier_run(mini: Any, pr: Pr, peft: Any) -> None:
    done = mini.command("run", "--profile", "quick", "--sets", "good", "--out", str(mini.out), "--cold-sample", "0")
    assert done.returncode == 0, done.stderr
    peft.change(TWICE)
    done = pr("--with", str(peft.folder), "--base", str(mini.out))
    assert done.returncode == 1, done.stderr
    assert not (mini.folder / "compared" / "base").exists()


def test_a_base_of_other_hardware_is_refused(mini: Any, pr: Pr, peft: Any) -> None:
    mini.command("run", "--profile", "quick", "--sets", "good", "--out", str(mini.out), "--cold-sample", "0")
    record = mini.out / "run.json"
    record.write_text(record.read_text().replace('"hardware": "cpu', '"hardware": "cpu: other'))
    done = pr("--with", str(peft.folder), "--base", str(mini.out))
    assert (done.returncode, "name a set with --base instead" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--base", "god"), "unknown version set 'god'; did you mean good?"),
        (("--base", "./runs/none"), "no run is there; name the directory of a run, a set, or newest"),
        (("--minutes", "0"), "--minutes 0.0: expected a number above 0"),
        (("--base", "unresolvable"), "no cell ran on both sides, so nothing is compared: blocked on both sides"),
        (("--summary", "/nowhere/summary.md"), "--summary /nowhere/summary.md: cannot be written"),
    ],
)
def test_bad_input_is_one_sentence(pr: Pr, peft: Any, words: tuple[str, ...], sentence: str) -> None:
    done = pr("--with", str(peft.folder), *words)
    assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
