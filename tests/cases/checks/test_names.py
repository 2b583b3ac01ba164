"""The registry of check names agrees with the checks in the code and with the places that refer to them."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from cases.checks.names import CHECKS, VARIABLE, is_registered
from reports.answers.scripts import symptom

REPOSITORY = Path(__file__).parents[3]
MEASUREMENTS = {"equal", "at_most", "at_least", "Check"}
SIGNATURES = sorted((REPOSITORY / "reports/answers/diagnosis/signatures").glob("*.toml"))


def source(module: str) -> ast.Module:
    return ast.parse((REPOSITORY / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))


def template(node: ast.expr) -> str:
    """The text of a string, with ``{}`` for each variable part; empty for anything else."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)


def measured_names(tree: ast.Module) -> set[str]:
    """The names in calls of ``equal`` and its like that are written where the check is made."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    named = (call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id in MEASUREMENTS)
    return {template(name) for name in named} - {""}


def written_strings(tree: ast.Module) -> set[str]:
    return {template(node) for node in ast.walk(tree) if isinstance(node, (ast.Constant, ast.JoinedStr))}


def with_bare_braces(names: tuple[str, ...]) -> set[str]:
    return {re.sub(r"\{\w+\}", "{}", name) for name in names}


MODULES = [
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
    for path in sorted((REPOSITORY / "cases").rglob("*.py"))
    if path.name != "verdict.py"  # defines the measurements
]


def test_every_check_of_a_module_is_registered() -> None:
    measured = {module: measured_names(source(module)) for module in MODULES}
    missing = {module: names - with_bare_braces(CHECKS.get(module, ())) for module, names in measured.items()}
    assert {module: names for module, names in missing.items() if names} == {}


def test_every_registered_name_is_written_in_its_module() -> None:
    missing = {module: with_bare_braces(names) - written_strings(source(module)) for module, names in CHECKS.items()}
    assert {module: names for module, names in missing.items() if names} == {}


@pytest.mark.parametrize("path", SIGNATURES, ids=lambda path: path.stem)
def test_signatures_refer_to_registered_checks(path: Path) -> None:
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["signature"]
    assert [name for row in rows for name in row.get("checks", ()) if not is_registered(name)] == []


def test_reproducers_refer_to_registered_checks() -> None:
    assert [name for name in symptom.CHECKS if not is_registered(name)] == []


def test_a_variable_part_matches_any_text() -> None:
    assert is_registered("regret of the tokens generated after step 1")
    assert VARIABLE.sub("", "regret of the {tokens}") == "regret of the "


def test_another_name_is_not_registered() -> None:
    assert not is_registered("gradient of nothing")
