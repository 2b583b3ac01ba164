"""What the names of a script stand for: modules, classes and functions of the stack, their instances, own classes."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILT_IN_BASES: Final = frozenset({"object", "ABC", "Protocol", "Generic", "NamedTuple", "TypedDict", "Enum"})


@dataclass(frozen=True)
class Named:
    """A module, class or function, by its dotted path, such as ``transformers.Trainer``."""

    path: str

    @property
    def is_class(self) -> bool:
        """Tell if it is a class, by the spelling that all packages of the stack follow."""
        last = self.path.rpartition(".")[2]
        return last[:1].isupper() and not last.isupper()


@dataclass(frozen=True)
class Instance:
    """An object of a class of the stack."""

    path: str


@dataclass(eq=False)
class OwnClass:
    """A class of the script. ``unknown_base``: a base is neither of the script nor of the stack."""

    node: ast.ClassDef
    bases: tuple[Value, ...] = ()
    unknown_base: bool = False
    members: set[str] = field(default_factory=set)

    @property
    def stack_bases(self) -> tuple[str, ...]:
        """The nearest classes of the stack that it derives from."""
        return tuple(dict.fromkeys(self.found_bases()))

    def found_bases(self) -> Iterator[str]:
        for base in self.bases:
            if isinstance(base, Named):
                yield base.path
            elif isinstance(base, OwnClass):
                yield from base.found_bases()

    @property
    def is_known(self) -> bool:
        """Tell if every base is known."""
        return not self.unknown_base and all(each.is_known for each in self.bases if isinstance(each, OwnClass))

    def has(self, name: str) -> bool:
        return name in self.members or any(each.has(name) for each in self.bases if isinstance(each, OwnClass))

    @property
    def is_dataclass(self) -> bool:
        return any("dataclass" in ast.unparse(each) for each in self.node.decorator_list)


@dataclass(frozen=True)
class OwnInstance:
    """An object of a class of the script."""

    owner: OwnClass


@dataclass(frozen=True)
class Parser:
    """A parser of command lines whose options are the fields of these classes."""

    classes: tuple[Value, ...]


@dataclass(frozen=True)
class Several:
    """A tuple of values."""

    items: tuple[Value, ...]


Value = Named | Instance | OwnClass | OwnInstance | Parser | Several | None


def members_of(node: ast.ClassDef) -> set[str]:
    """Return the names that a class defines, with the attributes that its methods assign."""
    found: set[str] = set()
    for each in ast.walk(node):
        match each:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case _:
                pass
    return found


def assigned_attributes(tree: ast.Module) -> set[str]:
    """Return the attributes that a script assigns itself, on whatever object: the stack need not have them."""
    found: set[str] = set()
    for each in ast.walk(tree):
        match each:
            case ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=str(name)), *_]):
                found.add(name)
            case _:
                pass
    return found
