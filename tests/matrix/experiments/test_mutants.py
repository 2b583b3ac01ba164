"""Mutants are small edits of functions that keep the lines of a file; what decides no number is left alone."""

from __future__ import annotations

import textwrap

import pytest

from matrix.experiments.mutable_code import import_time_statements
from matrix.experiments.mutants import Mutant, StackFile, generate, is_valid


def a_source(body: str) -> StackFile:
    text = f"def f(self, x, y, dim=-1):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
    return StackFile("peft/layer.py", text.encode())


def mutants(body: str) -> list[Mutant]:
    return list(generate(a_source(body)))


def edits(body: str, kind: str) -> set[str]:
    return {each.after.strip() for each in mutants(body) if each.kind == kind}


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        ("return x + y", "arithmetic", {"return ((x) - (y))"}),
        ("return x + y", "term", {"return (x)", "return (y)"}),
        ("return x / y", "term", {"return (x)"}),
        ("return x < y", "comparison", {"return ((x) <= (y))"}),
        ("return x is None", "comparison", {"return ((x) is not (None))"}),
        ("return x and y", "condition", {"return ((x) or (y))"}),
        ("while x(1): pass", "constant", {"while x(0): pass", "while x(2): pass"}),
        ("x = 0.5", "constant", {"x = (1.0)", "x = (-0.5)", "x = (1.5)"}),
        ("x = True", "constant", {"x = False"}),
        ("x = 2", "statement", {"pass"}),
        ("z = 2", "statement", set()),
        ("self.z = 2", "statement", {"pass"}),
        ("x.add_(y)", "statement", {"pass"}),
        ("x = g(x, y)", "arguments", {"x = g(y, x)"}),
        ("x = g(x, y=y)", "keyword", {"x = g(x)"}),
        ("x = g(x=x, y=y)", "keyword", {"x = g(y=y)", "x = g(x=x)"}),
        ("x = x.sum(dim=-1)", "dim", {"x = x.sum(dim=0)"}),
        ("if x: y()", "condition", {"if (not (x)): y()"}),
        ("return x", "return", {"return None"}),
        ("return x, y", "term", {"return (y, x)"}),
    ],
)
def test_an_edit_of_each_kind(body: str, kind: str, expected: set[str]) -> None:
    assert edits(body, kind) == expected


@pytest.mark.parametrize(
    "body",
    [
        "'''A docstring with 1 + 1.'''",
        "logger.warning_once('rank %d', 1 + 1)",
        "warnings.warn('no', stacklevel=2)",
        "raise ValueError(f'{x + 1}')",
        "assert x == 1",
        "if x == 1:\n    raise ValueError(x)",
        "if x > 0:\n    logger.info(x)",
        "if is_torchdynamo_compiling():\n    x = x + 1",
    ],
)
def test_what_decides_no_number_is_left_alone(body: str) -> None:
    assert mutants(body) == []


def test_type_checks_are_not_negated() -> None:
    assert edits("if not isinstance(x, int): g()", "condition") == set()


def test_defaults_decorators_and_module_statements_are_not_mutated() -> None:
    source = StackFile("peft/layer.py", b"A = 1\n\n@g(2)\ndef f(x=3):\n    return\n\nclass C:\n    b: int = 4\n")
    assert list(generate(source)) == []
    assert import_time_statements(source.tree) == 2


def test_an_edit_keeps_the_number_of_lines() -> None:
    source = a_source("x = g(\n    x,\n    y\n    + 1,\n    dim=dim,\n)\nreturn x")
    lines = source.text.count(b"\n")
    found = list(generate(source))
    assert {each.edit.mutated(source.text).count(b"\n") for each in found} == {lines}
    assert all(is_valid(each, source) for each in found)


def test_a_method_is_named_by_its_class_and_its_outermost_function() -> None:
    source = StackFile("peft/layer.py", b"class C:\n    def f(self):\n        def g(x):\n            return x\n")
    (mutant,) = generate(source)
    assert (mutant.where, mutant.edit.function) == ("C.f.<locals>.g", "C.f")
    assert is_valid(mutant, source)


def test_the_same_edit_has_the_same_id_and_another_file_another_one() -> None:
    text = b"def f(x):\n    return x\n"
    one, same, other = (next(generate(StackFile(name, text))).id for name in ("a.py", "a.py", "b.py"))
    assert one == same != other


def test_code_that_stays_the_same_is_no_mutant() -> None:
    source = a_source("return x")
    function = source.functions[0]
    begin = source.text.index(b"return x")
    assert not is_valid(source.edited("return", function, (begin, begin + 8), "return (x)"), source)
