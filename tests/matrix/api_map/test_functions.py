"""What functions use for certain if a module calls them when it is imported."""

from __future__ import annotations

import ast

import pytest

from matrix.api_map.reading.functions import called_functions
from matrix.api_map.reading.names import names_of


def uses(source: str, name: str = "check") -> list[tuple[str, str]]:
    tree = ast.parse(source)
    found = called_functions(tree, names_of(tree, "trl.helpers", is_package=False))
    return [(target, held) for target, _, held in found[name]["uses"]] if name in found else []


@pytest.mark.parametrize(
    "statement",
    [
        "x: int = 1",
        "for y in z:\n        pass\n    else:\n        x = 1",
        "def x(): ...",
        "import json as x",
        "(x := 1)",
    ],
)
def test_a_parameter_that_gets_another_value_is_unknown(statement: str) -> None:
    assert uses(f"def check(x=0):\n    {statement}\n    if x == 0:\n        import peft\n") == []


@pytest.mark.parametrize("parameters", ["*peft", "**peft", "peft"])
def test_a_parameter_is_no_module(parameters: str) -> None:
    assert uses(f"import peft\ndef check({parameters}):\n    peft.a\n") == []


def test_a_variable_of_a_comprehension_is_no_parameter() -> None:
    source = "def check(x=0):\n    y = [x for x in z]\n    if x == 0:\n        import peft\n"
    assert uses(source) == [("peft", "arg:x=0")]


def test_the_first_iterable_of_a_comprehension_is_used_for_certain() -> None:
    assert uses("import peft\ndef check():\n    return [peft.a for x in peft.b for y in peft.c]\n") == [("peft.b", "")]


def test_of_two_functions_of_one_name_the_last_counts() -> None:
    assert uses("def check():\n    import peft\ndef check(): ...\n") == []


def test_an_inner_generator_makes_no_generator() -> None:
    assert uses("def check():\n    def inner():\n        yield 1\n    import peft\n") == [("peft", "")]


@pytest.mark.parametrize(("future", "expected"), [("", [("peft.A", "")]), ("from __future__ import annotations\n", [])])
def test_annotations_of_inner_functions_count_unless_they_are_postponed(
    future: str, expected: list[tuple[str, str]]
) -> None:
    assert uses(f"{future}import peft\ndef check():\n    def inner(x: peft.A): ...\n") == expected


def test_code_behind_a_check_that_may_return_before_it_raises_says_nothing() -> None:
    source = "def check():\n    if flag():\n        if found():\n            return\n        raise X\n    import peft\n"
    assert uses(source) == []
