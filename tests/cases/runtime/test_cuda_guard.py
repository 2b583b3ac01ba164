"""CUDA stays uninitialised while imports query GPUs; a module that initialises it nevertheless is named."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

import pytest

from cases.runtime import cuda_guard as module
from cases.runtime.cuda_guard import INITIALISED, query_in_fork, uninitialised_cuda

# Like torch.cuda: functions look up their helpers in the module, and a query about a device initialises CUDA.
CUDA = """
class Properties:
    def __init__(self, index):
        self.name, self.major, self.minor, self.uuid, self.queried_by = f"GPU {index}", 9, index, object(), os.getpid()

initialised = False

def is_available(): return True
def device_count(): return 2
def is_initialized(): return initialised

def _lazy_init():
    global initialised
    initialised = True

def current_device():
    _lazy_init()
    return 1

def get_device_properties(device=None):
    _lazy_init()
    return Properties(1 if device is None else _utils._get_device_index(device))

def get_device_capability(device=None):
    found = get_device_properties(device)
    return found.major, found.minor
"""


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A torch of two GPUs of compute capability 9.0 and 9.1, the second of which is the current one."""
    torch, found, utils, version = (ModuleType(name) for name in ("torch", "torch.cuda", "_utils", "torch.version"))
    vars(found)["os"] = os
    exec(CUDA, vars(found))  # noqa: S102 - our own text, a few lines above
    vars(utils)["_get_device_index"] = lambda device: int(str(device).removeprefix("cuda:"))
    vars(found)["_utils"], vars(version)["cuda"] = utils, "13.0"
    vars(torch).update(cuda=found, version=version)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(module, "INITIALISED", [])
    return found


def test_a_query_about_a_gpu_is_answered_without_initialising_cuda(cuda: Any) -> None:
    with uninitialised_cuda():
        assert cuda.get_device_capability("cuda:1") == (9, 1)
    assert not cuda.is_initialized()


def test_another_process_queries_the_requested_gpu(cuda: Any) -> None:
    with uninitialised_cuda():
        assert cuda.get_device_properties(1).name == "GPU 1"
        assert cuda.get_device_properties(1).queried_by != os.getpid()


def test_the_first_gpu_is_the_current_one_by_default(cuda: Any) -> None:
    with uninitialised_cuda():
        assert cuda.current_device() == 0
        assert cuda.get_device_capability() == (9, 0)


def test_the_real_functions_are_back_afterwards(cuda: Any) -> None:
    with uninitialised_cuda():
        kept = cuda.get_device_properties  # as `from torch.cuda import get_device_properties` does
    assert kept(0).queried_by == os.getpid()
    assert cuda.current_device() == 1


def test_code_that_initialises_cuda_nevertheless_is_named(cuda: Any) -> None:
    with uninitialised_cuda():
        cuda._lazy_init()
    assert cuda.is_initialized()
    (line,) = module.INITIALISED
    assert line.startswith("runtime/test_cuda_guard.py:")


def test_without_a_gpu_nothing_is_replaced(cuda: Any) -> None:
    vars(cuda)["is_available"] = lambda: False
    real = cuda.current_device
    with uninitialised_cuda():
        assert cuda.current_device is real


def test_the_real_functions_are_back_after_an_error_of_the_import(cuda: Any) -> None:
    real = cuda.current_device
    with pytest.raises(ImportError, match="no such library"), uninitialised_cuda():
        raise ImportError("no such library")
    assert cuda.current_device is real


def test_device_properties_that_torchs_compiler_cached_are_forgotten(
    cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    interface = ModuleType("torch._dynamo.device_interface")
    vars(interface)["caching_worker_device_properties"] = {"cuda": ["cached"]}
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    with uninitialised_cuda():
        cuda.get_device_properties(0)
    assert not vars(interface)["caching_worker_device_properties"]


def test_a_fork_that_fails_returns_nothing() -> None:
    def fails() -> list[dict[str, Any]]:
        raise RuntimeError("no driver")

    assert query_in_fork(fails) == []
    assert INITIALISED == []
