"""Names that a function, a lambda or a comprehension binds itself are no modules and no functions of the module."""

from __future__ import annotations

import ast

import pytest

from matrix.api_map.reading.names import names_of
from matrix.api_map.reading.scopes import variables, yields
from matrix.api_map.reading.uses import uses_of


def attributes(source: str) -> list[str]:
    tree = ast.parse(f"import trl\n{source}")
    found, _ = uses_of(tree, names_of(tree, "peft.tuners", is_package=False))
    return [target for target, kind, _ in found if kind == "attribute"]


@pytest.mark.parametrize(
    "source",
    [
        "def f(trl):\n    trl.a\n",
        "def f(*trl):\n    trl.a\n",
        "def f(**trl):\n    trl.a\n",
        "def f(x, /, *, trl=None):\n    trl.a\n",
        "def f():\n    trl = g()\n    trl.a\n",
        "def f():\n    trl: X = g()\n    trl.a\n",
        "def f():\n    for x, trl in g():\n        trl.a\n",
        "def f():\n    with g() as trl:\n        trl.a\n",
        "def f():\n    try:\n        g()\n    except X as trl:\n        trl.a\n",
        "def f():\n    match g():\n        case {'x': [trl, *_]}:\n            trl.a\n",
        "def f():\n    match g():\n        case {**trl}:\n            trl.a\n",
        "def f():\n    if (trl := g()):\n        trl.a\n",
        "def f():\n    [x for x in y if (trl := x)]\n    trl.a\n",
        "def f():\n    def trl(): ...\n    trl.a\n",
        "def f():\n    class trl: ...\n    trl.a\n",
        "def f(trl):\n    def g():\n        trl.a\n",
        "def f(trl):\n    return lambda: trl.a\n",
        "f = lambda trl: trl.a\n",
        "x = [trl.a for trl in y]\n",
        "x = {trl: z for trl in y for z in trl.a}\n",
    ],
)
def test_a_variable_is_no_module(source: str) -> None:
    assert attributes(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(x=trl.a): ...\n",
        "f = lambda trl=trl.a: trl\n",
        "x = [trl for trl in trl.a]\n",
        "def f():\n    x = [trl for trl in y]\n    trl.a\n",
        "def f():\n    def g():\n        trl = 1\n    trl.a\n",
        "def f():\n    class C:\n        trl = 1\n    trl.a\n",
        "class C:\n    trl = 1\n    def f(self):\n        trl.a\n",
        "def f():\n    global trl\n    trl = g()\n    trl.a\n",
        "def f():\n    try:\n        import trl\n    except ImportError:\n        trl = None\n    trl.a\n",
        "class C(metaclass=trl.a): ...\n",
        "getattr(trl, 'a')\n",
    ],
)
def test_a_name_outside_the_scope_of_a_variable_is_the_module(source: str) -> None:
    assert attributes(source) == ["trl.a"]


def function(source: str) -> ast.FunctionDef:
    found = ast.parse(source).body[0]
    assert isinstance(found, ast.FunctionDef)
    return found


def test_a_parameter_is_a_variable_until_it_is_imported() -> None:
    assert variables(function("def f(a, b):\n    import a\n    c = d = 1\n    import d\n")) == {"a", "b", "c"}


def test_only_a_yield_of_its_own_makes_a_generator() -> None:
    assert yields(function("def f():\n    x = yield\n"))
    assert not yields(function("def f():\n    def g():\n        yield\n    return lambda: (yield)\n"))
