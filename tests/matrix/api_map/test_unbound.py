"""Names that a module binds only under a check, and uses outside of it."""

from __future__ import annotations

import ast
from datetime import date
from typing import TYPE_CHECKING, Protocol

import pytest

from matrix.api_map import build
from matrix.api_map.imports import ImportPrediction
from matrix.api_map.query import ApiMap
from matrix.api_map.reading.names import names_of
from matrix.api_map.reading.unbound import unbound_uses

if TYPE_CHECKING:
    from pathlib import Path

    class FakeIndex(Protocol):
        def add(self, package: str, version: str, sources: dict[str, str] | None, day: date) -> None: ...


def found(source: str) -> list[tuple[str, str]]:
    tree = ast.parse(source)
    uses = unbound_uses(tree, names_of(tree, "transformers.layers", is_package=False))
    return [(target.rpartition(".")[2], conditions) for target, _, conditions in uses]


GUARDED = "if is_torch_available():\n    import torch.nn as nn\n"
LACKED = [("nn", "!has:torch")]


@pytest.mark.parametrize(
    "use",
    [
        "class Layer(nn.Module): ...\n",
        "def run(layer: nn.Module): ...\n",
        "def run() -> nn.Module: ...\n",
        "def run(kind=nn.Linear): ...\n",
        "@nn.compiled\ndef run(): ...\n",
        "make = lambda kind=nn.Linear: kind\n",
        "KINDS = [nn.Linear]\n",
        "class Layer:\n    kind = nn.Linear\n    def run(self, layer: nn.Module): ...\n",
        "layer: nn.Module\n",
        "if TYPE_CHECKING:\n    import torch.nn as nn\nclass Layer(nn.Module): ...\n",
    ],
    ids=[
        "base",
        "annotation",
        "result",
        "default",
        "decorator",
        "lambda",
        "statement",
        "class body",
        "variable",
        "type checker",
    ],
)
def test_a_use_that_runs_without_the_check_is_found(use: str) -> None:
    assert found(GUARDED + use) == LACKED


@pytest.mark.parametrize(
    "source",
    [
        f"{GUARDED}    class Layer(nn.Module): ...\n",
        f"{GUARDED}def run():\n    return nn.Linear\n",
        f"{GUARDED}make = lambda: nn.Linear\n",
        f"from __future__ import annotations\n{GUARDED}def run(layer: nn.Module): ...\n",
        f"{GUARDED}def run(layer: 'nn.Module'): ...\n",
        f"{GUARDED}else:\n    nn = None\nclass Layer(nn.Module): ...\n",
        f"nn = None\n{GUARDED}class Layer(nn.Module): ...\n",
        f"{GUARDED}class Layer(nn.Module if is_torch_available() else object): ...\n",
        f"{GUARDED}kind = is_torch_available() and nn.Linear\n",
        f"{GUARDED}if not is_torch_available():\n    raise ImportError\nclass Layer(nn.Module): ...\n",
        f"{GUARDED}try:\n    kind = nn.Linear\nexcept NameError:\n    kind = None\n",
        f"{GUARDED}from .others import *\nclass Layer(nn.Module): ...\n",
        f"{GUARDED}globals().update(others)\nclass Layer(nn.Module): ...\n",
        f"{GUARDED}def bind():\n    global nn\n    nn = 1\nclass Layer(nn.Module): ...\n",
        f"{GUARDED}kinds = [nn for nn in others]\n",
        f"(nn := others)\n{GUARDED}kinds = [nn.Linear]\n",
        "if is_vision_available():\n    import PIL\ndef run(image: PIL.Image): ...\n",
        "if found:\n    import torch.nn as nn\nclass Layer(nn.Module): ...\n",
        "try:\n    import torch.nn as nn\nexcept ImportError:\n    pass\nclass Layer(nn.Module): ...\n",
    ],
    ids=[
        "same check",
        "function",
        "lambda",
        "postponed annotation",
        "quoted annotation",
        "both branches",
        "bound before",
        "checked expression",
        "checked operand",
        "left before",
        "handled",
        "star import",
        "globals",
        "global",
        "other scope",
        "walrus",
        "another package",
        "unknown test",
        "handled import",
    ],
)
def test_a_name_that_may_be_bound_is_not(source: str) -> None:
    assert found(source) == []


def test_of_two_bindings_both_must_fail() -> None:
    source = f"{GUARDED}if is_peft_available():\n    nn = None\nclass Layer(nn.Module): ...\n"
    assert found(source) == [("nn", "!has:peft;!has:torch")]


CHECKS = {
    "transformers/__init__.py": "",
    "transformers/layers.py": f"{GUARDED}class Layer(nn.Module): ...\n",
    "transformers/more.py": "from .utils import *\nif is_accelerate_available():\n    from . import layers\n",
    "transformers/utils/__init__.py": "",
    "transformers/utils/import_utils.py": (
        "def is_torch_available():\n"
        "    logger.warning('Disabling PyTorch because PyTorch >= 2.6 is required')\n"
        "    return version.parse(torch_version) >= version.parse('2.6.0')\n"
        "def is_accelerate_available():\n"
        "    if not is_torch_available():\n        return False\n"
        "    return _is_package_available('accelerate')\n"
    ),
}


@pytest.mark.parametrize(
    ("module", "torch", "expected"),
    [
        ("layers", "2.5.1", ["transformers.layers.nn"]),
        ("layers", "2.6.0", []),
        ("more", "2.5.1", []),
    ],
    ids=["too old", "new enough", "check that asks for torch"],
)
def test_a_package_that_is_too_old_for_its_check_breaks_the_import(
    index: FakeIndex,
    tmp_path: Path,
    module: str,
    torch: str,
    expected: list[str],
) -> None:
    index.add("torch", torch, {"torch/__init__.py": "", "torch/nn.py": ""}, date(2025, 1, 1))
    index.add("accelerate", "1.2.0", {"accelerate/__init__.py": ""}, date(2025, 1, 1))
    index.add("transformers", "6.0.0", CHECKS, date(2025, 1, 2))
    build.update(
        tmp_path / "map",
        index=index,  # type: ignore[arg-type]
        cache=tmp_path / "facts.sqlite",
        packages=("torch", "transformers", "accelerate"),
    )
    api = ApiMap(tmp_path / "map")
    view = api.at({"torch": torch, "transformers": "6.0.0", "accelerate": "1.2.0"})
    misses = ImportPrediction(api=api, view=view).import_name(f"transformers.{module}")
    assert [each.target for each in misses] == expected
