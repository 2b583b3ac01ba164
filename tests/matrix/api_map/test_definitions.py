"""What classes and modules define."""

from __future__ import annotations

import ast

import pytest

from matrix.api_map.reading.definitions import definitions
from matrix.api_map.reading.module_facts import read_module
from matrix.api_map.reading.names import names_of


def found(source: str) -> list[tuple[str, str, str]]:
    tree = ast.parse(source)
    return [*definitions(tree, names_of(tree, "trl.core", is_package=False), outline=False)]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("x: int = 1", ("field", "1")),
        ("x: int = field(default=1)", ("field", "1")),
        ("x: InitVar[int] = 1", ("field", "1")),
        ("x: ClassVar[int] = 1", ("attribute", "")),
        ("x: typing.ClassVar = 1", ("attribute", "")),
        ("x: int = dataclasses.field(init=False, default=1)", ("attribute", "")),
    ],
)
def test_a_dataclass_takes_no_argument_for_what_is_no_field_of_its_constructor(
    statement: str, expected: tuple[str, str]
) -> None:
    assert found(f"@dataclass\nclass C:\n    {statement}\n")[1:] == [("C.x", *expected)]


OVERLOADED = "@overload\ndef f(a): ...\n@typing.overload\ndef f(b): ...\n"


def test_a_function_has_the_parameters_of_its_definition_not_of_its_overloads() -> None:
    assert found(f"{OVERLOADED}def f(a=None, b=None): ...\n") == [("f", "function", "a=None\nb=None")]


def test_a_function_that_has_overloads_only_has_these() -> None:
    assert [detail for _, _, detail in found(OVERLOADED)] == ["a", "b"]


def test_all_names_of_an_assignment_are_defined() -> None:
    assert [name for name, _, _ in found("a, *b = 1, 2\nMIN_VERSION: str = '1.2'\n")] == ["a", "b", "MIN_VERSION"]
    assert found("MIN_VERSION: str = '1.2'\n")[0][2] == "1.2"


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("TYPE_CHECKING", {"other"}),
        ("typing.TYPE_CHECKING and x", {"other"}),
        ("not TYPE_CHECKING", {"first"}),
        ("TYPE_CHECKING or x", {"first", "other"}),
    ],
)
def test_a_module_does_not_bind_what_only_type_checkers_read(test: str, expected: set[str]) -> None:
    source = f"if {test}:\n    from peft import first\nelse:\n    from peft import other\n"
    assert set(read_module(source.encode(), "trl.core", is_package=False).imports) == expected
