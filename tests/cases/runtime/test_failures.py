"""The text of an error, or of a log, identifies the kind of a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.runtime import failures
from cases.runtime.wire import ErrorReport
from cases.space.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

# Messages of torch 2.3 to 2.15, NCCL, Triton and bitsandbytes.
ERRORS = [
    ("RuntimeError", "CUDA error: an illegal memory access was encountered\nCUDA kernel", "illegal memory access"),
    ("AcceleratorError", "CUDA error: an illegal memory access was encountered", "illegal memory access"),
    ("RuntimeError", "Triton Error [CUDA]: an illegal memory access was encountered", "illegal memory access"),
    (
        "DistBackendError",
        "NCCL error in: NCCLUtils.cpp:1, unhandled cuda error\nCuda failure 'an illegal memory access was encountered'",
        "illegal memory access",
    ),
    ("AcceleratorError", "CUDA error: device-side assert triggered", "device-side assert"),
    ("RuntimeError", "CUDA error: misaligned address", "misaligned address"),
    ("RuntimeError", "CUDA error: unspecified launch failure", "launch failure"),
    ("RuntimeError", "CUDA error: uncorrectable ECC error encountered", "hardware error"),
    ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has", "out of device memory"),
    ("AcceleratorError", "CUDA error: out of memory", "out of device memory"),
    (
        "RuntimeError",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "out of device memory",
    ),
    (
        "RuntimeError",
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to",
        "out of host memory",
    ),
    ("MemoryError", "", "out of host memory"),
    ("OSError", "[Errno 12] Cannot allocate memory", "out of host memory"),
    (
        "DistBackendError",
        "NCCL error in: ../torch/csrc/distributed/NCCLUtils.cpp:328, invalid usage\nncclInvalidUsage: This usually",
        "NCCL error",
    ),
]


@pytest.mark.parametrize(("kind", "message", "name"), ERRORS)
def test_an_error_has_the_name_of_its_kind(kind: str, message: str, name: str) -> None:
    found = failures.kind_of_error(ErrorReport(kind, message))
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("ValueError", "no"),
        ("RuntimeError", "CUDA error: no kernel image is available for execution on the device"),
        ("RuntimeError", "CUDA error: invalid device ordinal"),
        ("RuntimeError", "shape mismatch: value tensor of shape [2] cannot be broadcast"),
        ("AttributeError", "module 'torch' has no attribute 'ncclError'"),
    ],
)
def test_an_ordinary_exception_has_no_kind(kind: str, message: str) -> None:
    assert failures.kind_of_error(ErrorReport(kind, message)) is None


def test_every_kind_that_leaves_the_process_unusable_is_a_crash() -> None:
    assert {kind.name for kind in failures.KINDS if kind.verdict is not Verdict.CRASH} == {"NCCL error"}


@pytest.mark.parametrize(
    "message",
    [
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234",
        "Read error [127.0.0.1]:51: Connection reset by peer",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "NCCL communicator was aborted on rank 0.",
        "Application timeout caused pair closure",
    ],
)
def test_an_error_after_losing_another_rank_is_a_consequence(message: str) -> None:
    assert failures.is_consequence(ErrorReport("RuntimeError", message))


def test_an_error_of_the_ranks_own_is_no_consequence() -> None:
    assert not failures.is_consequence(
        ErrorReport("RuntimeError", "CUDA error: an illegal memory access was encountered")
    )


def test_the_last_words_are_the_last_line_that_names_a_failure(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    line = "Error an illegal memory access was encountered at line 90 in file /src/csrc/ops.cu"
    log.write_text(f"CUDA error: device-side assert triggered\n{line}\nbye\n")
    assert failures.last_words(log) == line


def test_a_log_that_names_no_failure_or_is_missing_has_no_last_words(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_bytes(b"\xff step 1\n")
    assert failures.last_words(tmp_path / "rank-0.log") == ""
    assert failures.last_words(tmp_path / "rank-1.log") == ""
