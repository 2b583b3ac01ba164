"""Reads the arguments of calls and the parameters of functions as texts of constants; any other value is ``?``."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

UNKNOWN: Final = "?"
UNPACKED: Final = "**"  # stands for arguments that a list or mapping holds


def arguments_of(call: ast.Call) -> str:
    """Return the arguments of a call as JSON: a list of those by place, and a mapping of those by name."""
    named = {each.arg or UNPACKED: value_text(each.value) for each in call.keywords}
    if any(isinstance(each, ast.Starred) for each in call.args):
        named[UNPACKED] = UNKNOWN
    return json.dumps([[value_text(each) for each in call.args], named])


def value_text(value: ast.expr | None) -> str:
    """Return the source of a plain constant; ``?`` stands for any other value."""
    is_plain = isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, bool | int | str))
    return repr(value.value) if is_plain and ";" not in str(value.value) else UNKNOWN  # type: ignore[union-attr]


def parameters_of(arguments: ast.arguments) -> list[tuple[str, str]]:
    """Return the parameters of a function with their defaults, without ``self``."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    found = [(each.arg, value_text(value)) for each, value in zip(positional, defaults, strict=True)]
    found += [
        (each.arg, value_text(value)) for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return found[1:] if found and found[0][0] == "self" else found


def bound_values(parameters: Sequence[tuple[str, str]], arguments: str) -> dict[str, str]:
    """Return the value of each parameter in a call with arguments as ``arguments_of`` states them."""
    positional, named = json.loads(arguments)
    found = dict.fromkeys(dict(parameters), UNKNOWN) if UNPACKED in named else dict(parameters)
    found |= dict(zip(found, positional, strict=False))
    return found | {name: value for name, value in named.items() if name in found}
