"""What differs between two runs of the same job leaves a digest as it is; numbers and settings change it."""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from typing import Any

import pytest

from cases.checks.state_digests import StateDigest


class Module:
    """Stands in for torch's."""

    def __init__(self, *, rank: int = 0) -> None:
        self._modules: dict[str, Any] = {}
        self.training = True
        if rank:
            self.rank = rank

    def named_parameters(self, *, recurse: bool) -> list[Any]:
        assert recurse
        return []

    named_buffers = named_parameters


class Lazy(OrderedDict[str, int]):
    """Imports what it has when it is read."""

    def items(self) -> Any:
        raise AssertionError


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        pass

    nn = types.SimpleNamespace(Module=Module)
    names: dict[str, Any] = dict.fromkeys(("dtype", "device", "Size"), Tensor)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(nn=nn, Tensor=Tensor, **names))
    monkeypatch.setitem(sys.modules, "torch.nn", nn)


def digest(value: Any) -> str:
    return StateDigest().of({"x": value}, is_deep=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/tmp/a/model", "/tmp/b/model"),  # noqa: S108 - no file
        (140_001_002_003_004, 140_001_002_009_999),
        ("<Hook at 0x7f01>", "<Hook at 0x7f02>"),
        ({"b", "a", "c"}, {"c", "b", "a"}),
        (object(), object()),
    ],
)
def test_paths_addresses_and_orders_of_sets_do_not_count(one: Any, other: Any) -> None:
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, 1.0),
        (True, 1),
        (0.1, 0.1 + 1e-16),
        ("lora_A", "lora_B"),
        ([1, 2], [2, 1]),
        ([1, [2]], [1, [3]]),
        ((1,), [1]),
        ({"r": 8}, {"r": 4}),
        ({"a", "b"}, {"a", "c"}),
        (None, False),
        (Module(), Module(rank=4)),
    ],
)
def test_values_and_settings_count(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)


def test_a_mapping_is_not_read_by_its_own_methods() -> None:
    assert digest(Lazy(a=1)) != digest(Lazy(a=2))


def test_a_value_that_cannot_be_read_counts_by_its_type() -> None:
    class Broken(list[int]):
        def __len__(self) -> int:
            raise ValueError

    class Other(Broken):
        pass

    assert digest(Broken()) == digest(Broken())
    assert digest(Broken()) != digest(Other())
