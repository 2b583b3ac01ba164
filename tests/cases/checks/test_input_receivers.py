"""An input that is off is that of the outermost module which takes it: those around others may only pass it on."""

from __future__ import annotations

import sys
import types
from typing import Any, cast

import pytest

from cases.checks.module_hooks import ModuleRecorder

GIVEN, OTHER = object(), object()
LAYER = ("model.layers.0", OTHER)
MLP, GATE = "model.layers.0.mlp", "model.layers.0.mlp.gate_proj"


@pytest.mark.parametrize(
    ("entered", "receiver"),
    [
        ([LAYER, (MLP, GIVEN), (GATE, GIVEN)], MLP),
        ([LAYER, (MLP, OTHER), (GATE, GIVEN)], GATE),
        ([("model.layers.0", GIVEN), (MLP, GIVEN), (GATE, GIVEN)], MLP),
        ([("", GIVEN), (GATE, GIVEN)], GATE),
        ([(GATE, GIVEN)], GATE),
    ],
)
def test_the_outermost_module_with_the_same_input_receives_it(entered: list[tuple[str, Any]], receiver: str) -> None:
    recorder = ModuleRecorder(ctx=cast("Any", None), read=list, entered=entered)
    assert recorder.receiver(GATE, GIVEN) == receiver


def test_a_pass_forgets_the_modules_that_raised_in_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
    ctx = types.SimpleNamespace(options=types.SimpleNamespace(strategy="single"))
    recorder = ModuleRecorder(ctx=cast("Any", ctx), read=list, entered=[LAYER, (GATE, GIVEN)])
    recorder.begin(None, (), {})
    assert recorder.entered == []
