"""Keeps CUDA uninitialised while the stack is imported: what it asks of the GPUs, a fork asks them, and passes on.

A process that initialised CUDA cannot be forked from, and importing alone asks: bitsandbytes for the compute
capability, torch's compiler whether Triton would run. The answers are the GPUs' own; only who asked is another process,
which has ended. What touches them by any other way is left to do so, and named, for then every rank has to start cold.
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
INITIALISED: list[str] = []  # the line that initialised CUDA in this process while it was to stay untouched, if one did
PASSERS = ("/torch/cuda/", "/importlib/", "<frozen")  # files whose frames only pass a question on


class Answers:
    """Stands in for two functions of ``torch.cuda``, which its others ask in turn, as long as it is ``on``.

    Who took one of them by its name during an import keeps it: later it is the real one.
    """

    def __init__(self, cuda: Any) -> None:
        self.cuda, self.on = cuda, True
        self.real = {name: getattr(cuda, name) for name in ("current_device", "get_device_properties", "_lazy_init")}

    def current_device(self) -> Any:
        return 0 if self.on else self.real["current_device"]()  # nobody has chosen another yet

    def get_device_properties(self, device: Any = None) -> Any:
        real = self.real["get_device_properties"]
        if not self.on:
            return real(device)
        known = self.properties
        index = 0 if device is None else self.cuda._utils._get_device_index(device)  # noqa: SLF001 - reads any way to name one
        return known[index] if index < len(known) else real(device)

    def initialise(self) -> Any:
        if self.on and not self.cuda.is_initialized():
            INITIALISED.append(asker())
        return self.real["_lazy_init"]()

    @functools.cached_property
    def properties(self) -> list[Any]:
        """Of every GPU that is seen; none if they could not be asked."""
        count, real = self.cuda.device_count(), self.real["get_device_properties"]
        return [SimpleNamespace(**each) for each in told_by_a_fork(lambda: [plain(real(n)) for n in range(count)])]


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Inside, importing does not initialise CUDA if it can be helped. Needs torch, which is imported first.

    Raises:
        Exception: whatever importing torch raises.
    """
    import torch

    if torch.version.cuda is None or not torch.cuda.is_available():
        yield
        return
    answers = Answers(torch.cuda)
    stand_ins = {
        "current_device": answers.current_device,
        "get_device_properties": answers.get_device_properties,
        "_lazy_init": answers.initialise,
    }
    for name, stand_in in stand_ins.items():
        setattr(torch.cuda, name, stand_in)
    try:
        yield
    finally:
        answers.on = False
        for name, function in answers.real.items():
            setattr(torch.cuda, name, function)
        forget()


def forget() -> None:
    """Torch's compiler keeps the properties that it was told, and a rank is to ask for itself."""
    interface = sys.modules.get("torch._dynamo.device_interface")
    for name in ("caching_worker_device_properties", "caching_worker_current_devices"):
        getattr(interface, name, {}).clear()


def told_by_a_fork(question: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The answer, asked in a process of its own; empty if it gave none."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(Exception):
            os.write(writing, json.dumps(question()).encode())  # less than a pipe holds
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as source:
        told = source.read()
    os.waitpid(pid, 0)
    found: list[dict[str, Any]] = json.loads(told) if told else []
    return found


def plain(properties: Any) -> dict[str, Any]:
    """A device's properties as far as they are numbers and words."""
    names = [name for name in dir(properties) if not name.startswith("_")]
    found = {name: getattr(properties, name, None) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, (int, float, str))}


def asker() -> str:
    """Whose line it is that the question came from, as ``bitsandbytes/functional.py:123``."""
    frames = [frame for frame in traceback.extract_stack() if not Path(frame.filename).is_relative_to(HERE)]
    own = [frame for frame in frames if not any(word in frame.filename for word in PASSERS)]
    if not own:
        return "unknown"
    return f"{'/'.join(Path(own[-1].filename).parts[-2:])}:{own[-1].lineno}"
