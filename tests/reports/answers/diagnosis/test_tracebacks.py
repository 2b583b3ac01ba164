"""The search for failures in a log finds the lines that may be the cause, and their context."""

from __future__ import annotations

import pytest

from reports.answers.diagnosis import signatures
from reports.answers.diagnosis.diagnose import diagnose
from reports.answers.diagnosis.symptoms import Symptom
from reports.answers.diagnosis.tracebacks import LogFailures, find_failures

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
WARNED = "UserWarning: None of the inputs have requires_grad=True. Gradients will be None"
HEAD = "Traceback (most recent call last):"
FRAME = "  File /workspace/train.py, line 4, in main"


def first(text: str) -> str:
    return next((each.signature.id for each in diagnose(Symptom(text=text))), "")


def test_a_warning_above_an_exception_is_ignored() -> None:
    diagnoses = diagnose(Symptom(text=f"{WARNED}\n{HEAD}\n{FRAME}\n    step()\n{OOM}"))
    assert [each.signature.id for each in diagnoses] == ["gpu-out-of-memory"]


@pytest.mark.parametrize("line", [WARNED, OOM, "Cannot flatten integer dtype tensors"])
def test_a_line_without_a_traceback_is_diagnosed(line: str) -> None:
    assert first(line)


def test_the_exit_code_of_a_rank_is_diagnosed_although_only_the_launcher_raised() -> None:
    launcher = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED"
    assert first(f"failed (exitcode: -9) local_rank: 0\n{HEAD}\n{FRAME}\n{launcher}") == "host-ended-the-process"


def test_a_warning_is_not_the_cause_of_a_failure_that_only_a_launcher_reports() -> None:
    assert not first(f"{WARNED}\n{HEAD}\n{FRAME}\nKeyboardInterrupt")


def test_an_error_that_the_run_recovered_from_does_not_cause_a_later_failure() -> None:
    log = f"{HEAD}\n{FRAME}\n{OOM}\n{{'loss': 1.25, 'epoch': 0.1}}\n{HEAD}\n{FRAME}\n"
    assert first(f"{log}ZeroDivisionError: division by zero") == ""
    assert first(f"{log}torch.distributed.DistBackendError: NCCL communicator was aborted") == "gpu-out-of-memory"


def test_an_error_that_somebody_reports_as_fixed_is_not_a_cause() -> None:
    assert not first('we fixed "Cannot flatten integer dtype tensors"')
    assert not first("We fixed the `ValueError: Cannot flatten integer dtype tensors`. Everything is green.")
    assert first("RuntimeError: Cannot flatten integer dtype tensors; it was fixed in 1.0, and is back")


def test_a_chain_of_exceptions_is_one_failure() -> None:
    chain = "During handling of the above exception, another exception occurred:"
    lines = [HEAD, FRAME, "KeyError: 1", "", chain, "", HEAD, FRAME, "ValueError: 2", "done", HEAD, FRAME, "OSError: 3"]
    assert [each.lines for each in find_failures(lines)] == [range(10), range(10, 13)]


def test_a_log_record_inside_a_traceback_does_not_belong_to_it() -> None:
    lines = [HEAD, FRAME, "2026 WARNING slow disk", "    step()", "RuntimeError: no"]
    failures = LogFailures(lines)
    assert failures.context(4) == [0, 1, 3, 4]
    assert not failures.may_be_cause(2)


def test_an_exception_without_a_traceback_has_a_few_lines_of_context() -> None:
    lines = [*map(str, range(10)), "RuntimeError: no"]
    assert LogFailures(lines).context(10) == [7, 8, 9, 10]


def test_a_signature_with_through_fits_no_traceback_of_other_code() -> None:
    row = signatures.Signature(id="a", pattern="no", through="lib/x", cause="because", kind=signatures.CauseKind.BUG)
    own, other = FRAME.replace("/workspace", "/lib/x"), FRAME
    texts = ["RuntimeError: no", f"{HEAD}\n{own}\nRuntimeError: no", f"{HEAD}\n{other}\nRuntimeError: no"]
    assert [bool(diagnose(Symptom(text=text), [row])) for text in texts] == [True, True, False]
