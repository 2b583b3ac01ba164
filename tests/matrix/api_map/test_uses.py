"""Uses of other packages, with the conditions under which they run."""

from __future__ import annotations

import ast

import pytest

from matrix.api_map.reading.names import names_of
from matrix.api_map.reading.uses import uses_of


def conditions(source: str) -> dict[str, str]:
    """Return the conditions of the imports and attributes of other packages in a module of peft, by target."""
    tree = ast.parse(source)
    found, _ = uses_of(tree, names_of(tree, "peft.tuners", is_package=False))
    return {target: held for target, kind, held in found if kind in {"import", "attribute", "keyword"}}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("try:\n    {}\nexcept ImportError:\n    pass", {"trl.A": "try"}),
        ("try:\n    {}\nexcept RuntimeError:\n    pass", {"trl.A": ""}),
        ("try:\n    {}\nexcept AttributeError:\n    pass", {"trl.A": ""}),
        ("try:\n    def f():\n        {}\nexcept ImportError:\n    pass", {"trl.A": "function"}),
        ("with suppress(ImportError):\n    {}", {"trl.A": "try"}),
        ("with suppress(KeyError):\n    {}", {"trl.A": ""}),
        ("try:\n    if not is_trl_available():\n        raise X\nexcept X: ...\nelse:\n    {}", {"trl.A": "has:trl"}),
        ("try:\n    import trl\nexcept ImportError:\n    pass\nelse:\n    {}", {"trl.A": "if"}),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    {}", {"trl.A": ""}),
        ("if is_trl_available() or flag():\n    pass\nelse:\n    {}", {"trl.A": "!has:trl;if"}),
        ("if is_torch_version('<', '2.1'):\n    raise ImportError\n{}", {"trl.A": "!ver:torch<2.1"}),
        ("if is_trl_available():\n    pass\nelse:\n    raise ImportError\n{}", {"trl.A": "has:trl"}),
        ("for x in y:\n    if not is_trl_available():\n        continue\n    {}", {"trl.A": "has:trl"}),
        ("match x:\n    case 1:\n        {}", {"trl.A": "if"}),
        ("try:\n    {}\nexcept* ImportError:\n    pass", {"trl.A": "try"}),
        ("if is_trl_available(min_version='1.2'):\n    {}", {"trl.A": "has:trl>=1.2"}),
        ("def f(x):\n    if x is None:\n        return\n    {}", {"trl.A": "function"}),
    ],
)
def test_an_import_has_the_conditions_of_its_place(source: str, expected: dict[str, str]) -> None:
    assert conditions(source.format("from trl import A")) == expected


def test_each_error_of_a_missing_name_has_its_own_handler() -> None:
    source = "import trl\ntry:\n    trl.f(x=1)\nexcept {}:\n    pass\n"
    assert conditions(source.format("AttributeError")) == {"trl.f": "try", "trl.f(x)": ""}
    assert conditions(source.format("TypeError")) == {"trl.f": "", "trl.f(x)": "try"}


def test_an_operand_is_read_under_those_before_it() -> None:
    source = "import trl\nx = is_trl_available() {} trl.A\n"
    assert conditions(source.format("and")) == {"trl.A": "has:trl"}
    assert conditions(source.format("or")) == {"trl.A": "!has:trl"}


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ("x = is_trl_available()", {"x": "has:trl"}),
        ("if y:\n    x = is_trl_available()\nelse:\n    x = False", {"x": "has:trl"}),
        ("x = is_trl_available()\nx = is_peft_available()", {}),
        ("x = is_trl_available()\nx = find()", {}),
    ],
)
def test_a_variable_holds_a_condition_if_it_never_gets_another_one(statements: str, expected: dict[str, str]) -> None:
    tree = ast.parse(statements)
    assert uses_of(tree, names_of(tree, "peft.tuners", is_package=False))[1] == expected
