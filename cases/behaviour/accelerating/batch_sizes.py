"""find_executable_batch_size, which reduces a batch size until its function fits into memory.

https://huggingface.co/docs/accelerate/usage_guides/memory
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "accelerate: settings"
FULL = "CUDA out of memory. Tried to allocate 2.00 GiB"
# What says that memory was exhausted, in the words of torch, and what does not.
EXHAUSTED = (
    FULL,
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.",
    "[enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.",
)
OTHER = (RuntimeError("shapes cannot be multiplied"), ValueError(FULL), RuntimeError(FULL, 3), KeyError("memory"))


def reduced(size: int) -> int:
    """The next size by the documentation of the installed version: nine tenths, or earlier a half, rounded down."""
    from accelerate.utils import find_executable_batch_size

    return size * 9 // 10 if "0.9" in (find_executable_batch_size.__doc__ or "") else size // 2


def down_from(size: int, fits: int, following: Callable[[int], int] = reduced) -> list[int]:
    """The sizes that are tried, the last of which fits; 0 is not tried."""
    tried = [size]
    while tried[-1] > fits:
        tried.append(following(tried[-1]))
    return [each for each in tried if each]


class Work:
    """A function that runs out of memory with more rows than fit, and keeps what it was called with."""

    def __init__(self, fits: int, message: str = FULL) -> None:
        self.fits, self.message = fits, message
        self.calls: list[tuple[Any, ...]] = []

    def run(self, batch_size: int, *arguments: Any, **named: Any) -> str:
        self.calls.append((batch_size, arguments, named))
        if batch_size > self.fits:
            raise RuntimeError(self.message)
        return f"{batch_size} rows"

    def sizes(self) -> list[int]:
        return [each[0] for each in self.calls]


@call(GROUP, phase=Phase.LOAD)
def executable_batch_sizes(_ctx: Context) -> Iterator[Check]:
    """find_executable_batch_size tries sizes downwards as documented, and returns what its function returns.

    It starts with 128 rows, or with starting_batch_size. A later call starts where an earlier one ended.
    """
    from accelerate.utils import find_executable_batch_size

    for start, fits in ((None, 128), (None, 100), (None, 3), (64, 64), (64, 20), (37, 1), (10, 9), (2, 1), (1, 1)):
        job = Work(fits)
        made = (
            find_executable_batch_size(job.run)
            if start is None
            else find_executable_batch_size(starting_batch_size=start)(job.run)
        )
        tried = down_from(start or 128, fits)
        title = f"{start}, {fits} fit"
        yield equal(f"returned, {title}", made("rows", 2, word="x"), f"{tried[-1]} rows")
        yield equal(f"sizes tried, {title}", str(job.sizes()), str(tried))
        arguments = {str(each[1:]) for each in job.calls}
        yield equal(f"arguments, {title}", str(arguments), str({str((("rows", 2), {"word": "x"}))}))
        job.calls.clear()
        made("rows", 2)
        yield equal(f"sizes of another call, {title}", str(job.sizes()), str(tried[-1:]))


@call(GROUP, phase=Phase.LOAD)
def executable_batch_sizes_refused(_ctx: Context) -> Iterator[Check]:
    """Only exhausted memory makes find_executable_batch_size try again; at zero rows it stops with an error.

    A batch size that is passed by hand is an error too. reduce_batch_size_fn names the next size, if a version has it.
    """
    from accelerate.utils import find_executable_batch_size

    for number, message in enumerate(EXHAUSTED):
        job = Work(1, message)
        found = find_executable_batch_size(job.run, starting_batch_size=5)()
        yield equal(f"returned, message {number}", found, "1 rows")
        yield equal(f"sizes tried, message {number}", str(job.sizes()), str(down_from(5, 1)))
    for number, error in enumerate(OTHER):
        sizes: list[int] = []

        def failing(batch_size: int, error: Exception = error, sizes: list[int] = sizes) -> None:
            sizes.append(batch_size)
            raise error

        raised = refusal(find_executable_batch_size(failing, starting_batch_size=8))
        yield equal(f"raised, error {number}", raised, type(error).__name__)
        yield equal(f"sizes tried, error {number}", str(sizes), "[8]")
    never = Work(0)
    yield equal(
        "raised, nothing fits", refusal(find_executable_batch_size(never.run, starting_batch_size=20)), "RuntimeError"
    )
    yield equal("sizes tried, nothing fits", str(never.sizes()), str(down_from(20, 0)))

    def alone(batch_size: int) -> int:
        return batch_size

    yield equal("raised, a size by hand", refusal(find_executable_batch_size(alone), 4), "TypeError")
    if "reduce_batch_size_fn" in inspect.signature(find_executable_batch_size).parameters:
        own, left = Work(3), iter((9, 7, 3))
        made = find_executable_batch_size(own.run, starting_batch_size=12, reduce_batch_size_fn=lambda: next(left))
        yield equal("returned, sizes of one's own", made(), "3 rows")
        yield equal("sizes tried, sizes of one's own", str(own.sizes()), "[12, 9, 7, 3]")
