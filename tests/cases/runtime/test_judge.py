"""The states of its ranks determine the verdict on a cell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cases.runtime.judge import judge
from cases.runtime.rank import is_ours
from cases.runtime.rank_state import RankState
from cases.runtime.wire import ErrorReport
from cases.space.verdict import Phase, Verdict, at_least, at_most

GOOD = at_most("gradient", 0.01, 0.06)
BAD = at_most("gradient", 2.0, 0.06)


def done(number: int = 0, **other: Any) -> RankState:
    return RankState(
        number, phase=Phase.OPTIMIZER, **{"done": True, "exit_code": 0, "exit_at": 5.0, "checks": [GOOD], **other}
    )


def ended(number: int = 0, **other: Any) -> RankState:
    return RankState(number, phase=Phase.BACKWARD, **{"exit_at": 3.0, **other})


def raised(number: int = 0, at: float = 2.0, **other: Any) -> RankState:
    error = ErrorReport(**{"type": "ValueError", "message": "no\nreally", "traceback": "...", **other})
    return ended(number, error=error, error_at=at, exit_code=1)


def killed_by_us(number: int = 0, **other: Any) -> RankState:
    return ended(number, exit_code=-9, ended_by_us=True, **other)


@pytest.mark.parametrize(
    ("ranks", "verdict", "reason"),
    [
        ([done(), done(1)], Verdict.PASS, ""),
        ([done(), done(1, checks=[BAD])], Verdict.WRONG, "gradient 2 <= 0.06"),
        ([done(checks=[])], Verdict.LOST, "the case made no checks, so it shows nothing"),
        ([raised(), killed_by_us(1)], Verdict.FAIL, "ValueError: no"),
        ([done(), raised(1)], Verdict.FAIL, "ValueError: no"),
        ([raised(message="")], Verdict.FAIL, "ValueError"),
        ([raised(is_ours=True)], Verdict.LOST, "the harness's own code raised ValueError: no"),
        ([ended(exit_code=-11), killed_by_us(1)], Verdict.CRASH, "rank 0 was ended by SIGSEGV"),
        ([done(), ended(1, exit_code=-9)], Verdict.CRASH, "rank 1 was ended by SIGKILL"),
        ([ended(exit_code=0)], Verdict.CRASH, "rank 0 ended without a report, exit code 0"),
        ([ended(exit_code=7)], Verdict.CRASH, "rank 0 ended without a report, exit code 7"),
    ],
)
def test_the_states_of_the_ranks_determine_the_verdict(ranks: list[RankState], verdict: Verdict, reason: str) -> None:
    found = judge(ranks)
    assert (found.verdict, found.reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("stopped", "verdict"),
    [
        ("hang", Verdict.HANG),
        ("overload", Verdict.LOST),
        ("memory", Verdict.CRASH),
        ("client", Verdict.LOST),
    ],
)
def test_the_reason_to_stop_a_cell_determines_its_verdict(stopped: str, verdict: Verdict) -> None:
    assert judge([killed_by_us(), killed_by_us(1)], stopped=stopped, why="a reason").verdict is verdict


def test_the_reason_of_a_hang_names_the_call_of_each_rank() -> None:
    ranks = [done(), killed_by_us(1, waiting_in="all_reduce (distributed_c10d.py:2501)")]
    found = judge(ranks, stopped="hang", why="no sign of life for 60 s")
    assert found.reason == "no sign of life for 60 s: rank 1 in all_reduce (distributed_c10d.py:2501)"


def test_a_hang_has_the_phase_of_a_hanging_rank() -> None:
    assert judge([done(), killed_by_us(1)], stopped="hang", why="silence").phase is Phase.BACKWARD


def test_a_model_that_the_reference_does_not_know_is_skipped() -> None:
    unknown = raised(type="UnknownModelError", message="no reference implementation for 'bloom'", is_ours=True)
    found = judge([unknown, killed_by_us(1)])
    assert (found.verdict, found.phase) == (Verdict.SKIP, None)
    assert found.reason == "the reference cannot judge it: no reference implementation for 'bloom'"


def test_an_error_of_the_stack_counts_even_if_the_reference_does_not_know_the_model() -> None:
    assert judge([raised(at=1.0), raised(1, at=2.0, type="UnknownModelError", is_ours=True)]).verdict is Verdict.FAIL


def test_the_first_of_two_errors_counts() -> None:
    assert judge([raised(at=2.5), raised(1, at=2.0, type="TypeError")]).reason == "TypeError: no"


def test_the_error_names_the_rank_that_raised_it() -> None:
    error = judge([done(), raised(1)]).error
    assert error is not None
    assert error.rank == 1


def test_a_death_before_the_first_error_is_its_cause() -> None:
    assert judge([replace(ended(exit_code=-11), exit_at=1.0), raised(1, at=2.0)]).verdict is Verdict.CRASH


def test_an_error_before_the_first_death_is_its_cause() -> None:
    assert judge([ended(exit_code=-6), raised(1, at=2.0)]).verdict is Verdict.FAIL


GONE: dict[str, Any] = {"type": "RuntimeError", "message": "Connection closed by peer [127.0.0.1]:1234"}
ILLEGAL: dict[str, Any] = {
    "type": "AcceleratorError",
    "message": "CUDA error: an illegal memory access was encountered\nmore",
}


def test_a_rank_that_lost_another_one_is_not_to_blame() -> None:
    """Although its error arrived before the other's death was seen."""
    found = judge([raised(at=1.0, **GONE), replace(ended(1, exit_code=3), exit_at=9.0)])
    assert (found.verdict, found.reason) == (Verdict.CRASH, "rank 1 ended without a report, exit code 3")
    assert judge([raised(at=1.0, **GONE), raised(1, at=9.0)]).reason == "ValueError: no"


