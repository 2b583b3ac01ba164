"""A trace has each call of a function of the stack, with the module that runs it and whether it returns or raises."""

from __future__ import annotations

import contextlib
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from cases.checks import function_traces
from cases.checks.function_traces import FunctionRecorder

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "/env/lib/python3.11/site-packages/peft/layer.py"
COPY = "/env/lib/python3.11/site-packages/peft/copied.py"
SOURCE = """
class Layer(Module):
    def merge(self, safe):
        return [scale(each) for each in (1, 2)] if safe else fail()

def scale(value):
    return 2 * value

def fail():
    raise ValueError

def draw():
    yield scale(3)

def release(value):
    held.append(weakref.ref(value))
"""


class Module:
    """Stands in for torch's."""

    def __init__(self, **children: Any) -> None:
        self._modules = children

    def __call__(self) -> None:
        for each in self._modules.values():
            each.merge(safe=True)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        yield prefix, self
        for name, child in self._modules.items():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)


class Tensor:
    new_empty = None


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    nn = types.SimpleNamespace(Module=Module)
    device = types.SimpleNamespace(_device_constructors=lambda: None)
    parts: dict[str, Any] = {"nn": nn, "Tensor": Tensor, "utils": types.SimpleNamespace(_device=device)}
    other = {"dtype": str, "device": str, "Size": str, "empty": None, "empty_like": None}
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(**parts, **other))
    monkeypatch.setitem(sys.modules, "torch.nn", nn)
    monkeypatch.setitem(sys.modules, "torch.utils", parts["utils"])
    names: dict[str, Any] = {"Module": Module, "__name__": "peft.layer", "weakref": weakref, "held": []}
    monkeypatch.setattr(function_traces, "filled", lambda function: function)
    exec(compile(SOURCE, FILE, "exec"), names)  # noqa: S102 - functions whose file is one of the stack
    return names


def events(job: Any) -> list[tuple[str, ...]]:
    recorder = FunctionRecorder()
    with contextlib.suppress(ValueError), recorder.recording():
        job()
    assert sys.getprofile() is None
    return [(each.kind, bare(each.function), each.module, bare(each.caller)) for each in recorder.events()]


def bare(function: str) -> str:
    return function.removeprefix("peft/layer.py ")


def test_each_call_has_its_module_and_its_caller(stack: dict[str, Any]) -> None:
    model = Module(tall=stack["Layer"]())
    scaled = [("call", "scale", "tall", "Layer.merge"), ("return", "scale", "tall", "Layer.merge")] * 2
    ends = [("call", "Layer.merge", "tall", ""), ("return", "Layer.merge", "tall", "")]
    assert events(model) == [ends[0], *scaled, ends[1]]


def test_an_exception_ends_each_function_that_it_leaves(stack: dict[str, Any]) -> None:
    layer = stack["Layer"]()
    assert [each[:2] for each in events(lambda: layer.merge(safe=False))] == [
        ("call", "Layer.merge"),
        ("call", "fail"),
        ("raise", "fail"),
        ("raise", "Layer.merge"),
    ]


def test_a_generator_that_yields_does_not_raise(stack: dict[str, Any]) -> None:
    found = events(lambda: next(stack["draw"]()))
    assert ("return", "draw", "", "") in found
    assert not [each for each in found if each[0] == "raise" and each[1] != "draw"]


def test_later_calls_of_a_function_are_not_recorded(stack: dict[str, Any]) -> None:
    found = events(lambda: [stack["scale"](each) for each in range(2 * function_traces.MOST_OF_EACH)])
    assert len(found) == 2 * function_traces.MOST_OF_EACH


def test_the_same_code_in_another_file_is_another_function(stack: dict[str, Any]) -> None:
    copied: dict[str, Any] = {"Module": Module, "__name__": "peft.copied"}
    exec(compile(SOURCE, COPY, "exec"), copied)  # noqa: S102 - as of a copied model
    found = events(lambda: (stack["scale"](1), copied["scale"](1)))
    assert [each[1] for each in found if each[0] == "call"] == ["scale", "peft/copied.py scale"]


def test_a_record_keeps_no_local_value_alive(stack: dict[str, Any]) -> None:
    recorder = FunctionRecorder()
    with recorder.recording():
        stack["release"](Tensor())
    assert recorder.events()
    assert stack["held"][0]() is None


def test_arguments_and_results_count(stack: dict[str, Any]) -> None:
    digests = []
    for value in (1, 1, 2):
        recorder = FunctionRecorder()
        with recorder.recording():
            stack["scale"](value)
        digests.append([each.digest for each in recorder.events()])
    assert digests[0] == digests[1]
    assert all(a != b for a, b in zip(digests[0], digests[2], strict=True))
