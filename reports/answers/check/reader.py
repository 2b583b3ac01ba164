"""Reads what the code of a script takes from the stack. It follows variables that hold objects of the stack's classes.

Statements are read in order. The bodies of functions are read after the module, with the names that it has at its end.
"""

# ruff: noqa: N802 - ast names the methods
from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from matrix.api_map.packages import PACKAGES
from matrix.errors import UserError
from reports.answers.check.calls import read_call
from reports.answers.check.statements import StatementReader
from reports.answers.check.uses import Dynamic, Found, Override
from reports.answers.check.values import (
    BUILT_IN_BASES,
    Named,
    OwnClass,
    OwnInstance,
    members_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reports.answers.check.evaluation import Scopes
    from reports.answers.check.sources import CodeSource

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


def read_code(source: CodeSource) -> Found:
    """Return what the code of a script or notebook takes from the stack.

    Raises:
        UserError: the code is nested too deeply.
    """
    reader = CodeReader(source)
    try:
        reader.block(source.tree.body)
        while reader.waiting:
            reader.waiting.pop(0)()
    except RecursionError:
        raise UserError(f"{source.path}: the code cannot be read; it is nested too deeply") from None
    reader.found.dynamic += [Dynamic(place=place, reason=reason) for place, reason in source.skipped]
    return reader.found


class CodeReader(StatementReader):
    """Visits imports, functions, classes and calls."""

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            root = each.name.partition(".")[0]
            local, path = (each.asname, each.name) if each.asname else (root, root)
            self.scopes.bind(local, Named(path) if root in PACKAGES else None)
            if root in PACKAGES and "." in each.name:
                self.use([each.name], node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        of_stack = not node.level and module.partition(".")[0] in PACKAGES
        for each in node.names:
            if each.name == "*":
                if of_stack:
                    self.dynamic(node, f"every name of {module} (`import *`)")
                continue
            self.scopes.bind(each.asname or each.name, Named(f"{module}.{each.name}") if of_stack else None)
            if of_stack:
                self.use([f"{module}.{each.name}"], node)

    # Functions and classes

    def visit_FunctionDef(self, node: Function) -> None:
        defaults = [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
        for each in (
            *node.decorator_list,
            *defaults,
            *parameter_annotations(node.args),
            *([node.returns] if node.returns else []),
        ):
            self.visit(each)
        if self.owner is None:
            self.scopes.bind(node.name, None)
        scopes, guard, branch, owner = self.scopes.nested(), self.guard, self.branch, self.owner
        self.waiting.append(lambda: self.function(node, scopes, guard, branch, owner))

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def function(self, node: Function, scopes: Scopes, guard: str, branch: bool, owner: OwnClass | None) -> None:  # noqa: FBT001
        """Read the body of a function."""
        self.scopes, self.guard, self.branch, self.owner, self.method = scopes, guard, branch, owner, node.name
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for place, each in enumerate(arguments):
            own = owner is not None and not place and each.arg == "self"
            self.scopes.bind(each.arg, OwnInstance(owner) if own and owner else self.annotated(each.annotation))
        for star in (node.args.vararg, node.args.kwarg):
            if star is not None:
                self.scopes.bind(star.arg, None)
        self.block(node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        names = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        self.shadowed([each.arg for each in names if each is not None], [*node.args.defaults, node.body])

    def visit_comprehension_of(self, node: Comprehension) -> None:
        inner = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        targets = [name.id for each in node.generators for name in ast.walk(each.target) if isinstance(name, ast.Name)]
        tests = [test for each in node.generators for test in each.ifs]
        self.shadowed(targets, [*(each.iter for each in node.generators), *tests, *inner])

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_comprehension_of  # noqa: N815

    def shadowed(self, names: Iterable[str], nodes: Iterable[ast.expr]) -> None:
        start = self.scopes.copy()
        for each in names:
            self.scopes.bind(each, None)
        for node in nodes:
            self.visit(node)
        self.scopes.restore(start)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for each in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self.visit(each)
        bases = [self.value(each) for each in node.bases]
        known = [each for each in bases if isinstance(each, Named | OwnClass)]
        plain = [ast.unparse(each).rpartition(".")[2].partition("[")[0] for each in node.bases]
        unknown = any(
            value is None and name not in BUILT_IN_BASES for value, name in zip(bases, plain, strict=True)
        ) or len(known) < len([each for each in bases if each is not None])
        own = OwnClass(node=node, bases=tuple(known), unknown_base=unknown, members=members_of(node))
        self.scopes.bind(node.name, own)
        before, self.owner = self.owner, own
        self.scopes.enter()
        self.block(node.body)
        self.scopes.leave()
        self.owner = before
        self.overrides(own)

    def overrides(self, own: OwnClass) -> None:
        """Record the methods that replace one of the stack and do not accept every argument."""
        for each in own.node.body:
            if not isinstance(each, Function) or each.name.startswith("__") or each.decorator_list or self.guard:
                continue
            if each.args.kwarg is not None or each.args.vararg is not None:
                continue
            names = [arg.arg for arg in (*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs)]
            for base in own.stack_bases:
                place = self.source.place(each.lineno)
                override = Override(
                    path=f"{base}.{each.name}",
                    own_name=f"{own.node.name}.{each.name}",
                    parameters=tuple(names[1:]),
                    place=place,
                    is_called=f"self.{each.name}(" in ast.unparse(own.node),
                )
                self.found.overrides.append(override)

    # Expressions

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self.use(self.attribute_paths(node), node)
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        read_call(self, node)
        self.generic_visit(node)


def parameter_annotations(arguments: ast.arguments) -> Iterator[ast.expr]:
    several = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    yield from (each.annotation for each in several if each is not None and each.annotation is not None)
