"""The modules that run mutated code are named as the checkpoint names them, and only rank 0 reports them."""

from __future__ import annotations

import contextlib
import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

from cases.checks import module_hooks
from cases.injection import mutated_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Module:
    """Stands in for torch's."""

    def __init__(self, **children: Any) -> None:
        self._modules = children

    def __call__(self) -> None:
        for each in self._modules.values():
            each()

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        yield prefix, self
        for name, child in self._modules.items():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)


class Leaf(Module):
    def __call__(self) -> None:
        rotate()


def rotate() -> None:
    pass


class Reporter:
    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def facts(self, facts: dict[str, str]) -> None:
        self.found |= facts


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    nn = types.SimpleNamespace(Module=Module)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(nn=nn))
    monkeypatch.setitem(sys.modules, "torch.nn", nn)

    def report(job: Callable[[], Any], rank: int = 0) -> dict[str, str]:
        reporter = Reporter()
        with mutated_modules.reported(reporter, rank, 0, [rotate.__code__]):
            job()
        assert sys.getprofile() is None
        return reporter.found

    return report


RAN, BUILT = f"{mutated_modules.FACT}, stage 0", f"{mutated_modules.BUILT}, stage 0"


def test_the_innermost_module_is_named_within_the_outermost(reported: Callable[..., dict[str, str]]) -> None:
    model = Module(base_model=Module(model=Module(layers=Module(**{"0": Leaf(), "1": Leaf()}), norm=Module())))
    assert reported(model) == {RAN: "model.layers.0 model.layers.1", BUILT: ""}


def test_a_tuner_names_modules_as_the_model_around_it_does(reported: Callable[..., dict[str, str]]) -> None:
    class BaseTuner(Module):
        pass

    for inner in (Module(layers=Module(**{"0": Leaf()})), Module(wide=Leaf())):
        tuner = BaseTuner(model=Module(model=inner, lm_head=Module()))
        (name,) = (name for name, module in Module(model=inner).named_modules() if type(module) is Leaf)
        assert reported(tuner)[RAN] == name


def test_an_expert_layer_has_its_published_name(reported: Callable[..., dict[str, str]]) -> None:
    model = Module(layer=Module(mlp=Module(gate=Leaf(), experts=Leaf())))
    experts = model._modules["layer"]._modules["mlp"]
    vars(experts).update(experts._modules)  # torch offers children as attributes
    assert reported(model)[RAN] == "layer.block_sparse_moe.experts layer.block_sparse_moe.gate"


def test_code_that_a_whole_model_runs_has_no_name(reported: Callable[..., dict[str, str]]) -> None:
    assert reported(Leaf())[RAN] == module_hooks.WHOLE


def test_code_outside_of_modules_names_none(reported: Callable[..., dict[str, str]]) -> None:
    assert reported(rotate) == {RAN: "", BUILT: ""}


def test_other_ranks_report_nothing(reported: Callable[..., dict[str, str]]) -> None:
    assert reported(Leaf(), rank=1) == {}


class Built(Module):
    """Runs the code in its constructor."""

    def __init__(self) -> None:
        super().__init__()
        rotate()


class Whole(Module):
    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        inner = Built()
        if fails:
            raise ValueError
        self._modules["mlp"] = inner


def test_a_module_under_construction_has_its_later_name(reported: Callable[..., dict[str, str]]) -> None:
    assert reported(Whole) == {RAN: "mlp", BUILT: "mlp"}


def test_a_module_that_is_never_part_of_a_model_has_the_names_of_its_classes(
    reported: Callable[..., dict[str, str]],
) -> None:
    def broken() -> None:
        with contextlib.suppress(ValueError):
            Whole(fails=True)

    assert reported(broken) == {RAN: "Whole().Built()", BUILT: "Whole().Built()"}
