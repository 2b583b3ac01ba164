"""A mutant reaches every live function of its code, and says so when it cannot."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cases.injection import source_mutants
from cases.injection.source_mutants import ImmutableError, SourceMutant, activate, digest

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator
    from pathlib import Path

STACK = """
import functools

def doubled(function):
    @functools.wraps(function)
    def wrapper(*args):
        return 2 * function(*args)
    return wrapper

@doubled
def plus(a, b):
    return a + b

def counter():
    total = 0
    def count():
        nonlocal total
        total += 1
        return total
    return count

class Base:
    def setup(self):
        self.ready = True

class Layer(Base):
    def setup(self):
        super().setup()
        self.size = 3

    @property
    def area(self):
        return self.size * 4

if True:
    class Optional(Base):
        def setup(self):
            super().setup()
            self.size = 4

LIVE = counter()
REGISTRY = []

@REGISTRY.append
def _(x):
    return x + 1

@REGISTRY.append
def _(x):
    return x + 2
"""


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module that is imported before it is mutated."""
    (tmp_path / "tiny_stack.py").write_text(STACK)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("tiny_stack")
    del sys.modules["tiny_stack"]


def a_mutant(function: str, old: str, new: str, source: str = STACK) -> SourceMutant:
    begin = source.encode().index(old.encode())
    return SourceMutant("m", "tiny_stack.py", digest(source.encode()), function, begin, begin + len(old), new)


def test_the_function_that_a_decorator_holds_changes(stack: Any) -> None:
    assert activate(a_mutant("plus", "a + b", "a - b"))
    assert stack.plus(5, 3) == 4


def test_a_name_that_another_module_imported_changes_too(stack: Any) -> None:
    plus = stack.plus
    activate(a_mutant("plus", "a + b", "a * b"))
    assert plus(5, 3) == 30


def test_closures_that_exist_already_change(stack: Any) -> None:
    stack.LIVE()
    activate(a_mutant("counter", "total += 1", "total += 10"))
    assert (stack.LIVE(), stack.counter()()) == (11, 10)


def test_functions_that_a_mutated_one_makes_later_name_its_file(stack: Any) -> None:
    file = stack.counter.__code__.co_filename
    activate(a_mutant("counter", "total += 1", "total += 10"))
    assert stack.counter().__code__.co_filename == file


def test_the_wrappers_that_a_decorator_made_change(stack: Any) -> None:
    activate(a_mutant("doubled", "2 * function", "3 * function"))
    assert stack.plus(1, 1) == 6


def test_a_property_changes(stack: Any) -> None:
    activate(a_mutant("Layer.area", "self.size * 4", "self.size + 4"))
    layer = stack.Layer()
    layer.setup()
    assert layer.area == 7


def test_the_only_call_of_super_can_be_dropped(stack: Any) -> None:
    activate(a_mutant("Layer.setup", "super().setup()", "pass"))
    layer = stack.Layer()
    layer.setup()
    assert vars(layer) == {"size": 3}


def test_the_only_call_of_super_can_be_dropped_in_a_class_under_a_condition(stack: Any) -> None:
    activate(a_mutant("Optional.setup", "super().setup()\n            self.size = 4", "self.size = 4"))
    layer = stack.Optional()
    layer.setup()
    assert vars(layer) == {"size": 4}


def test_the_variables_of_a_method_without_its_super_can_be_read(stack: Any) -> None:
    activate(a_mutant("Layer.setup", "super().setup()", "pass"))
    seen: list[dict[str, Any]] = []

    def look(frame: types.FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code.co_name == "setup":
            seen.append(dict(frame.f_locals))

    layer = stack.Layer()
    sys.setprofile(look)
    try:
        layer.setup()
    finally:
        sys.setprofile(None)
    assert seen == [{"self": layer, "__class__": stack.Layer}]


def test_functions_of_a_frozen_parent_change(stack: Any) -> None:
    gc.freeze()
    try:
        activate(a_mutant("plus", "a + b", "a - b"))
        assert stack.plus(5, 3) == 4
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_a_function_that_only_a_registry_holds_changes(stack: Any) -> None:
    activate(a_mutant("_", "x + 1", "x + 5"))
    assert [each(0) for each in stack.REGISTRY] == [5, 2]


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize(
    ("function", "old", "new", "reason"),
    [
        ("plus", "a + b", "a +", "does not compile"),
        ("plus", "a + b", "(a + b)", "changes no live code"),
        ("minus", "a + b", "a - b", "changes no live code"),
    ],
)
def test_a_mutant_without_effect_is_refused(function: str, old: str, new: str, reason: str) -> None:
    with pytest.raises(ImmutableError, match=reason):
        activate(a_mutant(function, old, new))


@pytest.mark.usefixtures("stack")
def test_a_mutant_of_another_version_is_refused() -> None:
    with pytest.raises(ImmutableError, match=r"tiny_stack\.py is not the file"):
        activate(a_mutant("plus", "a + b", "a - b", source=STACK + "\n"))


def test_a_mutant_is_read_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "mutants.jsonl").write_text(
        '{"id": "one", "file": "f.py", "source": "", "function": "f", "begin": 1, "end": 2, "new": "x"}\n'
    )
    assert source_mutants.read(tmp_path / "mutants.jsonl", "one").new == "x"
    with pytest.raises(ImmutableError, match="two is not in the file"):
        source_mutants.read(tmp_path / "mutants.jsonl", "two")


def test_the_module_of_a_package_is_the_package() -> None:
    assert SourceMutant("m", "peft/utils/__init__.py", "", "", 0, 0, "").module == "peft.utils"
