"""Mutants of the installed stack: small edits of the source of one function, put into its live code.

A mutant changes the code of the functions that exist already, wherever another module or class holds them. Only code
that runs after that is mutated: statements of modules and classes, defaults and decorators ran before.
"""

from __future__ import annotations

import ast
import importlib
import json
import types
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from cases.injection import live_functions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

GENERATED = 0x02  # CO_NEWLOCALS: the code of a function, not of a class body
DIGITS = 12
SUPER = b"super()"


class ImmutableError(Exception):
    """A mutant cannot be put into the live code; the text says why."""


@dataclass(frozen=True)
class SourceMutant:
    """An edit of a source file: ``new`` replaces the bytes from ``begin`` to ``end``.

    ``file`` is the path below site-packages, ``source`` the digest of the file that the edit belongs to, and
    ``function`` the qualified name of the outermost function around the edit.
    """

    id: str
    file: str
    source: str
    function: str
    begin: int
    end: int
    new: str

    @property
    def module(self) -> str:
        """The dotted name of the file's module."""
        return self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def mutated(self, source: bytes) -> bytes:
        """The source of the file with the edit.

        Raises:
            ImmutableError: the file is not the one that the edit belongs to.
        """
        if digest(source) != self.source:
            raise ImmutableError(f"{self.file} is not the file that {self.id} was generated from")
        return source[: self.begin] + self.new.encode() + source[self.end :]

    def drops_super(self, source: bytes) -> bool:
        """Return whether the edit drops a ``super()``, which may be the only use of a method's ``__class__``."""
        return SUPER in source[self.begin : self.end] and SUPER not in self.new.encode()


def with_class_cell(source: bytes, method: str) -> types.CodeType:
    """The compiled file, with a use of ``__class__`` in a method, so that its closure still has the class.

    Code that only states the cell crashes the interpreter when somebody reads the variables of its frame.
    """
    tree = ast.parse(source)
    *classes, name = method.split(".")
    inside: list[ast.AST] = [tree]
    for each in classes:
        found = (inner for node in inside for inner in ast.walk(node))
        inside = [inner for inner in found if isinstance(inner, ast.ClassDef) and inner.name == each]
    for node in (inner for each in inside for inner in ast.walk(each) if classes):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            use = ast.Expr(ast.Name("__class__", ast.Load()))
            node.body.insert(ast.get_docstring(node) is not None, ast.copy_location(use, node.body[0]))
    return compile(ast.fix_missing_locations(tree), "<source>", "exec", dont_inherit=True)


def digest(source: bytes) -> str:
    return sha256(source).hexdigest()[:DIGITS]


def read(path: Path, name: str) -> SourceMutant:
    """The mutant of this name in a file with one JSON object on each line.

    Raises:
        ImmutableError: the file does not have it.
    """
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            found = json.loads(line)
            if found["id"] == name:
                return SourceMutant(**found)
    raise ImmutableError(f"{name} is not in the file of mutants")


def activate(mutant: SourceMutant) -> list[types.FunctionType]:
    """Put a mutant into every live function of its code, for the rest of this process.

    Returns:
        The functions that changed.

    Raises:
        ImmutableError: the edit does not compile, or changes the code of no live function.
    """
    module = importlib.import_module(mutant.module)
    path = str(module.__file__)
    mutated = mutant.mutated(source := Path(path).read_bytes())
    try:
        after = compiled_functions(mutated)
        if mutant.drops_super(source):
            after = functions_by_place(with_class_cell(mutated, mutant.function))
    except (SyntaxError, ValueError) as error:
        raise ImmutableError(f"{mutant.id} does not compile: {error}") from None
    outermost = [code for (name, _), code in after.items() if name == mutant.function]
    near = live_functions.codes(live_functions.reachable(module), path)
    swaps = changed_code(near, outermost) or changed_code(
        live_functions.codes(live_functions.all_functions(), path), outermost
    )
    changed = [function for function in live_functions.having(swaps) if swap(function, swaps)]
    if not changed:
        raise ImmutableError(f"{mutant.id} changes no live code of {mutant.function}")
    return changed


def changed_code(
    live: Iterable[types.CodeType], outermost: Sequence[types.CodeType]
) -> dict[types.CodeType, types.CodeType]:
    """The live code that an edit changes, with what it becomes."""
    places = {(code.co_name, code.co_firstlineno): code for code in outermost}
    pairs = [
        (old, places[old.co_name, old.co_firstlineno]) for old in live if (old.co_name, old.co_firstlineno) in places
    ]
    return {old: new for pair in pairs for old, new in same_places(*pair) if differs(old, new)}


def code_pairs(
    before: Mapping[tuple[str, int], types.CodeType], mutated: bytes, function: str
) -> list[tuple[types.CodeType, types.CodeType]]:
    """The code of a function and of the functions inside it, each before and after an edit.

    ``before`` is what ``compiled_functions`` says of the source without the edit.

    Raises:
        SyntaxError, ValueError: the edit does not compile.
    """
    after = compiled_functions(mutated)
    common = [place for place in before if place[0] == function and place in after]
    return [pair for place in common for pair in same_places(before[place], after[place])]


def compiled_functions(source: bytes) -> dict[tuple[str, int], types.CodeType]:
    """The compiled functions of a file: see ``functions_by_place``."""
    return functions_by_place(compile(source, "<source>", "exec", dont_inherit=True))


def same_places(old: types.CodeType, new: types.CodeType) -> list[tuple[types.CodeType, types.CodeType]]:
    """Two versions of a function, and of each function inside it that both have."""
    before, after = functions_by_place(old), functions_by_place(new)
    return [(old, new), *((before[place], after[place]) for place in before if place in after)]


def functions_by_place(module: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """The code of each function by its qualified name and its number among those of the same name."""
    found: dict[tuple[str, int], types.CodeType] = {}
    for name, code in nested_code(module, ""):
        number = 0
        while (name, number) in found:
            number += 1
        found[name, number] = code
    return found


def nested_code(code: types.CodeType, prefix: str) -> Iterator[tuple[str, types.CodeType]]:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            name = f"{prefix}{inner.co_name}"
            if inner.co_flags & GENERATED:
                yield name, inner
                yield from nested_code(inner, f"{name}.<locals>.")
            else:
                yield from nested_code(inner, f"{name}.")


def differs(old: types.CodeType, new: types.CodeType) -> bool:
    """Return whether two versions of a function do different things; where their lines are does not count."""
    if (old.co_code, old.co_names, old.co_varnames, old.co_freevars) != (
        new.co_code,
        new.co_names,
        new.co_varnames,
        new.co_freevars,
    ) or len(old.co_consts) != len(new.co_consts):
        return True
    pairs = zip(old.co_consts, new.co_consts, strict=True)
    return any(differs(a, b) if is_code(a) and is_code(b) else repr(a) != repr(b) for a, b in pairs)


def is_code(value: object) -> bool:
    return isinstance(value, types.CodeType)


def swap(function: types.FunctionType, swaps: Mapping[types.CodeType, types.CodeType]) -> bool:
    """Give a live function its mutated code; return whether that fits its closure."""
    old = function.__code__
    new = swaps[old]
    if new.co_freevars != old.co_freevars:
        return False
    function.__code__ = in_file(new, old.co_filename)
    return True


def in_file(code: types.CodeType, name: str) -> types.CodeType:
    """The code as that of a file, with the functions inside it, so that tracebacks and traces name the file."""
    constants = tuple(in_file(each, name) if isinstance(each, types.CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=name, co_consts=constants)
