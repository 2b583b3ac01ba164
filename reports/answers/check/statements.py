"""Reads statements in order: assignments, and which of them run only under a condition."""

from __future__ import annotations

import ast
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from matrix.api_map.packages import PACKAGES
from reports.answers.check import guards
from reports.answers.check.evaluation import Scope, Scopes, evaluate, instance_of
from reports.answers.check.uses import Dynamic, Found, Use
from reports.answers.check.values import Instance, Named, OwnClass, OwnInstance, Several, assigned_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reports.answers.check.sources import CodeSource
    from reports.answers.check.values import Value

HANDLED: Final = "a handled error"
TESTED: Final = "a test of versions or availability"
TYPING: Final = "only for type checkers"


class StatementReader(ast.NodeVisitor):
    """Follows the values of names through statements, and collects uses with their conditions."""

    def __init__(self, source: CodeSource) -> None:
        self.source = source
        self.found = Found()
        self.scopes = Scopes()
        self.guard = ""
        self.branch = False
        self.owner: OwnClass | None = None  # of the method that is read
        self.method = ""
        self.variables = guards.guard_variables(source.tree)
        self.assigned = assigned_attributes(source.tree)
        self.waiting: list[Callable[[], None]] = []
        self.seen: set[tuple[tuple[str, ...], str, str]] = set()

    # What is found

    def use(self, paths: Iterable[str], node: ast.AST, guard: str = "") -> None:
        several = tuple(dict.fromkeys(paths))
        if not several or several[0].partition(".")[0].partition("(")[0] not in PACKAGES:
            return
        place = self.source.place(getattr(node, "lineno", 1))
        guard = self.guard or guard
        if (several, place, guard) not in self.seen:
            self.seen.add((several, place, guard))
            self.found.uses.append(Use(paths=several, place=place, guard=guard, branch=self.branch))

    def dynamic(self, node: ast.AST, reason: str) -> None:
        self.found.dynamic.append(Dynamic(place=self.source.place(getattr(node, "lineno", 1)), reason=reason))

    def value(self, node: ast.AST | None) -> Value:
        return evaluate(node, self.scopes)

    def attribute_paths(self, node: ast.Attribute) -> list[str]:
        """Return the paths in the stack that an attribute may lead to; none if it is the script's own, or unknown."""
        if node.attr in self.assigned:
            return []
        match self.value(node.value):
            case Named(path=path) | Instance(path=path):
                return [f"{path}.{node.attr}"]
            case OwnInstance(owner=own) | (OwnClass() as own) if own.is_known and not own.has(node.attr):
                return [f"{each}.{node.attr}" for each in own.stack_bases]
            case _:
                return []

    # Conditions

    @contextmanager
    def guarded(self, guard: str) -> Iterator[None]:
        before = self.guard
        self.guard = before or guard
        yield
        self.guard = before

    @contextmanager
    def branched(self) -> Iterator[None]:
        before, self.branch = self.branch, True
        yield
        self.branch = before

    def block(self, statements: Iterable[ast.stmt]) -> None:
        """Read statements in order; what follows a test that leaves the block runs under that test as well."""
        before = self.guard
        for each in statements:
            self.visit(each)
            if (
                isinstance(each, ast.If)
                and self.is_guard(each.test)
                and (guards.ends(each.body) or guards.ends(each.orelse))
            ):
                self.guard = self.guard or TESTED
        self.guard = before

    def is_guard(self, test: ast.expr) -> bool:
        return guards.is_guard(test, self.variables)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        if ast.unparse(node.test).startswith("__name__"):
            self.block(node.body)
            return
        guard = (TYPING if "TYPE_CHECKING" in ast.unparse(node.test) else TESTED) if self.is_guard(node.test) else ""
        with self.guarded(guard), self.branched():
            self.separately(node.body, node.orelse)

    def separately(self, *blocks: list[ast.stmt]) -> None:
        """Read blocks of which one runs: a name that they leave with different values is unknown afterwards."""
        start = self.scopes.copy()
        ends: list[Scope] = []
        for each in blocks:
            self.scopes.restore(start)
            self.block(each)
            if not guards.ends(each):
                ends.append(self.scopes.copy())
        self.scopes.restore(start)
        self.scopes.merge(ends)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        with self.guarded(TESTED if self.is_guard(node.test) else ""), self.branched():
            self.visit(node.body)
            self.visit(node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        guard = ""
        for each in node.values:
            with self.guarded(guard):
                self.visit(each)
            guard = guard or (TESTED if self.is_guard(each) else "")

    def visit_Try(self, node: ast.Try) -> None:
        guard = HANDLED if guards.handles(node) else ""
        start = self.scopes.copy()
        with self.guarded(guard):
            self.block(node.body)
            self.block(node.orelse)
        ends = [self.scopes.copy()]
        for handler in node.handlers:
            self.scopes.restore(start)
            with self.guarded(HANDLED), self.branched():
                self.block(handler.body)
            if not guards.ends(handler.body):
                ends.append(self.scopes.copy())
        self.scopes.restore(start)
        self.scopes.merge(ends)
        self.block(node.finalbody)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        suppressed = any("suppress" in ast.unparse(item.context_expr) for item in node.items)
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, None)
        with self.guarded(HANDLED if suppressed else ""):
            self.block(node.body)

    visit_AsyncWith = visit_With  # noqa: N815 - ast names it

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.bind(node.target, None)
        self.separately(node.body + node.orelse, [])

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self.separately(node.body + node.orelse, [])

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        with self.branched():
            self.separately(*(case.body for case in node.cases), [])

    # Assignments

    def bind(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(id=name):
                self.scopes.bind(name, value)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                items = value.items if isinstance(value, Several) else ()
                starred = any(isinstance(each, ast.Starred) for each in elements)
                for place, each in enumerate(elements):
                    self.bind(each, items[place] if place < len(items) and not starred else None)
            case ast.Starred(value=inner):
                self.bind(inner, None)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if self.owner is not None:
                self.scopes.attributes[self.owner, name] = (
                    value if (self.owner, name) not in self.scopes.attributes else None
                )
            case _:
                self.visit(target)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        value = self.value(node.value)
        for each in node.targets:
            self.bind(each, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
        self.bind(node.target, self.value(node.value) or self.annotated(node.annotation))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        self.bind(node.target, None)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.bind(node.target, self.value(node.value))

    def annotated(self, annotation: ast.expr | None) -> Value:
        """Return an object of an annotation's class."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                return None
        return instance_of(self.value(annotation))
