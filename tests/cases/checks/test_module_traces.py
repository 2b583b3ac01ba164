"""A trace has what goes into each module and what comes out, and the module in which an exception was raised."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

from cases.checks import module_traces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Module:
    """Stands in for torch's."""

    def __init__(self, **children: Any) -> None:
        self._modules = children

    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    def forward(self, x: Any) -> Any:
        for each in self._modules.values():
            x = each(x)
        return x

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        yield prefix, self
        for name, child in self._modules.items():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_children(self) -> Any:
        return self._modules.items()

    def named_parameters(self, *, recurse: bool) -> list[Any]:
        assert not recurse
        return []

    named_buffers = named_parameters


class Twice(Module):
    def forward(self, x: Any) -> Any:
        return 2 * x


class Broken(Module):
    def forward(self, x: Any) -> Any:
        raise ValueError(x)


class Layer(Broken):
    """Stands in for a layer of torch."""


Layer.__module__ = "torch.nn.modules.linear"


class Unfinished(Module):
    def __init__(self) -> None:
        super().__init__()
        raise ValueError


@pytest.fixture(autouse=True)
def _torch(monkeypatch: pytest.MonkeyPatch) -> None:
    nn = types.SimpleNamespace(Module=Module)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(nn=nn))
    monkeypatch.setitem(sys.modules, "torch.nn", nn)


def traced(job: Any, folder: Path) -> list[tuple[str, str, str, tuple[str, ...]]]:
    before = Module.__call__
    try:
        with module_traces.recorded(folder, 0, 1):
            job()
    except ValueError:
        pass
    assert Module.__call__ is before
    (path,) = folder.glob(module_traces.ANY_FILE)
    trace = module_traces.ModuleTrace.from_json(path.read_bytes())
    assert (trace.stage, trace.rank) == (0, 1)
    return [(each.kind, each.name, each.caller, each.values) for each in trace.events]


def test_every_call_is_recorded_in_order(tmp_path: Path) -> None:
    model = Module(mlp=Module(up=Twice()))
    calls = [each for each in traced(lambda: model(3), tmp_path) if each[0] in ("input", "output")]
    assert calls == [
        ("input", "(model)", "", (".0.0=3",)),
        ("input", "mlp", "(model)", (".0.0=3",)),
        ("input", "mlp.up", "mlp", (".0.0=3",)),
        ("output", "mlp.up", "mlp", ("=6",)),
        ("output", "mlp", "(model)", ("=6",)),
        ("output", "(model)", "", ("=6",)),
    ]


def test_the_weights_of_each_model_are_recorded_at_the_end(tmp_path: Path) -> None:
    model = Module(mlp=Twice())
    assert [each[:2] for each in traced(lambda: model(3), tmp_path)][-4:] == [
        ("weight", "(model)"),
        ("weight gradient", "(model)"),
        ("weight", "mlp"),
        ("weight gradient", "mlp"),
    ]


@pytest.mark.parametrize(
    ("job", "name"),
    [
        (lambda: Module(mlp=Module(up=Broken()))(3), "mlp.up"),
        (lambda: Module(mlp=Module(up=Layer()))(3), "mlp"),
        (lambda: Broken()(3), "(model)"),
        (Unfinished, "(model)"),
        (lambda: int("x"), ""),
    ],
)
def test_an_exception_belongs_to_the_innermost_module_outside_of_torch(job: Any, name: str, tmp_path: Path) -> None:
    (error,) = (each for each in traced(job, tmp_path) if each[0] == "error")
    assert error == ("error", name, "", ("=None",))


def test_the_weights_of_a_model_are_recorded_that_cannot_be_loaded(tmp_path: Path) -> None:
    def load() -> None:
        model = Module(mlp=Twice())
        raise ValueError(f"the shapes of {len(model._modules)} modules")

    events = traced(load, tmp_path)
    assert [each[:2] for each in events] == [
        ("error", ""),
        ("weight", "(model)"),
        ("weight gradient", "(model)"),
        ("weight", "mlp"),
        ("weight gradient", "mlp"),
    ]


def test_an_exception_is_recorded_after_the_last_event_that_a_trace_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_traces, "MOST", 1)
    events = traced(lambda: Module(up=Broken())(3), tmp_path)
    assert [each[:2] for each in events] == [("input", "(model)"), ("error", "up")]


def test_a_module_under_construction_has_the_names_of_the_classes_that_construct_it(tmp_path: Path) -> None:
    class Whole(Module):
        def __init__(self) -> None:
            super().__init__()
            self._modules["inner"] = Unfinished()

    assert traced(Whole, tmp_path)[-1][:2] == ("error", "Whole().Unfinished()")


def test_nested_values_have_paths() -> None:
    found = dict(module_traces.flat(((1, None), {"mask": [True, object()], "name": "x"})))
    assert found == {".0.0": 1, ".0.1": None, ".1.mask.0": True, ".1.name": "x"}
