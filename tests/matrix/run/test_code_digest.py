"""Tests that digests depend on code, not on prose or on the Python version."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from matrix.run import code_digest
from matrix.run.code_digest import CaseCode, agree, merged, tree_digest
from matrix.run.execute import CASES, Suite

FUNCTION = """
def area(width, height):
    return width * height
"""
PROSE = '''"""Shapes."""


# A comment.
def area(width: float, height: float) -> float:
    """The area of a rectangle."""
    return (width
            * height)
'''
TYPING = """
if TYPE_CHECKING:
    from collections.abc import Callable
"""
BY_PYENV = (Path.home() / ".pyenv" / "versions").glob("3.1[0-9].*/bin/python")
PYTHONS = [Path(sys.executable), *sorted(BY_PYENV)]  # the running one, so that the test is never empty
CODE = CaseCode({"cases.a": b"x = 1", "cases.b": b"y = 1", "mini": b"z = 1", "cases.grid.rows": b"ROWS = ()"})


def digest(text: str) -> str:
    return tree_digest(text.encode())


def test_prose_layout_and_annotations_do_not_change_a_digest() -> None:
    assert digest(PROSE) == digest(FUNCTION)


def test_imports_for_type_checkers_do_not_change_a_digest() -> None:
    assert digest(FUNCTION + TYPING) == digest(FUNCTION)


@pytest.mark.parametrize(
    ("old", "new"),
    [("width *", "width +"), ("area", "size"), ("height)", "height=1)"), ("def", "async def"), ("* height", "* 2")],
)
def test_another_expression_name_default_or_constant_changes_a_digest(old: str, new: str) -> None:
    assert digest(FUNCTION.replace(old, new, 1)) != digest(FUNCTION)


def test_the_fields_of_a_dataclass_are_code() -> None:
    assert digest("class A:\n    x: int") != digest("class A:\n    x: int\n    y: int")


def test_constants_of_another_type_change_a_digest() -> None:
    assert len({digest(f"x = {text}") for text in ("1", "1.0", "True", "'1'", "b'1'", "None")}) == 6


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])
def test_every_python_version_computes_the_same_digest(python: Path) -> None:
    asks = (
        "import runpy, sys; from pathlib import Path; "
        "code = runpy.run_path(sys.argv[1], run_name='code_digest'); "
        "files = {str(path): path.read_bytes() for path in sorted(Path(sys.argv[2]).rglob('*.py'))}; "
        "print(code['CaseCode'].of_files(files).digest)"
    )
    command = [str(python), "-c", asks, code_digest.__file__, str(CASES / "checks")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    files = {str(path): path.read_bytes() for path in sorted((CASES / "checks").rglob("*.py"))}
    assert done.stdout.strip() == CaseCode.of_files(files).digest


def test_a_stamp_names_modules_and_leaves_out_those_that_declare_cases() -> None:
    stamp = CODE.stamp(["mini", "cases.grid.rows", "cases.a", "extra_cases"])
    assert [each.partition("=")[0] for each in stamp.split()] == ["a", "mini"]


def test_only_an_edit_of_a_module_in_the_stamp_makes_it_stale() -> None:
    stamp = CODE.stamp(["cases.a", "mini"])
    other, same = ({**CODE.sources, name: b"x = 2"} for name in ("cases.a", "cases.b"))
    assert CaseCode(other).changed(stamp) == ("cases.a",)
    assert CaseCode(same).is_current(stamp)


def test_a_module_that_no_longer_exists_makes_a_stamp_stale() -> None:
    assert CaseCode({"cases.a": b"x = 1"}).changed(CODE.stamp(["cases.a", "cases.b"])) == ("b",)


def test_without_a_stamp_nothing_is_current() -> None:
    assert not CODE.is_current("")


def test_stamps_of_different_modules_agree_if_their_common_modules_do() -> None:
    assert agree("a=1 b=2", "b=2 c=3")
    assert not agree("a=1 b=2", "b=3 c=3")
    assert not agree("a=1", "c=3")


def test_stamps_are_merged_module_by_module() -> None:
    assert merged(["b=2 c=3", "a=1 b=2"]) == "a=1 b=2 c=3"


def test_the_suite_knows_every_module_of_the_case_code() -> None:
    assert {"cases.suite", "cases.apply", "cases.apply.build"} <= Suite().code.sources.keys()
