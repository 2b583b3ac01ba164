"""``ftmatrix diff``, ``baseline`` and ``history``: their output, files and exit codes."""

from __future__ import annotations

import gzip
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from reports.answers.diff.sides import REPEATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, SetRecord

    Command = Callable[..., tuple[int, str, str]]
    RunOf = Callable[..., Path]

CASE = "train-lora-ddp-fp32"


@pytest.fixture
def run_of(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_run: Callable[..., Path],
    build_set: Callable[..., SetRecord],
    build_outcome: Callable[..., Outcome],
) -> RunOf:
    """``run_of("new", "fail")``: the folder of a run of one case; the working directory holds such runs only."""
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path / "runs")

    def written(
        name: str, verdict: str, *, device: str = "cpu", hardware: str = "test", sets: tuple[str, ...] = ("2024-06",)
    ) -> Path:
        where = f"{device}: {hardware}"
        outcomes = [build_outcome(CASE, each, verdict, hardware=where) for each in sets]
        columns, planned = [build_set(each) for each in sets], tuple(f"{each}__{CASE}" for each in sets)
        return write_run(*outcomes, name=name, columns=columns, device=device, hardware=where, planned=planned)

    return written


@pytest.mark.parametrize(("new", "code"), [("fail", 1), ("pass", 0), ("skip", 0), ("lost", 0)])
def test_only_a_regression_exits_with_1(new: str, code: int, ftmatrix: Command, run_of: RunOf) -> None:
    assert ftmatrix("diff", str(run_of("base", "pass")), str(run_of("new", new)))[0] == code


def test_a_regression_without_repeats_says_so(ftmatrix: Command, run_of: RunOf) -> None:
    out = ftmatrix("diff", str(run_of("base", "pass")), str(run_of("new", "fail")))[1]
    assert "Regressed (1)" in out
    assert "not repeated" in " ".join(out.split())


def test_the_summary_counts_unknown_skipped_and_lost_cells(ftmatrix: Command, run_of: RunOf) -> None:
    out = ftmatrix("diff", str(run_of("base", "pass")), str(run_of("new", "lost")))[1]
    assert "1 unknown, 0 still green. Of the unknown: 0 skip, 1 lost, 0 blocked, 0 not run." in " ".join(out.split())


def test_stored_repeats_make_a_regression_flaky(ftmatrix: Command, run_of: RunOf) -> None:
    base, new = run_of("base", "pass"), run_of("new", "fail")
    run_of(f"new/{REPEATS}", "pass")
    code, out, _ = ftmatrix("diff", str(base), str(new), "--json")
    assert (code, json.loads(out)["counts"]["flaky"]) == (0, 1)


def test_repeats_on_other_hardware_do_not_count(ftmatrix: Command, run_of: RunOf) -> None:
    base, new = run_of("base", "pass"), run_of("new", "fail")
    run_of(f"new/{REPEATS}", "pass", hardware="other")
    code, out, _ = ftmatrix("diff", str(base), str(new), "--json")
    assert code == 1
    assert "do not count" in json.loads(out)["notes"][0]


def test_junit_has_one_failure_for_each_regression(ftmatrix: Command, run_of: RunOf) -> None:
    out = ftmatrix("diff", str(run_of("base", "pass")), str(run_of("new", "fail")), "--format", "junit")[1]
    assert [each.get("type") for each in ET.fromstring(out).iter("failure")] == ["regressed"]  # noqa: S314 - our own


def test_markdown_has_a_table_of_regressions(ftmatrix: Command, run_of: RunOf) -> None:
    out = ftmatrix("diff", str(run_of("base", "pass")), str(run_of("new", "fail")), "--format", "markdown")[1]
    assert f"| `2024-06__{CASE}` | ✓ | ✗ |" in out


