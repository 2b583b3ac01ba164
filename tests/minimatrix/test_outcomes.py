"""Compares the outcomes of misbehaving cases and blocked sets with `expected.toml`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomlkit

from matrix.run import store
from matrix.run.execute import Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EXPECTED = Path(__file__).with_name("expected.toml")
SPOILT = {
    "raises-on-import": "importing the stack raised ImportError: libfake.so.1: cannot open shared object file",
    "threads-on-import": "importing the stack started threads: watcher (torch, for torch)",
    "dies-on-import": "importing the stack was ended by SIGSEGV",
    "cuda-on-import": "importing the stack initialised CUDA",
}


def rows(lines: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Rows by case; a single row for a set in which every case has the same outcome."""
    told = {case: row(line) for case, line in sorted(lines.items())}
    first = next(iter(told.values()))
    return {"every case": first} if all(each == first for each in told.values()) else told


def row(line: Mapping[str, Any]) -> dict[str, str]:
    """The reason without the parts that change between runs, such as line numbers and megabytes."""
    told = {"verdict": line["verdict"], "phase": line["phase"] or "", "reason": stable(line["reason"])}
    if line["verdict"] == "blocked":
        del told["reason"]  # the resolver's words change with its version
    return {name: value for name, value in told.items() if value}


def stable(reason: str) -> str:
    known = re.sub(r"\.py:\d+", ".py:N", re.sub(r"held \d+ MiB", "held N MiB", reason))
    return known.encode("ascii", "backslashreplace").decode().replace("\x00", "\\0").replace("\x1b", "\\e")[:160]


def test_every_case_has_its_expected_outcome(whole: Any) -> None:
    seen = {key: rows(whole.of(key)) for key in whole.sets}
    actual = EXPECTED.with_suffix(".actual.toml")
    actual.write_text(tomlkit.dumps(seen), encoding="utf-8")
    expected = tomllib.loads(EXPECTED.read_text(encoding="utf-8")) if EXPECTED.exists() else {}
    assert seen == expected, f"to accept the new truth: mv {actual} {EXPECTED}"
    actual.unlink()


def test_the_name_of_a_case_starts_with_its_verdict(whole: Any) -> None:
    assert not [case for case, line in whole.of("good").items() if not case.startswith(line["verdict"] + "-")]


def test_a_run_with_a_lost_cell_exits_1(whole: Any) -> None:
    assert [step["code"] for step in whole.steps] == [1, 1]


def test_no_traceback_reaches_the_user(whole: Any) -> None:
    assert [step["err"] for step in whole.steps] == ["", ""]


def test_no_process_survives(whole: Any) -> None:
    assert whole.mini.alive() == {}


def test_children_that_a_case_left_behind_are_counted(whole: Any) -> None:
    assert whole.of("good")["pass-leaving-children"]["metrics"]["left_processes"] >= 3


def test_only_lost_cells_are_tried_twice(whole: Any) -> None:
    twice = {case for case, line in whole.of("good").items() if line["attempt"] > 1}
    assert twice == {"lost-saying-nothing", "lost-without-its-twin"}


def test_the_resolvers_reason_names_both_sides_of_the_conflict(whole: Any) -> None:
    reason = whole.of("unresolvable")["pass-plain"]["reason"]
    assert "peft==0.0.2" in reason
    assert "torch>=0.0.9" in reason


def test_the_installers_reason_names_the_package_and_the_hash(whole: Any) -> None:
    assert re.search(r"[Hh]ash mismatch for `\w+==0\.0\.1`", whole.of("refuses-install")["pass-plain"]["reason"])


def test_the_stored_run_can_be_read(whole: Any) -> None:
    _, sets, outcomes = store.read(whole.mini.out)
    assert {each.key for each in sets} == set(whole.sets)
    assert len(outcomes) == len(whole.mini.lines())


def test_every_planned_cell_has_one_line(whole: Any) -> None:
    assert len(whole.mini.lines()) == len({(line["set"], line["case"]) for line in whole.mini.lines()})


def test_the_report_is_written(whole: Any) -> None:
    assert {"index.html", "matrix.json", "matrix.md", "junit.xml"} <= {path.name for path in whole.mini.out.iterdir()}


def test_a_report_of_odd_text_is_utf_8(whole: Any) -> None:
    for name in ("index.html", "matrix.json", "matrix.md", "junit.xml"):
        assert (whole.mini.out / name).read_bytes().decode("utf-8", "strict")


def test_the_facts_of_an_outcome_are_its_environments(whole: Any) -> None:
    assert whole.of("good")["pass-plain"]["facts"]["torch"] == "0.0.1"


@pytest.mark.parametrize(
    ("case", "what", "text"),
    [
        ("hang-looping-on-rank-0", "rank 0 stacks", "loops_on_rank_0"),
        ("hang-looping-on-rank-0", "autopsy", "rank 1: loops_on_rank_0"),
        ("hang-stopped", "autopsy", "T (stopped)"),
        ("crash-segfault", "rank 0 stacks", "Segmentation fault"),
        ("fail-raising", "rank 0 log", "the stack says no"),
        ("fail-printing-garbage", "rank 0 log", "after a megabyte of garbage"),
    ],
)
def test_a_red_cell_keeps_its_evidence(whole: Any, case: str, what: str, text: str) -> None:
    path = whole.of("good")[case]["evidence"][what]
    assert text in (whole.mini.out / path).read_text(encoding="utf-8")


