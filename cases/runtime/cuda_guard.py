"""Keeps CUDA uninitialised while the stack is imported: a fork queries the GPUs and passes the answers on.

Ranks cannot be forked from a process that initialised CUDA, and importing alone queries GPUs: bitsandbytes for the
compute capability, torch's compiler to find out whether Triton would run. The guard answers with the GPUs' real
properties, which another process read. Code that initialises CUDA in another way may do so; the guard records its line,
and every rank has to start cold.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parents[1]
INITIALISED: list[str] = []  # the line that initialised CUDA in this process under the guard, if one did
PASSERS = ("/torch/cuda/", "/importlib/", "<frozen")  # files whose frames only pass a query on


class CudaStandIn:
    """Replaces two functions of ``torch.cuda``, which its other functions call, as long as it is ``on``.

    Code that kept a reference to one of them during an import gets the real function later.
    """

    def __init__(self, cuda: Any) -> None:
        self.cuda, self.on = cuda, True
        self.real = {name: getattr(cuda, name) for name in ("current_device", "get_device_properties", "_lazy_init")}

    def current_device(self) -> Any:
        return 0 if self.on else self.real["current_device"]()  # no code has chosen another device yet

    def get_device_properties(self, device: Any = None) -> Any:
        real = self.real["get_device_properties"]
        if not self.on:
            return real(device)
        known = self.properties
        index = 0 if device is None else self.cuda._utils._get_device_index(device)  # noqa: SLF001 - accepts every way to name a device
        return known[index] if index < len(known) else real(device)

    def initialise(self) -> Any:
        if self.on and not self.cuda.is_initialized():
            INITIALISED.append(calling_line())
        return self.real["_lazy_init"]()

    @functools.cached_property
    def properties(self) -> list[Any]:
        """The properties of every visible GPU; empty if the query failed."""
        count, real = self.cuda.device_count(), self.real["get_device_properties"]
        return [SimpleNamespace(**each) for each in query_in_fork(lambda: [plain(real(n)) for n in range(count)])]


@contextlib.contextmanager
def uninitialised_cuda() -> Iterator[None]:
    """Avoid that imports inside initialise CUDA. The guard imports torch first.

    Raises:
        Exception: whatever importing torch raises.
    """
    import torch

    if torch.version.cuda is None or not torch.cuda.is_available():
        yield
        return
    stand_in = CudaStandIn(torch.cuda)
    replacements = {
        "current_device": stand_in.current_device,
        "get_device_properties": stand_in.get_device_properties,
        "_lazy_init": stand_in.initialise,
    }
    for name, function in replacements.items():
        setattr(torch.cuda, name, function)
    try:
        yield
    finally:
        stand_in.on = False
        for name, function in stand_in.real.items():
            setattr(torch.cuda, name, function)
        clear_compiler_caches()


def clear_compiler_caches() -> None:
    """Clear the properties that torch's compiler cached, so that each rank queries its own GPU."""
    interface = sys.modules.get("torch._dynamo.device_interface")
    for name in ("caching_worker_device_properties", "caching_worker_current_devices"):
        getattr(interface, name, {}).clear()


def query_in_fork(query: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The result of a query in a process of its own; empty if it failed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(Exception):
            os.write(writing, json.dumps(query()).encode())  # less than a pipe holds
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as source:
        text = source.read()
    os.waitpid(pid, 0)
    found: list[dict[str, Any]] = json.loads(text) if text else []
    return found


def plain(properties: Any) -> dict[str, Any]:
    """The properties of a device that are numbers or strings."""
    names = [name for name in dir(properties) if not name.startswith("_")]
    found = {name: getattr(properties, name, None) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, (int, float, str))}


def calling_line() -> str:
    """The line that the query came from, e.g. ``bitsandbytes/functional.py:123``."""
    frames = [frame for frame in traceback.extract_stack() if not Path(frame.filename).is_relative_to(HERE)]
    own = [frame for frame in frames if not any(word in frame.filename for word in PASSERS)]
    if not own:
        return "unknown"
    return f"{'/'.join(Path(own[-1].filename).parts[-2:])}:{own[-1].lineno}"
