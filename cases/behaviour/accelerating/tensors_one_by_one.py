"""Tensors that accelerate puts into modules one by one, and hooks that a model has before it is offloaded."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

GROUP = "Whole states of accelerate"


def odd() -> Any:
    """A module with a parameter and a buffer of its own, no weight, and a child."""
    import torch

    class Odd(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(3))
            self.frozen = torch.nn.Parameter(torch.ones(3, dtype=torch.float64), requires_grad=False)
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("hidden", torch.zeros(3), persistent=False)
            self.child = torch.nn.Linear(3, 2)

        def forward(self, inputs: Any) -> Any:
            return self.child(inputs * self.frozen.to(inputs) + self.bias + self.mean)

    return Odd()


def refusal(function: Callable[..., Any], *given: Any, **more: Any) -> str:
    try:
        function(*given, **more)
    except ValueError as error:
        return str(error)
    return "nothing"


@call(GROUP, phase=Phase.LOAD)
def accelerate_sets_tensors(_ctx: Context) -> Iterator[Check]:
    """set_module_tensor_to_device sets parameters and buffers, by dtype and device, and keeps what they are.

    A value of another shape, none for a tensor without memory, and unknown names are refused.
    """
    import torch
    from accelerate.utils import set_module_tensor_to_device

    names = ("bias", "frozen", "mean", "hidden", "child.weight")
    for name, dtype, gone in itertools.product(names, (None, torch.float16), (False, True)):
        made = odd()
        before = {**dict(made.named_parameters()), **dict(made.named_buffers())}[name]
        value = torch.full(before.shape, 1.5, dtype=torch.bfloat16)
        if gone:
            set_module_tensor_to_device(made, name, "meta")
            held = {**dict(made.named_parameters()), **dict(made.named_buffers())}[name]
            yield equal(f"device of {name}, put away, {dtype}", held.device.type, "meta")
        set_module_tensor_to_device(made, name, "cpu", value=value, dtype=dtype)
        every = {**dict(made.named_parameters()), **dict(made.named_buffers())}
        found, title = every[name], f"{name}, {dtype}, without memory {gone}"
        yield equal(f"number of {title}", float(found.float().mean()), 1.5)
        yield equal(f"dtype of {title}", str(found.dtype), str(dtype or before.dtype))
        yield equal(f"device of {title}", found.device.type, "cpu")
        kind = (isinstance(found, torch.nn.Parameter), found.requires_grad)
        yield equal(f"kind of {title}", str(kind), str((isinstance(before, torch.nn.Parameter), before.requires_grad)))
        yield equal(f"buffers saved with {title}", str(sorted(made.state_dict())), str(sorted(odd().state_dict())))
    made = odd()
    words = refusal(set_module_tensor_to_device, made, "bias", "cpu", value=torch.zeros(4))
    yield equal("refused, another shape", "bias" in words and "shape" in words, bound=True)
    set_module_tensor_to_device(made, "bias", "meta")
    words = refusal(set_module_tensor_to_device, made, "bias", "cpu")
    yield equal("refused, no value", "meta device" in words, bound=True)
    for name in ("absent", "child.absent", "absent.weight"):
        try:
            words = refusal(set_module_tensor_to_device, made, name, "cpu")
        except AttributeError as error:
            words = str(error)
        yield equal(f"refused, {name}", "absent" in words, bound=True)


@call(GROUP, phase=Phase.WRAP)
def accelerate_keeps_hooks(ctx: Context) -> Iterator[Check]:
    """A hook that a model had before it is offloaded still acts, and the outputs are those of the whole model."""
    import torch
    from accelerate import cpu_offload, disk_offload
    from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_submodules

    class OutputDoubling(ModelHook):  # type: ignore[misc]
        def post_forward(self, _module: Any, output: Any) -> Any:
            return 2 * output

    inputs = torch.tensor([[1.0, -2.0, 0.5]])
    ways = {
        "cpu": lambda model: cpu_offload(model, execution_device="cpu"),
        "cpu, by default": cpu_offload,
        "disk": lambda model: disk_offload(model, str(ctx.kept / "away"), execution_device="cpu"),
    }
    for name, offload in ways.items():
        model = odd()
        with torch.no_grad():
            wanted = 2 * model(inputs)
        weights = {key: value.clone() for key, value in model.state_dict().items()}
        add_hook_to_module(model, OutputDoubling())
        offload(model)
        away = sorted(key for key, value in model.named_parameters() if value.device.type == "meta")
        yield equal(f"weights away, {name}", str(away), str(sorted(key for key, _ in model.named_parameters())))
        for turn in range(2):
            with torch.no_grad():
                found = model(inputs)
            yield at_most(f"outputs off, {name}, pass {turn}", float((found - wanted).abs().max()), 1e-6)
        remove_hook_from_submodules(model)
        after = model.state_dict()
        same = [
            key for key, value in weights.items() if after[key].device.type == "cpu" and torch.equal(after[key], value)
        ]
        yield equal(f"weights back, {name}", str(sorted(same)), str(sorted(weights)))


@call(GROUP, phase=Phase.LOAD)
def accelerate_counts_tied_modules(_ctx: Context) -> Iterator[Check]:
    """get_module_size_with_ties adds the modules of tied parameters, less what they share, and lists both."""
    import torch
    from accelerate.utils.modeling import get_module_size_with_ties

    modules = [(name, torch.nn.Linear(2, 2)) for name in ("second", "third", "fourth")]
    sizes = {"first": 50, "second": 70, "second.weight": 40, "third": 90, "third.inner.weight": 40, "fourth": 10}
    cases: list[tuple[list[str], int, list[str]]] = [
        ([], 50, []),
        (["second.weight"], 50 + 70 - 40, ["second"]),
        (["third.inner.weight"], 50 + 90 - 40, ["third"]),
        (["second.weight", "third.inner.weight"], 50 + 70 - 40 + 90 - 40, ["second", "third"]),
    ]
    for tied, size, names in cases:
        found = get_module_size_with_ties(tied, 50, sizes, modules)
        yield equal(f"bytes with {tied}", found[0], size)
        yield equal(f"names with {tied}", str(found[1]), str(names))
        objects = [module for name, module in modules if name in names]
        same = len(found[2]) == len(objects) and all(a is b for a, b in zip(found[2], objects, strict=True))
        yield equal(f"modules with {tied}", same, bound=True)


@call(GROUP, phase=Phase.LOAD)
def accelerate_places_tied_modules(_ctx: Context) -> Iterator[Check]:
    """infer_auto_device_map places a tied head with its embeddings where both fit, counting the shared matrix once."""
    import torch
    from accelerate import infer_auto_device_map

    class TiedEnds(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(10, 4)
            self.inner = torch.nn.Linear(4, 4)
            self.outer = torch.nn.Linear(4, 4)
            self.head = torch.nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight

    shared, layer = 4 * 10 * 4, 4 * (4 * 4 + 4)
    names = ("embedding", "inner", "outer", "head")
    # Parts fit in order, as long as the largest layer behind them still has room, or if all of them fit.
    budgets = {
        shared + layer - 1: (),
        shared + layer: ("embedding", "head"),
        shared + 2 * layer - 1: ("embedding", "head"),
        shared + 2 * layer: names,
    }
    for budget, fitting in budgets.items():
        found = infer_auto_device_map(TiedEnds(), {"cpu": budget}, clean_result=False)
        places = {name: found[max((key for key in found if name.startswith(key)), key=len)] for name in names}
        wanted = {name: "cpu" if name in fitting else "disk" for name in names}
        yield equal(f"places, {budget}", str(places), str(wanted))
