"""Finds the names that a module binds only under checks, and uses outside of them when it is imported.

``if is_torch_available(): import torch.nn as nn`` binds nothing with a torch that is too old, and
``class Layer(nn.Module)`` behind it then raises ``NameError``. Annotations count as Python before 3.14 evaluates them.
"""

from __future__ import annotations

import ast
import builtins
import re
from itertools import product
from typing import TYPE_CHECKING, Final

from matrix.api_map.packages import MAPPED
from matrix.api_map.reading.conditions import OTHER, TELLING, TYPING, negated
from matrix.api_map.reading.uses import UseReader, annotations_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.api_map.reading.names import Names
    from matrix.api_map.reading.uses import Use

UNBOUND: Final = "unbound"  # a use of a name that the module does not bind, unless a check holds
BUILT_IN: Final = frozenset(dir(builtins))
PACKAGE: Final = re.compile(r"!?\w+:(\w+)")  # of a check
Checks = frozenset[str]


class BindingReader(UseReader):
    """Collects where a module binds names and where it uses them when it runs, each with its conditions.

    A binding that may be in another scope, such as a class's, has the condition ``if``.
    """

    def __init__(self, names: Names) -> None:
        super().__init__(names)
        self.bindings: dict[str, set[Checks]] = {}
        self.loads: dict[str, set[Checks]] = {}

    def add(self, target: str, kind: str, extra: tuple[str, ...] = ()) -> None:
        """Leave out what other packages lack."""

    def add_binding(self, name: str) -> None:
        inner = (OTHER,) if self.owner is not None else ()
        self.bindings.setdefault(name, set()).add(frozenset((*self.conditions, *inner)))

    def visit_Name(self, node: ast.Name) -> None:  # noqa: N802 - ast names it
        if isinstance(node.ctx, ast.Load):
            self.loads.setdefault(node.id, set()).add(frozenset(self.conditions))
        else:
            self.add_binding(node.id)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:  # noqa: N802 - ast names it
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:  # noqa: N802 - ast names it
        self.visit(node.value)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:  # noqa: N802 - ast names it
        for each in node.names:
            self.add_binding(each.asname or each.name.partition(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:  # noqa: N802 - ast names it
        self.annotated &= node.module != "__future__" or all(each.name != "annotations" for each in node.names)
        self.visit_Import(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:  # noqa: N802 - ast names it
        """Read what a definition evaluates: not the body."""
        defaults = [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
        for each in (*node.decorator_list, *defaults, *(annotations_of(node) if self.annotated else ())):
            self.visit(each)
        self.add_binding(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast names it

    def visit_Lambda(self, node: ast.Lambda) -> None:  # noqa: N802 - ast names it
        """Read the defaults. The rest runs later."""
        for each in (*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)):
            self.visit(each)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:  # noqa: N802 - ast names it
        for each in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(each)
        self.add_binding(node.name)
        before, self.owner = self.owner, node
        self.visit_all(node.body)
        self.owner = before

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:  # noqa: N802 - ast names it
        if self.annotated:
            self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_Assign(self, node: ast.Assign) -> None:  # noqa: N802 - ast names it
        self.generic_visit(node)

    def visit_perhaps(self, node: ast.AST) -> None:
        """Read what may not run, or not to its end."""
        with self.under(OTHER):
            self.generic_visit(node)

    visit_Try = visit_TryStar = visit_With = visit_For = visit_While = visit_Match = visit_perhaps  # noqa: N815
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_perhaps  # noqa: N815


def unbound_uses(tree: ast.Module, names: Names) -> Iterator[Use]:
    """Yield the uses of names that are not bound if a check fails, with the conditions under which that is so."""
    reader = BindingReader(names)
    reader.visit(tree)
    if "*" in reader.bindings:
        return
    found: dict[Use, None] = {}
    for name, uses in reader.loads.items():
        bindings = {each for each in reader.bindings.get(name, ()) if TYPING not in each}
        if bindings and name not in BUILT_IN and all(map(is_known, bindings)):
            for used in uses:
                for conditions in failing(used, sorted(map(sorted, bindings))) if is_known(used, least=0) else ():
                    found[f"{names.module}.{name}", UNBOUND, ";".join(sorted(conditions))] = None
    if found:
        elsewhere = bound_by_functions(tree)
        yield from (each for each in found if elsewhere.isdisjoint({"globals", each[0].rpartition(".")[2]}))


def is_known(conditions: Checks, least: int = 1) -> bool:
    """Tell if all conditions are checks that the map can tell, and at least so many."""
    return len(conditions) >= least and all(each.startswith(TELLING) for each in conditions)


def failing(used: Checks, bindings: Sequence[Sequence[str]]) -> Iterator[Checks]:
    """Yield the conditions under which a use runs and of each binding one check fails.

    Only checks of packages of the map count: a check of another one need not have the name of a module.
    """
    for checks in product(*bindings):
        opposite = {negated(each) for each in checks}
        conditions = used | opposite
        contradicts = any(negated(each) in conditions for each in conditions)
        if not contradicts and all(PACKAGE.match(each)[1] in MAPPED for each in opposite):  # type: ignore[index]
            yield conditions


def bound_by_functions(tree: ast.Module) -> set[str]:
    """Return the names that functions of a module bind in it; ``globals`` if they may be any."""
    found: set[str] = set()
    for each in ast.walk(tree):
        match each:
            case ast.Global(names=names):
                found.update(names)
            case ast.Name(id="globals"):
                found.add("globals")
    return found