def test_an_incomplete_last_line_is_noted(ftmatrix: Command, run_of: RunOf) -> None:
    base, new = run_of("base", "pass"), run_of("new", "pass")
    with (new / "outcomes.jsonl").open("a") as file:
        file.write('{"schema": 4, "set"')
    assert "ends in an incomplete line" in " ".join(ftmatrix("diff", str(base), str(new))[1].split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("base", "gpu"), "base ran on cpu and gpu on cuda; `ftmatrix devices` compares devices"),
        (("base", "other"), "add --across-hardware"),
        (("baseline", "base"), "baseline/cpu: no baseline accepted yet; accept a run with `ftmatrix baseline accept"),
        (("base", "baseline"), "write: ftmatrix diff baseline RUN"),
        (("base", "2025-06"), "2025-06: no such folder"),
        (("2025-9", "2025-06"), "2025-9: neither a folder of results nor a set"),
        (("2025-06", "2025-06"), "both sides are 2025-06"),
        (("base", "base", "--format", "yaml"), "--format yaml: unknown format; choose from table"),
        (("base", "base", "--quarantine", "none.toml"), "none.toml: no such file"),
    ],
)
def test_bad_input_is_one_sentence(words: tuple[str, ...], message: str, ftmatrix: Command, run_of: RunOf) -> None:
    run_of("base", "pass")
    run_of("gpu", "pass", device="cuda")
    run_of("other", "pass", hardware="other")
    code, _, err = ftmatrix("diff", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


def test_hardware_may_differ_on_request(ftmatrix: Command, run_of: RunOf) -> None:
    base, new = run_of("base", "pass"), run_of("new", "fail", hardware="other")
    assert ftmatrix("diff", str(base), str(new), "--across-hardware")[0] == 1


def test_a_run_is_compared_with_the_accepted_baseline(ftmatrix: Command, run_of: RunOf) -> None:
    assert ftmatrix("baseline", "accept", str(run_of("base", "pass")))[0] == 0
    assert ftmatrix("diff", "baseline", str(run_of("new", "fail")))[0] == 1


def test_accepting_names_what_becomes_red(ftmatrix: Command, run_of: RunOf) -> None:
    ftmatrix("baseline", "accept", str(run_of("base", "pass")))
    out = ftmatrix("baseline", "accept", str(run_of("new", "fail")))[1]
    assert f"becomes red: 2024-06__{CASE}" in out


def test_alerts_have_the_first_night_of_the_history_and_the_green_cells(ftmatrix: Command, run_of: RunOf) -> None:
    base, new = run_of("base", "pass"), run_of("new", "fail")
    ftmatrix("diff", str(base), str(new), "--alerts", "first.json")
    ftmatrix("history", "add", str(new))
    (month,) = (Path.cwd() / "history").glob("*.parquet")
    table = pd.read_parquet(month)
    table["night"] -= pd.Timedelta(days=9)
    table.to_parquet(month)
    ftmatrix("diff", str(base), str(new), "--alerts", "second.json")
    nights = [json.loads((Path.cwd() / f"{each}.json").read_text()) for each in ("first", "second")]
    assert [each["alerts"][0]["first_seen"] for each in nights] == ["2026-11-20", "2026-11-11"]
    ftmatrix("diff", str(new), str(base), "--alerts", "third.json")
    green = json.loads((Path.cwd() / "third.json").read_text())["green"]
    assert green == [{"device": "cpu", "set": "2024-06", "cases": [CASE]}]


def test_a_run_without_results_is_no_baseline(run_of: RunOf, ftmatrix: Command) -> None:
    code, _, err = ftmatrix("baseline", "accept", str(run_of("none", "lost")))
    assert (code, "no cell of it ran" in err) == (2, True)


def test_a_baseline_of_a_newer_schema_is_refused(ftmatrix: Command, run_of: RunOf) -> None:
    run = run_of("new", "pass")
    (Path.cwd() / "baseline" / "cpu").mkdir(parents=True)
    (Path.cwd() / "baseline" / "cpu" / "matrix.json").write_text('{"schema": 99}')
    code, _, err = ftmatrix("diff", "baseline", str(run))
    assert (code, "schema 99 is newer" in err) == (2, True)


@pytest.mark.parametrize("damage", ["cut", "text", "{}", "[]"])
def test_accepting_a_run_replaces_a_damaged_baseline(ftmatrix: Command, run_of: RunOf, damage: str) -> None:
    run = run_of("new", "pass")
    ftmatrix("baseline", "accept", str(run))
    path = Path.cwd() / "baseline" / "cpu" / "matrix.json.gz"
    path.write_bytes(path.read_bytes()[:-99] if damage == "cut" else damage.encode())
    code, _, err = ftmatrix("diff", "baseline", str(run))
    assert (code, err.count("\n")) == (2, 1)
    assert "baseline/cpu: the baseline is damaged (" in err
    assert "`ftmatrix baseline accept RUN` replaces it" in err
    code, out, _ = ftmatrix("baseline", "accept", str(run))
    assert (code, "the old baseline is damaged, so nothing is compared with it" in out) == (0, True)
    assert ftmatrix("diff", "baseline", str(run))[0] == 0


def test_accepting_a_run_replaces_a_baseline_that_somebody_unpacked(ftmatrix: Command, run_of: RunOf) -> None:
    run = run_of("new", "pass")
    ftmatrix("baseline", "accept", str(run))
    path = Path.cwd() / "baseline" / "cpu" / "matrix.json.gz"
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()
    ftmatrix("baseline", "accept", str(run))
    assert ftmatrix("diff", "baseline", str(run))[0] == 0


def test_a_run_of_other_sets_can_be_accepted(ftmatrix: Command, run_of: RunOf) -> None:
    ftmatrix("baseline", "accept", str(run_of("base", "pass", sets=("2024-06", "2024-12"))))
    code, out, _ = ftmatrix("baseline", "accept", str(run_of("new", "pass", sets=("2025-06", "2025-12"))))
    assert code == 0
    assert "nothing is compared with the old baseline: " in out
    assert "2025-06, 2025-12: 2 cells" in ftmatrix("baseline", "show")[1]


def test_show_without_a_baseline_exits_with_1(ftmatrix: Command, run_of: RunOf) -> None:
    run_of("new", "pass")
    code, out, _ = ftmatrix("baseline", "show")
    assert (code, "no baseline accepted yet" in out) == (1, True)


def test_the_history_draws_an_added_run(ftmatrix: Command, run_of: RunOf) -> None:
    assert ftmatrix("history", "add", str(run_of("new", "fail")))[0] == 0
    code, out, _ = ftmatrix("history", CASE, "--months", "1200")
    assert code == 0
    assert "2026-11-20  fail, 1 night, 0.8 s: unexplained" in out


def test_a_run_without_outcomes_is_no_night(ftmatrix: Command, run_of: RunOf) -> None:
    run = run_of("none", "lost")
    (run / "outcomes.jsonl").write_text("")
    code, _, err = ftmatrix("history", "add", str(run))
    assert (code, "no outcome yet, so nothing was added" in err) == (2, True)
    assert not (Path.cwd() / "history").exists()


def test_a_run_without_a_directory_cannot_be_repeated(ftmatrix: Command, run_of: RunOf) -> None:
    code, _, err = ftmatrix("diff", str(run_of("base", "pass")), "missing", "--repeat", "1")
    assert (code, "is no run directory" in err) == (2, True)