def test_a_rank_that_lost_another_one_counts_if_no_other_is_to_blame() -> None:
    assert "Connection closed" in judge([raised(at=1.0, **GONE), killed_by_us(1)]).reason


def test_an_error_that_breaks_the_gpu_is_a_crash_with_a_name() -> None:
    found = judge([killed_by_us(), raised(1, **ILLEGAL)])
    assert (found.verdict, found.failure) == (Verdict.CRASH, "illegal memory access")
    assert found.reason == (
        "illegal memory access: AcceleratorError: CUDA error: an illegal memory access was encountered"
    )


def test_an_error_of_the_gpu_is_never_an_error_of_the_harness() -> None:
    assert not is_ours(RuntimeError(ILLEGAL["message"]), observing=True)


def test_the_last_words_of_a_vanished_rank_name_its_failure() -> None:
    words = "terminate called, what(): CUDA error: device-side assert triggered"
    found = judge([ended(exit_code=-6, last_words=words)])
    assert found.failure == "device-side assert"
    assert found.reason == f"device-side assert: rank 0 was ended by SIGABRT; last output: {words}"


def test_a_rank_that_the_kernel_killed_for_memory_ran_out_of_host_memory() -> None:
    found = judge([ended(exit_code=-9, oom_killed=True)])
    assert found.failure == "out of host memory"
    assert found.reason.startswith("out of host memory: rank 0 was ended by SIGKILL")


@pytest.mark.parametrize(("code", "name"), [(-11, "ended by a signal"), (0, "ended without a report")])
def test_other_deaths_are_named_after_signal_or_silent_exit(code: int, name: str) -> None:
    assert judge([ended(exit_code=code)]).failure == name


def test_an_ordinary_exception_has_no_kind() -> None:
    assert judge([raised()]).failure == ""


def test_a_death_after_done_does_not_count() -> None:
    assert judge([done(exit_code=-11)]).verdict is Verdict.PASS


def test_the_worst_measurement_of_any_rank_is_kept() -> None:
    found = judge([done(checks=[at_most("loss", 0.2, 1.0)]), done(1, checks=[at_most("loss", 0.4, 1.0)])])
    assert [check.value for check in found.checks] == [0.4]


def test_the_smallest_value_of_a_lower_bound_is_the_worst() -> None:
    found = judge([done(checks=[at_least("moved", 5, 1)]), done(1, checks=[at_least("moved", 3, 1)])])
    assert [check.value for check in found.checks] == [3.0]


def test_nan_on_one_rank_is_the_worst() -> None:
    ranks = [done(checks=[at_most("loss", float("nan"), 1.0)]), done(1, checks=[at_most("loss", 9.0, 1.0)])]
    assert judge(ranks).verdict is Verdict.WRONG
