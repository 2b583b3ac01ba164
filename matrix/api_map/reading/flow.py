"""Walks a module in the order in which it runs, with the conditions, handlers and variables of each place."""

from __future__ import annotations

import ast
from contextlib import contextmanager
from typing import TYPE_CHECKING

from matrix.api_map.reading.conditions import FUNCTION, OTHER, conditions_after, conditions_of, opposite_of
from matrix.api_map.reading.handlers import handled_errors, suppressed_errors
from matrix.api_map.reading.scopes import stored_names, variables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.api_map.reading.names import Names
    from matrix.api_map.reading.scopes import Comprehension


class InnerScope(dict[str, str]):
    """The variables of a comprehension."""


class FlowReader(ast.NodeVisitor):
    """Visits statements and expressions. What they mean is up to the readers that extend it."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.conditions: list[str] = []
        self.handled: frozenset[str] = frozenset()  # errors of missing names
        self.bound: list[dict[str, str]] = []  # paths of what functions import; empty for their variables

    def resolve(self, node: ast.expr) -> str:
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name):
            for table in reversed(self.bound):
                if root.id in table:
                    return table[root.id] and table[root.id] + ast.unparse(node)[len(root.id) :]
        return self.names.resolve(node)

    @contextmanager
    def under(self, *conditions: str) -> Iterator[None]:
        before, self.conditions = self.conditions, [*self.conditions, *conditions]
        yield
        self.conditions = before

    @contextmanager
    def handling(self, errors: frozenset[str]) -> Iterator[None]:
        before, self.handled = self.handled, self.handled | errors
        yield
        self.handled = before

    @contextmanager
    def later(self) -> Iterator[None]:
        """Read the body of a function: no handler around its definition is there when it runs."""
        before, self.handled = self.handled, frozenset()
        with self.under(FUNCTION):
            yield
        self.handled = before

    def visit_all(self, nodes: list[ast.stmt]) -> list[str]:
        """Read statements in order, and return the checks that hold behind them."""
        held: list[str] = []
        for each in nodes:
            with self.under(*held):
                self.visit(each)
            held += self.held_after(each)
        return held

    def held_after(self, statement: ast.stmt) -> list[str]:
        return conditions_after(statement, self.resolve)

    def visit_Module(self, node: ast.Module) -> None:
        self.visit_all(node.body)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        with self.under(*conditions_of(node.test, self.resolve)):
            self.visit_all(node.body)
        with self.under(*opposite_of(node.test, self.resolve)):
            self.visit_all(node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        with self.under(*conditions_of(node.test, self.resolve)):
            self.visit(node.body)
        with self.under(*opposite_of(node.test, self.resolve)):
            self.visit(node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Read ``a and b``: ``b`` is evaluated only if ``a`` holds; of ``a or b`` only if it does not."""
        held = conditions_of if isinstance(node.op, ast.And) else opposite_of
        conditions: list[str] = []
        for each in node.values:
            with self.under(*conditions):
                self.visit(each)
            conditions += held(each, self.resolve)

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        errors = handled_errors(node)
        with self.handling(errors):
            held = self.visit_all(node.body)
        with self.under(OTHER):
            for handler in node.handlers:
                self.visit_all(handler.body)
        with self.under(*held, *([OTHER] if errors and not held else [])):
            self.visit_all(node.orelse)
        self.visit_all(node.finalbody)

    visit_TryStar = visit_Try  # noqa: N815 - ast names it

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            with self.under(OTHER):
                self.visit(case.pattern)
                if case.guard is not None:
                    self.visit(case.guard)
                self.visit_all(case.body)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.visit(node.target)
        self.visit_all(node.body)
        self.visit_all(node.orelse)

    visit_AsyncFor = visit_For  # noqa: N815 - ast names it

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self.visit_all(node.body)
        self.visit_all(node.orelse)

    def visit_comprehension_of(self, node: Comprehension) -> None:
        """Read a comprehension. Only its first iterable is evaluated outside of it."""
        self.visit(node.generators[0].iter)
        self.bound.append(InnerScope({each.id: "" for one in node.generators for each in stored_names(one.target)}))
        self.visit_inside(node)
        self.bound.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_comprehension_of  # noqa: N815

    def visit_inside(self, node: Comprehension) -> None:
        for number, generator in enumerate(node.generators):
            for each in (generator.target, *((generator.iter,) if number else ()), *generator.ifs):
                self.visit(each)
        for each in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(each)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        """Bind a variable of the function, also in a comprehension."""
        self.visit(node.value)
        for table in reversed(self.bound):
            table[node.target.id] = ""
            if not isinstance(table, InnerScope):
                return

    def visit_Name(self, node: ast.Name) -> None:
        pass  # a name alone is no use

    def visit_Constant(self, node: ast.Constant) -> None:
        pass

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        with self.handling(suppressed_errors(node)):
            for item in node.items:
                self.visit(item)
            self.visit_all(node.body)

    visit_AsyncWith = visit_With  # noqa: N815 - ast names it

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for each in (*node.args.defaults, *(d for d in node.args.kw_defaults if d)):
            self.visit(each)
        self.bound.append(dict.fromkeys(variables(node), ""))
        with self.later():
            self.visit(node.body)
        self.bound.pop()
