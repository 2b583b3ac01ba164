"""Tests of the evidence that options took effect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cases.apply import compat
from cases.checks.engagement.evidence import EVIDENCE
from cases.checks.engagement.fsdp import auto_wrap_policy
from cases.checks.engagement.recorder import wrapper_class
from cases.space.options import OPEN, Options, names


class FSDPModule: ...


class FSDPLlamaDecoderLayer(FSDPModule): ...


class FSDPEmbedding(FSDPModule): ...


class FSDPPeftModel(FSDPModule): ...


class LlamaDecoderLayer: ...


class FullyShardedDataParallel(SimpleNamespace): ...


@pytest.fixture(autouse=True)
def fsdp2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "fsdp2", lambda: SimpleNamespace(FSDPModule=FSDPModule))


def sharded(*units: Any, front_end: str, strategy: str = "fsdp2") -> set[str]:
    """The names of the failed checks of units."""
    model = SimpleNamespace(modules=lambda: [*units, object()])
    options = Options().but(front_end=front_end, strategy=strategy)
    recorder: Any = SimpleNamespace(options=options, wrapped=model)
    return {check.name for check in auto_wrap_policy(recorder) if not check.ok}


LAYERS = (FSDPLlamaDecoderLayer(), FSDPLlamaDecoderLayer())


def test_exactly_the_options_have_evidence() -> None:
    assert tuple(EVIDENCE) == tuple(name for name in names() if name not in OPEN)


@pytest.mark.parametrize("front_end", ["loop", "accelerate"])
def test_units_of_layers_and_root_pass(front_end: str) -> None:
    assert sharded(FSDPPeftModel(), *LAYERS, front_end=front_end) == set()


def test_only_a_front_end_may_create_more_units() -> None:
    more = (FSDPPeftModel(), FSDPEmbedding(), *LAYERS)
    assert sharded(*more, front_end="accelerate") == set()
    assert sharded(*more, front_end="loop") == {"sharded units"}


def test_units_of_other_modules_do_not_count_as_layers() -> None:
    others = (FSDPPeftModel(), FSDPEmbedding(), FSDPEmbedding())
    assert sharded(*others, front_end="accelerate") == {"units that are a decoder layer"}


def test_fsdp1_units_count_by_the_wrapped_module() -> None:
    units = [FullyShardedDataParallel(module=LlamaDecoderLayer()) for _ in LAYERS]
    root = FullyShardedDataParallel(module=object())
    assert sharded(root, *units, front_end="trainer", strategy="fsdp1") == set()
    assert sharded(root, units[0], front_end="trainer", strategy="fsdp1") != set()


def test_the_wrapper_of_fsdp2_has_the_name_of_this_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options().but(strategy="fsdp2")
    assert wrapper_class(options) == "FSDPModule"
    of_2_3 = type("FSDP", (), {})
    monkeypatch.setattr(compat, "fsdp2", lambda: SimpleNamespace(FSDP=of_2_3))
    assert wrapper_class(options) == "FSDP"
