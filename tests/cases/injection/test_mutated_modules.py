"""The modules that run mutated code are named as the checkpoint names them, and only rank 0 reports them."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

from cases.injection import mutated_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Module:
    """Stands in for torch's."""

    def __init__(self, **children: Any) -> None:
        self.children = children

    def __call__(self) -> None:
        for each in self.children.values():
            each()

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        yield prefix, self
        for name, child in self.children.items():
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


def test_the_innermost_module_is_named_within_the_outermost(reported: Callable[..., dict[str, str]]) -> None:
    model = Module(base_model=Module(model=Module(layers=Module(**{"0": Leaf(), "1": Leaf()}), norm=Module())))
    assert reported(model) == {f"{mutated_modules.FACT}, stage 0": "model.layers.0 model.layers.1"}


def test_a_tuner_names_modules_as_the_model_around_it_does(reported: Callable[..., dict[str, str]]) -> None:
    tuner = Module(model=Module(model=Module(layers=Module(**{"0": Leaf()})), lm_head=Module()))
    assert reported(tuner) == {f"{mutated_modules.FACT}, stage 0": "model.layers.0"}


def test_code_that_a_whole_model_runs_has_no_name(reported: Callable[..., dict[str, str]]) -> None:
    assert reported(Leaf()) == {f"{mutated_modules.FACT}, stage 0": mutated_modules.WHOLE}


def test_code_outside_of_modules_names_none(reported: Callable[..., dict[str, str]]) -> None:
    assert reported(rotate) == {f"{mutated_modules.FACT}, stage 0": ""}


def test_other_ranks_report_nothing(reported: Callable[..., dict[str, str]]) -> None:
    assert reported(Leaf(), rank=1) == {}
