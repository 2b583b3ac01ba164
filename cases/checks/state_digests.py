"""Digests of what functions take, return and leave: the same numbers and settings have the same digest.

Paths, addresses and the order of sets differ between two runs of the same job, so they do not count.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STACK = ("peft", "transformers", "trl", "accelerate", "bitsandbytes")
OF_TORCH = ("torch/optim", "torch/distributed", "torch/nn/parallel")  # the parts of torch that train and save
PLAIN = (bool, int, float, complex, str, bytes, type(None))
DEPTH = 3  # of nested containers and of the attributes of objects
LARGEST = 1 << 16  # numbers of a tensor that count; of a larger one, as many evenly spaced ones
MOST_TENSORS = 200  # of a module
MOST_ITEMS = 200  # of a container
DIGITS = 8
ADDRESS = re.compile(r"0x[0-9a-f]+")
LEAST_ADDRESS = 1 << 40  # of an object or of a tensor's memory; no size and no seed of a cell is as large


@dataclass
class StateDigest:
    """Feeds values to a hash. ``of_torch`` are the attributes that every module has.

    The attributes of other objects count if their class belongs to a package or folder of ``roots``.
    """

    roots: tuple[str, ...] = STACK
    is_deep: bool = field(default=True, init=False)
    of_torch: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        from torch.nn import Module

        self.of_torch = frozenset(vars(Module()))

    def of(self, state: Mapping[str, Any], *, is_deep: bool) -> str:
        """The digest of named values; one that cannot be read counts by its type only.

        ``is_deep``: of a module, the tensors of every module in it count.
        """
        self.is_deep = is_deep
        sink = hashlib.blake2b(digest_size=DIGITS)
        for name, value in state.items():
            try:
                words = list(self.words(value, DEPTH))
            except Exception as error:  # noqa: BLE001 - whatever a library passes, its call must not fail because of a trace
                words = [f"{type(value).__name__} unreadable: {type(error).__name__}".encode()]
            sink.update(b"\0".join([name.encode(), *words, b"\1"]))
        return sink.hexdigest()

    def words(self, value: Any, depth: int) -> Any:
        import torch

        if isinstance(value, PLAIN):
            yield plain(value)
        elif isinstance(value, torch.Tensor):
            yield from of_tensor(value)
        elif isinstance(value, (torch.dtype, torch.device, torch.Size)):
            yield repr(value).encode()
        elif isinstance(value, torch.nn.Module):
            yield from self.of_module(value, depth)
        elif isinstance(value, (tuple, list, set, frozenset, dict)):
            yield from self.of_items(value, depth)
        elif depth and is_below(type(value).__module__.replace(".", "/"), self.roots) and hasattr(value, "__dict__"):
            yield type(value).__name__.encode()
            yield from self.of_items(vars(value), depth - 1)
        else:
            yield getattr(value, "__qualname__", type(value).__qualname__).encode()

    def of_items(self, values: Any, depth: int) -> Any:
        size = dict.__len__(values) if isinstance(values, dict) else len(values)
        yield f"{type(values).__name__} {size}".encode()
        if not depth:
            return
        if isinstance(values, (set, frozenset)):
            yield from sorted(plain(each) for each in values if isinstance(each, PLAIN))
        elif isinstance(values, dict):
            # A mapping of transformers imports what it has when it is read as its own methods read it.
            for name, value in islice(dict.items(values), MOST_ITEMS):
                yield from self.words(name, 1)
                yield from self.words(value, depth - 1)
        else:
            for value in islice(values, MOST_ITEMS):
                yield from self.words(value, depth - 1)

    def of_module(self, module: Any, depth: int) -> Any:
        """The tensors of a module and of those in it, and the settings that it has itself."""
        yield type(module).__name__.encode()
        own = {name: value for name, value in vars(module).items() if name not in self.of_torch}
        if depth:
            yield from self.of_items(own, depth - 1)
        if depth < DEPTH or "_modules" not in vars(module):
            return
        yield str(module.training).encode()
        deep = self.is_deep
        tensors = [*module.named_parameters(recurse=deep), *module.named_buffers(recurse=deep)]
        for name, tensor in tensors[:MOST_TENSORS]:
            yield name.encode()
            yield from of_tensor(tensor)


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Return whether a path of files or modules is one of these or lies in one."""
    return any(f"{path}/".startswith(f"{root}/") for root in roots)


def plain(value: Any) -> bytes:
    if isinstance(value, str):
        return b"path" if "/" in value else ADDRESS.sub("address", value).encode(errors="replace")
    if isinstance(value, int) and abs(value) >= LEAST_ADDRESS:
        return b"address"
    return repr(value).encode()


def of_tensor(tensor: Any) -> Any:
    """The dtype, the shape and the bytes of a tensor's numbers; those of a meta tensor do not exist."""
    import torch

    yield f"{tensor.dtype} {tuple(tensor.shape)} {tensor.device.type} {tensor.requires_grad}".encode()
    if tensor.is_meta or not tensor.numel():
        return
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():  # noqa: SLF001 - what torch's own subclasses use
        numbers = getattr(tensor, "_local_tensor", tensor).detach().reshape(-1)
        numbers = numbers[:: -(-len(numbers) // LARGEST) or 1].cpu().contiguous()
        yield numbers.view(torch.uint8).numpy().tobytes()
