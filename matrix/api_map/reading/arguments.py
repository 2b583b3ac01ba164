"""Reads the arguments of calls and the parameters of functions as texts of constants; any other value is ``?``."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

UNKNOWN: Final = "?"
UNPACKED: Final = "**"  # stands for arguments by name that a mapping holds
STARRED: Final = "*"  # stands for any number of arguments by place
BY_PLACE: Final = "place"  # a parameter takes its argument by place only, by name only, or both ways
BY_NAME: Final = "name"
BOTH_WAYS: Final = ""

Parameter = tuple[str, str, str]  # name, text of the default, how it takes its argument


def arguments_of(call: ast.Call) -> str:
    """Return the arguments of a call as JSON: a list of those by place, and a mapping of those by name."""
    placed = [STARRED if isinstance(each, ast.Starred) else value_text(each) for each in call.args]
    return json.dumps([placed, {each.arg or UNPACKED: value_text(each.value) for each in call.keywords}])


def value_text(value: ast.expr | None) -> str:
    """Return the source of a plain constant; ``?`` stands for any other value."""
    is_plain = isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, bool | int | str))
    return repr(value.value) if is_plain and ";" not in str(value.value) else UNKNOWN  # type: ignore[union-attr]


def parameters_of(arguments: ast.arguments, *, is_constructor: bool = False) -> list[Parameter]:
    """Return the parameters of a function, without the instance or class that a constructor gets first."""
    placed = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(placed) - len(arguments.defaults)) + list(arguments.defaults)
    found = [
        (each.arg, value_text(value), BY_PLACE if each in arguments.posonlyargs else BOTH_WAYS)
        for each, value in zip(placed, defaults, strict=True)
    ]
    return found[1 if is_constructor else 0 :] + [
        (each.arg, value_text(value), BY_NAME)
        for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]


def defaults_of(parameters: Sequence[Parameter]) -> dict[str, str]:
    return {name: default for name, default, _ in parameters}


def bound_values(parameters: Sequence[Parameter], arguments: str) -> dict[str, str]:
    """Return the value of each parameter in a call with arguments as ``arguments_of`` states them."""
    placed, named = json.loads(arguments)
    places = [name for name, _, taken in parameters if taken != BY_NAME]
    found = defaults_of(parameters)
    if UNPACKED in named:
        found |= {name: UNKNOWN for name, _, taken in parameters if taken != BY_PLACE}
    if STARRED in placed:  # those behind it may have any place
        certain = placed.index(STARRED)
        found |= dict.fromkeys(places[certain:], UNKNOWN)
        placed = placed[:certain]
    found |= dict(zip(places, placed, strict=False))
    return found | {name: named[name] for name, _, taken in parameters if name in named and taken != BY_PLACE}
