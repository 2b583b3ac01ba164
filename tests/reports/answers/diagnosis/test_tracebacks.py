"""What of a log may be the cause of a failure, and what belongs to it."""

from __future__ import annotations

import pytest

from reports.answers.diagnosis import signatures
from reports.answers.diagnosis.diagnose import Symptom, diagnose
from reports.answers.diagnosis.tracebacks import LogFailures, failures

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
WARNED = "UserWarning: None of the inputs have requires_grad=True. Gradients will be None"
HEAD = "Traceback (most recent call last):"
FRAME = "  File /workspace/train.py, line 4, in main"


def first(text: str) -> str:
    return next((each.signature.id for each in diagnose(Symptom(text=text))), "")


def test_what_was_raised_leads_and_a_warning_above_it_is_left_out() -> None:
    found = diagnose(Symptom(text=f"{WARNED}\n{HEAD}\n{FRAME}\n    step()\n{OOM}"))
    assert [each.signature.id for each in found] == ["gpu-out-of-memory"]


@pytest.mark.parametrize("line", [WARNED, OOM, "Cannot flatten integer dtype tensors"])
def test_a_line_that_stands_alone_counts(line: str) -> None:
    assert first(line)


def test_what_ended_a_rank_counts_beside_the_launcher_that_tells_of_it() -> None:
    launcher = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED"
    assert first(f"failed (exitcode: -9) local_rank: 0\n{HEAD}\n{FRAME}\n{launcher}") == "host-ended-the-process"


def test_a_warning_is_no_cause_of_what_only_a_launcher_tells_of() -> None:
    assert not first(f"{WARNED}\n{HEAD}\n{FRAME}\nKeyboardInterrupt")


def test_what_the_run_got_over_is_no_cause_of_what_failed_later() -> None:
    log = f"{HEAD}\n{FRAME}\n{OOM}\n{{'loss': 1.25, 'epoch': 0.1}}\n{HEAD}\n{FRAME}\n"
    assert first(f"{log}ZeroDivisionError: division by zero") == ""
    assert first(f"{log}torch.distributed.DistBackendError: NCCL communicator was aborted") == "gpu-out-of-memory"


def test_what_is_told_to_be_fixed_is_no_cause() -> None:
    assert not first('we fixed "Cannot flatten integer dtype tensors"')
    assert not first("We fixed the `ValueError: Cannot flatten integer dtype tensors`. Everything is green.")
    assert first("RuntimeError: Cannot flatten integer dtype tensors; it was fixed in 1.0, and is back")


def test_a_chain_of_exceptions_is_one_failure() -> None:
    chain = "During handling of the above exception, another exception occurred:"
    lines = [HEAD, FRAME, "KeyError: 1", "", chain, "", HEAD, FRAME, "ValueError: 2", "done", HEAD, FRAME, "OSError: 3"]
    assert [each.lines for each in failures(lines)] == [range(10), range(10, 13)]


def test_a_logger_writes_into_a_traceback_and_is_no_part_of_it() -> None:
    lines = [HEAD, FRAME, "2026 WARNING slow disk", "    step()", "RuntimeError: no"]
    told = LogFailures(lines)
    assert told.around(4) == [0, 1, 3, 4]
    assert not told.counts(2)


def test_a_lone_exception_has_the_few_lines_beside_it() -> None:
    lines = [*map(str, range(10)), "RuntimeError: no"]
    assert LogFailures(lines).around(10) == [7, 8, 9, 10]


def test_a_cause_that_must_pass_through_code_is_not_of_another_traceback() -> None:
    row = signatures.Signature(id="a", pattern="no", through="lib/x", cause="because", kind=signatures.CauseKind.BUG)
    own, other = FRAME.replace("/workspace", "/lib/x"), FRAME
    texts = ["RuntimeError: no", f"{HEAD}\n{own}\nRuntimeError: no", f"{HEAD}\n{other}\nRuntimeError: no"]
    assert [bool(diagnose(Symptom(text=text), [row])) for text in texts] == [True, True, False]