def test_a_hang_reports_the_durations_of_its_detection_analysis_and_end(whole: Any) -> None:
    metrics = whole.of("good")["hang-looping-on-rank-0"]["metrics"]
    assert 3.0 <= metrics["noticed_s"] < 6.0  # the limit of this run is 3 s
    assert metrics["noticed_s"] + metrics["autopsy_s"] <= metrics["aftermath_s"] < 20.0


def test_the_silence_of_ranks_is_measured(whole: Any) -> None:
    """The ranks of this case sleep for 0.05 s between two events."""
    assert 0.02 < whole.of("good")["pass-on-two-ranks"]["metrics"]["longest_silence_s"] < 3.0


@pytest.mark.parametrize(
    ("case", "failure"),
    [
        ("crash-segfault", "ended by a signal"),
        ("crash-vanishing-with-7", "ended without a report"),
        ("crash-out-of-memory", "out of host memory"),
        ("crash-breaking-a-gpu", "illegal memory access"),
        ("crash-by-a-library", "illegal memory access"),
        ("fail-raising", None),
    ],
)
def test_the_failure_of_a_crash_is_classified(whole: Any, case: str, failure: str | None) -> None:
    assert whole.of("good")[case]["facts"].get("failure") == failure


def test_a_log_of_megabytes_is_cut(whole: Any) -> None:
    path = whole.of("good")["fail-printing-garbage"]["evidence"]["rank 0 log"]
    assert (whole.mini.out / path).stat().st_size < 2**20


def test_no_logs_are_kept_of_green_cells(whole: Any) -> None:
    assert not list((whole.mini.out / "logs").glob("good__pass-*"))


def test_no_scratch_files_are_left(whole: Any) -> None:
    assert list(whole.mini.temporary.iterdir()) == []
    assert not (whole.mini.out / "work").exists()


def test_a_good_set_is_forked_from_a_warm_parent(whole: Any) -> None:
    started = {line["facts"]["start"] for line in whole.of("good").values() if "start" in line["facts"]}
    assert started == {"warm"}


@pytest.mark.parametrize(("key", "why"), SPOILT.items())
def test_a_set_that_cannot_be_forked_starts_cold_and_reports_the_reason(whole: Any, key: str, why: str) -> None:
    facts = whole.of(key)["pass-plain"]["facts"]
    assert (facts["start"], facts["why_cold"]) == ("cold", why)


def test_a_failed_import_is_not_reported_as_a_missing_option(whole: Any) -> None:
    assert whole.of("raises-on-import")["pass-where-a-need-is-met"]["verdict"] == "fail"


def test_a_warm_and_a_cold_start_agree(run_mini: Callable[..., Any]) -> None:
    mini = run_mini(sets="good", where="case=pass-plain,fail-raising,crash-segfault", cold_sample=3)
    assert all("cold_s" in line["metrics"] for line in mini.lines())


def test_a_run_can_be_all_cold(run_mini: Callable[..., Any]) -> None:
    (line,) = run_mini(sets="good", where="case=pass-on-two-ranks", cold=True).lines()
    assert (line["verdict"], line["facts"]["why_cold"]) == ("pass", "requested by --cold")


def test_pytest_can_run_the_suite_in_an_environment(run_mini: Callable[..., Any], tmp_path: Path) -> None:
    mini = run_mini(sets="good", where="case=pass-plain")
    (python,) = (mini.folder / "cache" / "envs").glob("*/bin/python")
    suite = Suite(module="minisuite", extra=(EXPECTED.with_name("minisuite.py"),))
    suite.copy(tmp_path / "alone")
    words = ("-m", "pytest", "-c", os.devnull, "cases", "--suite", "minisuite", "-k", "pass-plain or fail-raising-odd")
    command = [str(python), *words]
    done = subprocess.run(
        command, cwd=tmp_path / "alone", check=False, capture_output=True, text=True, env=mini.variables
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert mini.alive() == {}


def test_a_reused_environment_is_not_installed_again(run_mini: Callable[..., Any]) -> None:
    mini = run_mini(sets="good", where="case=pass-plain")
    (environment,) = (mini.folder / "cache" / "envs").glob("*/ftmatrix.json")
    made = environment.stat().st_ino
    assert mini.run(sets="good", where="case=pass-quick-00", resume=True).returncode == 0
    assert environment.stat().st_ino == made


def test_a_report_agrees_with_the_outcomes(whole: Any) -> None:
    cells = json.loads((whole.mini.out / "matrix.json").read_text(encoding="utf-8"))["cells"]
    said = {(cell["set"], cell["case"]): cell["verdict"] for cell in cells}
    assert said == {(line["set"], line["case"]): line["verdict"] for line in whole.mini.lines()}
