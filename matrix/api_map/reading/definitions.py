"""Reads what a module defines: classes with their fields and attributes, functions with their parameters.

Written with ``ast`` and not with griffe: uses and their conditions need the same walk over the same tree, lazy modules
need the dictionaries from which they are built, and griffe keeps neither; reading each file twice would take three
times as long.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matrix.api_map.reading.names import Names

LONGEST_DEFAULT: Final = 60
CONSTRUCTORS: Final = frozenset({"__init__", "__post_init__", "__new__"})
DEPRECATED: Final = re.compile(
    r"`{1,2}-{0,2}(?P<old>[a-z_]\w+)`{1,2}(?: argument| parameter| field)? (?:is|has been|was) (?:now )?"
    r"(?:deprecated|renamed)"
    r"[^`]{0,120}?(?:[Uu]se|in favou?r of|to|with|by) `{1,2}-{0,2}(?P<new>[a-z_]\w+)`{1,2}"
)

NEW_NAME_PLACE: Final = 2  # of the positional arguments of `deprecate_kwarg`: old name, version, new name
LEAST_TORCH: Final = re.compile(r"Disabling PyTorch because PyTorch >= ([\d.]+\d) is required")

Definition = tuple[str, str, str]  # name within the module, kind, detail


def definitions(tree: ast.Module, names: Names, *, outline: bool, renaming: bool = True) -> Iterator[Definition]:
    """Yield the definitions of a module; with ``outline`` only its classes and functions, without their parts.

    ``renaming``: look for parameters that were renamed.
    """
    for statement in without_overloads(top_level(tree.body)):
        match statement:
            case ast.ClassDef():
                yield statement.name, "class", "" if outline else class_detail(statement, names)
                if not outline:
                    yield from class_members(statement, renaming=renaming)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield statement.name, "function", "" if outline else parameters(statement.args)
                if not outline and renaming:
                    yield from renames(statement, statement.name)
            case ast.Assign(targets=targets) if not outline:
                for target in targets:
                    yield from ((name, "variable", bound_text(name, statement.value)) for name in plain_names(target))
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if not outline:
                yield name, "variable", bound_text(name, value)
            case _:
                pass


def least_torch(tree: ast.Module) -> Iterator[Definition]:
    """Yield the least version of torch below which transformers acts as if torch were not installed.

    It is written in the body of ``is_torch_available``, and in a warning.
    """
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            found = LEAST_TORCH.search(each.value)
            if found:
                yield "TORCH_MIN_VERSION", "variable", found[1]
                return


def top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements at the level of a body, and those of its branches."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Try | ast.With | ast.For):
            yield from top_level(statement.body)
            for handler in getattr(statement, "handlers", ()):
                yield from top_level(handler.body)
            yield from top_level(getattr(statement, "orelse", []))
            yield from top_level(getattr(statement, "finalbody", []))
        else:
            yield statement


def without_overloads(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Leave out what only type checkers read: the ``@overload`` forms of functions that have a definition."""
    every = list(statements)
    functions = [each for each in every if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    defined = {each.name for each in functions if not is_overload(each)}
    for each in every:
        is_function = isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        if not is_function or each.name not in defined or not is_overload(each):  # type: ignore[attr-defined, arg-type]
            yield each


def is_overload(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(each).rpartition(".")[2] == "overload" for each in function.decorator_list)


def bound_text(name: str, value: ast.expr | None) -> str:
    """Return the value of a constant that holds a least version; empty for other variables."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and name.endswith("VERSION"):
        return value.value
    return ""


def plain_names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from plain_names(each.value if isinstance(each, ast.Starred) else each)


def class_detail(node: ast.ClassDef, names: Names) -> str:
    """Return the dotted bases of a class, and ``@dataclass`` if it is one, separated by spaces."""
    bases = [names.resolve(each.value if isinstance(each, ast.Subscript) else each) for each in node.bases]
    decorators = [names.resolve(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list]
    is_dataclass = any(each.rpartition(".")[2] == "dataclass" for each in decorators)
    return " ".join([*(each for each in bases if each), *(["@dataclass"] if is_dataclass else [])])


def class_members(node: ast.ClassDef, *, renaming: bool) -> Iterator[Definition]:
    seen: set[str] = set()
    for statement in without_overloads(top_level(node.body)):
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                seen.add(statement.name)
                yield from method(node.name, statement)
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                seen.add(name)
                yield f"{node.name}.{name}", *field_of(statement.annotation, value)
            case ast.Assign(targets=targets):
                for name in (each for target in targets for each in plain_names(target)):
                    seen.add(name)
                    yield f"{node.name}.{name}", "attribute", ""
            case ast.ClassDef(name=name):
                seen.add(name)
                yield f"{node.name}.{name}", "attribute", ""
            case _:
                pass
    for name in dict.fromkeys(instance_attributes(node)):
        if name not in seen:
            yield f"{node.name}.{name}", "attribute", ""
    if renaming:
        yield from renames_in(node)


def renames_in(node: ast.ClassDef) -> Iterator[Definition]:
    """Yield the renamed parameters of a class's constructor and methods."""
    for statement in node.body:
        scope = node.name
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name not in CONSTRUCTORS:
            scope = f"{node.name}.{statement.name}"
        yield from renames(statement, scope)


def method(owner: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Definition]:
    words = {each.rpartition(".")[2] for each in map(ast.unparse, node.decorator_list)}
    if words & {"property", "cached_property", "setter"}:
        yield f"{owner}.{node.name}", "property", ""
    else:
        yield f"{owner}.{node.name}", "method", parameters(node.args)


def instance_attributes(node: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes that methods assign to ``self``."""
    for each in ast.walk(node):
        if (
            isinstance(each, ast.Attribute)
            and isinstance(each.ctx, ast.Store)
            and isinstance(each.value, ast.Name)
            and each.value.id == "self"
        ):
            yield each.attr


def parameters(arguments: ast.arguments) -> str:
    """Return the parameters, one a line: ``name``, ``name=default``, ``/``, ``*``, ``*args`` or ``**kwargs``."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    lines = [with_default(each.arg, value) for each, value in zip(positional, defaults, strict=True)]
    if arguments.posonlyargs:
        lines.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg:
        lines.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        lines.append("*")
    lines += [with_default(a.arg, value) for a, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return "\n".join([*lines, *([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])])


def with_default(name: str, value: ast.expr | None) -> str:
    return name if value is None else f"{name}={shortened(value)}"


def field_of(annotation: ast.expr, value: ast.expr | None) -> tuple[str, str]:
    """Return the kind and the default of an annotated name of a class: a dataclass takes fields as arguments."""
    is_argument = not ast.unparse(annotation).removeprefix("typing.").startswith("ClassVar")
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "field":
        is_argument &= all(each.arg != "init" or ast.unparse(each.value) != "False" for each in value.keywords)
    return ("field", default_text(value)) if is_argument else ("attribute", "")


def default_text(value: ast.expr | None) -> str:
    """Return the default of a field: of ``field(default=...)`` and ``field(default_factory=...)`` what they name."""
    if value is None:
        return ""
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "field":
        for keyword in value.keywords:
            if keyword.arg in {"default", "default_factory"}:
                factory = keyword.arg == "default_factory"
                return f"{shortened(keyword.value)}()" if factory else shortened(keyword.value)
        return ""
    return shortened(value)


def shortened(value: ast.expr) -> str:
    text = " ".join(ast.unparse(value).split())
    return text if len(text) <= LONGEST_DEFAULT else f"{text[: LONGEST_DEFAULT - 3]}..."


def renames(node: ast.stmt, scope: str) -> Iterator[Definition]:
    """Yield renamed parameters and fields.

    Their kind is ``alias`` if ``@deprecate_kwarg`` still accepts the old name, ``rename`` if a sentence states it.
    """
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and ast.unparse(each.func).rpartition(".")[2] == "deprecate_kwarg":
            old = each.args[0] if each.args else None
            by_place = each.args[NEW_NAME_PLACE] if len(each.args) > NEW_NAME_PLACE else None
            new = next((keyword.value for keyword in each.keywords if keyword.arg == "new_name"), by_place)
            if isinstance(old, ast.Constant) and isinstance(new, ast.Constant):
                yield f"{scope}.{old.value!s}", "alias", str(new.value)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str) and "`" in each.value:
            for found in DEPRECATED.finditer(" ".join(each.value.split())):
                if found["old"] != found["new"]:
                    yield f"{scope}.{found['old']}", "rename", found["new"]
        elif isinstance(each, ast.JoinedStr):
            text = "".join(str(part.value) for part in each.values if isinstance(part, ast.Constant))
            for found in DEPRECATED.finditer(" ".join(text.split())):
                yield f"{scope}.{found['old']}", "rename", found["new"]
