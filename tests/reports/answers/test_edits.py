"""A fix is printed as edits of whole files, each valid before and after."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import pytest

from cases.options import OWN_CODE, Options
from matrix import neighbours
from matrix.execute import Suite
from matrix.fixes import Change, Fix, Kind
from reports.answers import edits
from reports.answers.edits import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

PINS = {"python": "3.11", "torch": "2.8.0", "transformers": "4.56.1", "peft": "0.17.1"}
CASES = Suite().cases
GRID = [case.options for case in CASES.values() if case.options.flow not in OWN_CODE]


def stack(**changes: object) -> Stack:
    return Stack(pins=PINS, options=Options().but(**changes))


def steps() -> Iterator[tuple[Options, neighbours.Changes]]:
    """Every change that a search may make of a case of the grid."""
    for start in GRID:
        for around in (neighbours.settings(start, 1), neighbours.alternatives(start)):
            yield from ((start, changes) for changes in around)


def a_fix(kind: Kind, **changes: object) -> Fix:
    return Fix.model_validate(
        {
            "set": "2025-09",
            "case": "red",
            "kind": kind,
            "to_set": "2025-09",
            "to_case": "green",
            "changes": tuple(Change.model_validate({"name": n, "old": "", "new": v}) for n, v in changes.items()),
            "runs": 2,
            "witnesses": ("2025-09__red",),
            "tried": 3,
            "within": "3 single settings",
        }
    )


def test_every_change_that_a_search_may_make_is_seen_in_an_edit() -> None:
    unseen = set()
    for start, changes in steps():
        there = neighbours.moved(start, changes)
        assert there is not None
        if not edits.diff(Stack(pins=PINS, options=start), Stack(pins=PINS, options=there)):
            unseen |= {f"{name}={value} of {start.strategy}, {start.flow}" for name, value in changes.items()}
    assert unseen == set()


def test_every_script_of_the_grid_is_python() -> None:
    for options in GRID:
        ast.parse("\n".join(edits.files(Stack(pins=PINS, options=options))["train.py"]))


def test_every_use_of_the_interface_is_python() -> None:
    for case in CASES.values():
        if case.options.flow == "api":
            ast.parse("\n".join(edits.files(Stack(pins=PINS, options=case.options))["use.py"]))


def test_every_configuration_of_accelerate_is_yaml() -> None:
    yaml: Any = pytest.importorskip("yaml")
    for options in GRID:
        lines = edits.files(Stack(pins=PINS, options=options)).get("accelerate.yaml", ["compute_environment: none"])
        assert yaml.safe_load("\n".join(lines))["compute_environment"]


def test_what_a_configuration_of_accelerate_cannot_say_is_not_in_one() -> None:
    files = edits.files(stack(strategy="fsdp1", wrap="peft"))
    assert "accelerate.yaml" not in files
    assert any("fsdp_auto_wrap_policy(model)" in line for line in files["train.py"])


def test_moved_packages_are_an_edit_of_the_pins() -> None:
    fix = a_fix(Kind.VERSIONS, peft="0.18.0", bitsandbytes="0.48.1")
    lines = edits.told(fix, stack(), Options()).splitlines()
    assert {"-peft==0.17.1", "+peft==0.18.0", "+bitsandbytes==0.48.1"} <= set(lines)


def test_a_use_of_the_interface_is_an_edit_of_the_function() -> None:
    one, other = [Stack(pins=PINS, options=case.options) for case in CASES.values() if case.options.flow == "api"][:2]
    assert "--- a/use.py" in edits.diff(one, other)


def test_an_alternative_is_called_one() -> None:
    text = edits.told(a_fix(Kind.ALTERNATIVE, strategy="ddp"), stack(strategy="fsdp1"), stack(strategy="ddp").options)
    assert "An alternative, which gives up part of what was wanted" in text
    assert "+model = DistributedDataParallel(" in text


def test_a_way_that_may_not_be_the_shortest_is_not_sold_as_it() -> None:
    fix = a_fix(Kind.VERSIONS, peft="0.18.0").model_copy(update={"minimal": False})
    assert "there may be a shorter way" in edits.told(fix, stack(), Options())


def test_an_argument_that_was_renamed_changes_only_where_both_sides_know_the_new_name() -> None:
    old = Stack(pins={**PINS, "transformers": "4.55.0"}, options=Options())
    new = Stack(pins=PINS, options=Options())
    assert "dtype" not in edits.diff(old, new)
