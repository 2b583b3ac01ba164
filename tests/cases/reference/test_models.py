"""Tests of the reference implementations: which models they cover, and that they are independent of the stack."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cases.model import architectures, disk, experts, shapes
from cases.reference import models
from cases.space.options import Options
from cases.space.verdict import UnknownModelError

ROOT = Path(__file__).parents[3]
STACK = {"transformers", "peft", "accelerate", "trl", "bitsandbytes", "safetensors", "datasets", "tokenizers"}
INDEPENDENT = [*sorted((ROOT / "cases" / "reference").rglob("*.py")), Path(disk.__file__), Path(shapes.__file__)]
LONGEST = 120  # lines of an architecture: short enough to be compared with its paper


def imported(path: Path) -> set[str]:
    """The first parts of the names of all modules that a file imports, also inside functions."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", INDEPENDENT, ids=lambda path: path.stem)
def test_the_reference_imports_nothing_of_the_stack(path: Path) -> None:
    assert not imported(path) & STACK


@pytest.mark.parametrize("model", architectures.SPECS)
def test_every_model_has_a_reference_implementation(model: str) -> None:
    settings = architectures.settings(Options(model=model), 128)  # type: ignore[arg-type]  # any model
    assert callable(models.architecture(settings).logits)


@pytest.mark.parametrize("path", sorted((ROOT / "cases" / "reference" / "models").glob("*.py")), ids=lambda p: p.stem)
def test_an_architecture_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("config", [{"model_type": "bloom"}, {}])
def test_an_unknown_model_has_no_reference(config: dict[str, str]) -> None:
    with pytest.raises(UnknownModelError, match="no reference implementation for model_type"):
        models.architecture(config)


@pytest.mark.parametrize("model", architectures.SPECS)
def test_a_checkpoint_has_the_matrices_that_the_model_is_said_to_have(model: str) -> None:
    spec = architectures.SPECS[model]
    settings = architectures.settings(Options(model=model), 128)  # type: ignore[arg-type]  # any model
    tables = models.architecture(settings).TABLES
    matrices = [name.removesuffix(".weight") for name, shape in shapes.shapes(settings).items() if len(shape) == 2]
    quantised = [name for name in matrices if not architectures.ends(name, (*tables, *spec.kept, *spec.uncounted))]
    assert len(quantised) == spec.quantised
    assert sum(architectures.ends(name, spec.targets) for name in matrices) == spec.adapted


def test_a_tied_head_is_not_in_the_checkpoint() -> None:
    untied, tied = (architectures.settings(Options(embeddings=each), 128) for each in ("untied", "tied"))
    assert shapes.shapes(untied).keys() - shapes.shapes(tied).keys() == {"lm_head.weight"}


def test_a_router_has_its_published_name() -> None:
    assert experts.published_name("model.layers.0.mlp.gate.weight") == "model.layers.0.block_sparse_moe.gate.weight"
    assert experts.published_name("model.layers.0.mlp.gate_proj.weight") == "model.layers.0.mlp.gate_proj.weight"
