"""Tests of the adapter configurations."""

from __future__ import annotations

from typing import get_args

import pytest

from cases.grid.profiles import EVERY
from cases.model import adapters
from cases.space.options import Method, ModulesToSave, Options

METHODS = [method for method in get_args(Method) if method != "full"]


def test_exactly_the_adapter_methods_have_a_configuration() -> None:
    assert sorted(adapters.CONFIGS) == sorted(METHODS)


def test_every_method_declares_its_trained_parts() -> None:
    assert sorted(adapters.PARTS) == sorted(METHODS)


def test_every_module_to_save_declares_its_parameters() -> None:
    assert sorted(adapters.MODULES_TO_SAVE) == sorted(get_args(ModulesToSave))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_cases_of_training_and_of_saving_or_merging(method: str) -> None:
    flows = {row.options.flow for row in EVERY if row.options.method == method}
    assert "train" in flows
    assert len(flows) > 1 or method == "loftq"  # which needs a GPU, and saves as PiSSA does


@pytest.mark.parametrize(("method", "scaling"), [("lora", 2.0), ("rslora", 8**0.5), ("loftq", 1.0)])
def test_the_scaling_follows_the_paper_of_the_method(method: str, scaling: float) -> None:
    assert adapters.scaling(Options().but(method=method)) == pytest.approx(scaling)
