"""Digests of the case code that produced a verdict.

A cell's processes report the modules of ``cases/`` that they imported. The digest of a module is over its syntax tree
without docstrings, comments and annotations of functions, so an edit of prose does not change it. It is the same on
every Python version that the harness supports.

A *stamp* is what an outcome stores: ``apply.build=3fa2c1 suite=91be02``, the imported modules in alphabetical order,
each with its digest and without the leading ``cases.``.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PACKAGE: Final = "cases."
DECLARATIONS: Final = ("cases.grid", "extra_cases")  # list the cases; a cell's key names its options already
SCRIPT: Final = "script:"  # before the name of a user's script, whose declaration counts as a module
NO_CODE: Final = "none"  # in place of a digest: no case code took part in the outcome
MISSING: Final = "missing"
MODULE_DIGITS: Final = 6
DIGITS: Final = 12
IGNORED: Final = frozenset({"ctx", "kind", "returns", "type_comment", "type_ignores", "type_params"})


@dataclass(frozen=True)
class CaseCode:
    """The modules of the case code by name, e.g. ``cases.apply.build``, with their source."""

    sources: Mapping[str, bytes]
    known: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of_files(cls, files: Mapping[str, bytes]) -> CaseCode:
        """The modules among files by path, e.g. ``cases/apply/build.py``."""
        return cls({module_name(path): content for path, content in files.items() if path.endswith(".py")})

    @property
    def digest(self) -> str:
        """The digest of all modules."""
        return digest(self.stamp(self.sources))

    def stamp(self, modules: Iterable[str]) -> str:
        """The modules, each with its digest; those that only declare cases are left out."""
        names = sorted({name for name in modules if not is_declaration(name)})
        return " ".join(f"{name.removeprefix(PACKAGE)}={self.module_digest(name)}" for name in names)

    def module_digest(self, name: str) -> str:
        if name not in self.known:
            source = self.sources.get(name)
            self.known[name] = MISSING if source is None else self.source_digest(name, source)
        return self.known[name]

    def source_digest(self, name: str, source: bytes) -> str:
        return sha256(source).hexdigest()[:MODULE_DIGITS] if name.startswith(SCRIPT) else tree_digest(source)

    def changed(self, stamp: str) -> tuple[str, ...]:
        """The modules of a stamp whose code is different now, or that no longer exist."""
        return tuple(
            name for short, old in parsed(stamp).items() if self.module_digest(name := self.full_name(short)) != old
        )

    def full_name(self, short: str) -> str:
        return f"{PACKAGE}{short}" if f"{PACKAGE}{short}" in self.sources else short

    def is_current(self, stamp: str) -> bool:
        """Return whether the code of a stamp is the code as it is now; False without a stamp."""
        return bool(stamp) and not self.changed(stamp)


def digest(stamp: str) -> str:
    """A short name for a stamp; empty without one."""
    return sha256(stamp.encode()).hexdigest()[:DIGITS] if stamp else ""


@lru_cache(maxsize=8192)  # documents repeat every stamp in many cells
def agree(one: str, other: str) -> bool:
    """Return whether two stamps have the same digest for each module that both have.

    Cells that ran on different devices, or ended at different places, import different modules.
    """
    first, second = parsed(one), parsed(other)
    common = first.keys() & second.keys()
    return bool(common) and all(first[name] == second[name] for name in common)


def same_code(stamp: str, digest: str, other_stamp: str, other_digest: str) -> bool:
    """Return whether the same case code produced two results; without both stamps, compare the digests."""
    if stamp and other_stamp:
        return agree(stamp, other_stamp)
    return digest == other_digest


def merged(stamps: Iterable[str]) -> str:
    """One stamp with the modules of all; of a module in several, the digest in the last."""
    modules: dict[str, str] = {}
    for stamp in stamps:
        modules |= parsed(stamp)
    return " ".join(f"{name}={modules[name]}" for name in sorted(modules))


def parsed(stamp: str) -> dict[str, str]:
    """Digests by short module name."""
    return dict(each.rsplit("=", 1) for each in stamp.split())


def is_declaration(name: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in DECLARATIONS)


def module_name(path: str) -> str:
    """The name of the module in a file, e.g. ``cases.apply`` for ``cases/apply/__init__.py``."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@lru_cache(maxsize=512)  # more than the modules of the case code
def tree_digest(source: bytes) -> str:
    """The digest of one module.

    Raises:
        SyntaxError: the source is not Python.
    """
    return sha256(serialised(ast.parse(source)).encode(errors="backslashreplace")).hexdigest()[:MODULE_DIGITS]


def serialised(node: Any) -> str:
    """A syntax tree as text that does not depend on the version of Python.

    ``ast.dump`` does: versions add fields, and leave out others that are empty.
    """
    if isinstance(node, list):
        return f"[{','.join(serialised(each) for each in node if not is_without_effect(each))}]"
    if isinstance(node, ast.Constant):
        return f"{type(node.value).__name__}:{node.value!r}"
    if isinstance(node, ast.JoinedStr):
        return f"JoinedStr({','.join(map(serialised, joined_parts(node)))})"
    if isinstance(node, ast.AST):
        fields = [f"{name}={serialised(value)}" for name, value in ast.iter_fields(node) if is_kept(node, name, value)]
        return f"{type(node).__name__}({','.join(fields)})"
    return repr(node)


def is_kept(node: ast.AST, name: str, value: Any) -> bool:
    is_argument_annotation = name == "annotation" and isinstance(node, ast.arg)
    return name not in IGNORED and value is not None and value != [] and not is_argument_annotation


def is_without_effect(node: Any) -> bool:
    """Return whether a statement is a docstring, another string that nothing uses, or for type checkers only."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" and not node.orelse
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def joined_parts(node: ast.JoinedStr) -> list[ast.expr]:
    """The parts of an f-string with adjacent texts joined: Python versions split them differently."""
    parts: list[ast.expr] = []
    for each in node.values:
        if not isinstance(each, ast.Constant):
            parts.append(each)
        elif parts and isinstance(last := parts[-1], ast.Constant):
            parts[-1] = ast.Constant(value=f"{last.value!s}{each.value!s}")
        elif each.value:
            parts.append(each)
    return parts
