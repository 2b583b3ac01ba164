"""Every way to adapt a model is configured, described and in the grid."""

from __future__ import annotations

from typing import get_args

import pytest

from cases.grid.profiles import EVERY
from cases.model import adapters
from cases.space.options import Method, ModulesToSave, Options

METHODS = [method for method in get_args(Method) if method != "full"]


def test_every_method_is_configured_and_only_those() -> None:
    assert sorted(adapters.CONFIGS) == sorted(METHODS)


def test_what_every_method_trains_is_known() -> None:
    assert sorted(adapters.PARTS) == sorted(METHODS)


def test_every_module_to_save_has_its_parameters() -> None:
    assert sorted(adapters.MODULES_TO_SAVE) == sorted(get_args(ModulesToSave))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_trained_and_kept_or_merged_in_some_case(method: str) -> None:
    flows = {row.options.flow for row in EVERY if row.options.method == method}
    assert "train" in flows
    assert len(flows) > 1 or method == "loftq"  # which needs a GPU, and saves as PiSSA does


@pytest.mark.parametrize(("method", "scaling"), [("lora", 2.0), ("rslora", 8**0.5), ("loftq", 1.0)])
def test_an_update_is_scaled_as_its_paper_says(method: str, scaling: float) -> None:
    assert adapters.scaling(Options().but(method=method)) == pytest.approx(scaling)
