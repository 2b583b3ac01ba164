"""Finds the live functions of a source file, however decorators, classes and other modules hold them."""

from __future__ import annotations

import contextlib
import functools
import gc
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

WRAPPING = ("fget", "fset", "fdel", "func", "__func__", "__wrapped__")  # attributes that hold the function inside
DESCRIPTORS = (property, functools.cached_property, staticmethod, classmethod, functools.partial, types.MethodType)


def codes(functions: Iterable[types.FunctionType], file: str) -> set[types.CodeType]:
    """The code of those functions that come from a source file."""
    return {each.__code__ for each in functions if each.__code__.co_filename == file}


def reachable(module: types.ModuleType) -> Iterator[types.FunctionType]:
    """The functions of a module and of its classes, and those that they wrap."""
    waiting: list[Any] = list(vars(module).values())
    known: set[int] = set()
    while waiting:
        each = waiting.pop()
        if id(each) in known:
            continue
        known.add(id(each))
        if isinstance(each, types.FunctionType):
            yield each
            waiting += contents(each)
        elif isinstance(each, type):
            waiting += list(vars(each).values()) if each.__module__ == module.__name__ else []
        elif isinstance(each, DESCRIPTORS) or "__wrapped__" in getattr(each, "__dict__", ()):
            waiting += [inside for name in WRAPPING if (inside := getattr(each, name, None)) is not None]


def contents(function: types.FunctionType) -> Iterator[Any]:
    """What a function wraps or closes over, where that can be a function."""
    yield vars(function).get("__wrapped__")
    for cell in function.__closure__ or ():
        try:
            inside = cell.cell_contents
        except ValueError:  # a cell that is still empty
            continue
        if isinstance(inside, (types.FunctionType, *DESCRIPTORS)):
            yield inside


def having(codes: Mapping[types.CodeType, Any]) -> list[types.FunctionType]:
    """Every function of this process with one of these codes.

    The fork server froze what it imported, which hides it from the collector. Asking for referrers copies no pages of
    the forked process, as listing all objects would.
    """
    with unfrozen():
        found = [each for each in gc.get_referrers(*codes) if isinstance(each, types.FunctionType)]
    return [each for each in found if each.__code__ in codes]


def all_functions() -> list[types.FunctionType]:
    """Every function of this process; a registry may hold one that its module names no more."""
    with unfrozen():
        return [each for each in gc.get_objects() if type(each) is types.FunctionType]


@contextlib.contextmanager
def unfrozen() -> Iterator[None]:
    """Let the collector see what was frozen."""
    is_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    if is_frozen:
        gc.freeze()
