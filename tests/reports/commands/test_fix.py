"""``ftmatrix fix``: the text of an earlier fix, its exit codes and its refusals."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from matrix.search.fixes import Change, Fix, Fixes, Kind
from reports.answers import knowledge
from reports.results import stored_results

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., tuple[int, str, str]]

CASE = "train-lora-fsdp1-use_orig_params_false-fp32"  # red on every published set, as FSDP1 says it has to be
CELL = f"2025-09__{CASE}"
GREEN = Fix(
    set="2025-09",
    case=CASE,
    kind=Kind.SETTINGS,
    to_set="2025-09",
    to_case="train-lora-fsdp1-fp32",
    changes=(Change(name="use_orig_params", old=False, new=True),),
    runs=2,
    witnesses=(CELL,),
    tried=6,
    within="6 single settings",
)
NONE = Fix(set="2025-09", case=CASE, kind=Kind.NONE, tried=9, within="9 single settings")


@pytest.fixture
def results(tmp_path: Path) -> Callable[[Fix], tuple[str, str]]:
    """Return a function that publishes results with one fix."""
    published = stored_results.locate(knowledge.PUBLISHED)
    assert published is not None
    (tmp_path / published.name).symlink_to(published)

    def put(fix: Fix) -> tuple[str, str]:
        found = Fixes(generated=datetime.now(UTC), device="cpu", hardware="cpu: test", code="c0de", fixes=(fix,))
        (tmp_path / "fixes.json").write_text(found.model_dump_json(by_alias=True))
        return "--from", str(tmp_path)

    return put


def test_a_fix_is_printed_as_an_edit(ftmatrix: Command, results: Callable[[Fix], tuple[str, str]]) -> None:
    code, out, _ = ftmatrix("fix", CELL, "--look-up", "--device", "cpu", *results(GREEN))
    assert code == 0
    assert "+    use_orig_params=True," in out


def test_no_fix_within_the_tried_changes_exits_with_1(
    ftmatrix: Command, results: Callable[[Fix], tuple[str, str]]
) -> None:
    code, out, _ = ftmatrix("fix", CELL, "--look-up", "--device", "cpu", *results(NONE))
    assert code == 1
    assert out.startswith(f"{CELL}\nNo fix found on CPU (gloo), cpu: test, ")
    assert out.endswith(" (9 single settings).\n")


def test_a_fix_of_another_device_is_not_printed(ftmatrix: Command, results: Callable[[Fix], tuple[str, str]]) -> None:
    code, out, err = ftmatrix("fix", CELL, "--look-up", "--device", "cuda", *results(GREEN))
    assert (code, out) == (2, "")
    assert "no published search covers it on cuda" in err


def test_without_an_earlier_fix_there_is_none_to_run_again(
    ftmatrix: Command, results: Callable[[Fix], tuple[str, str]]
) -> None:
    code, out, err = ftmatrix("fix", CELL, "--again", "--device", "cpu", *results(NONE))
    assert (code, out) == (2, "")
    assert "no earlier search found a fix for any of these cells" in err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--only", "versions"), "no earlier search found a fix for any of these cells"),
        (("--look-up",), "--look-up runs nothing"),
    ],
)
def test_only_fixes_of_the_chosen_kinds_run_again(
    ftmatrix: Command, results: Callable[[Fix], tuple[str, str]], more: tuple[str, ...], message: str
) -> None:
    code, out, err = ftmatrix("fix", CELL, "--again", *more, "--device", "cpu", *results(GREEN))
    assert (code, out) == (2, "")
    assert message in err


def test_json_has_the_same_fix(ftmatrix: Command, results: Callable[[Fix], tuple[str, str]]) -> None:
    code, out, _ = ftmatrix("fix", CELL, "--look-up", "--json", "--device", "cpu", *results(GREEN))
    (found,) = json.loads(out)["fixes"]
    assert (code, found["changes"]) == (0, [{"name": "use_orig_params", "old": False, "new": True}])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name one cell"),
        (("nonsense",), "'nonsense' is no cell"),
        ((f"2025-09__{CASE}x",), f"did you mean {CASE}"),
        (("--all", "--sets", "1999"), "1999"),
        (("--all", "--profile", "vast"), "unknown profile 'vast'; choose from"),
        (("--known", "no-such-problem"), "unknown problem 'no-such-problem'"),
        ((CELL, "--only", "luck"), "--only luck: unknown kind of change; choose from settings, versions, alternative"),
        ((CELL, "--from", "nowhere"), "nowhere: holds no results"),
        ((CELL, "--device", "tpu"), "--device tpu: expected auto, cpu, cuda or cuda-gloo"),
        ((CELL, "--workers", "0"), "--workers 0: expected a whole number above 0"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(ftmatrix: Command, arguments: tuple[str, ...], message: str) -> None:
    code, _, err = ftmatrix("fix", *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
