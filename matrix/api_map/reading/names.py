"""Resolves the names of a module to dotted paths: what it imports, and what it defines."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from matrix.api_map.reading.scopes import inner_statements, stored_names, targets_of


@dataclass(kw_only=True)
class Names:
    """The names of a module. ``imported`` maps local names to dotted paths, ``defined`` holds its own."""

    module: str
    is_package: bool
    imported: dict[str, str] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)

    def absolute(self, name: str | None, level: int) -> str:
        """Return the module that ``from ... import`` names; level is the number of its leading dots."""
        if not level:
            return name or ""
        parts = self.module.split(".")
        kept = parts[: len(parts) - level + (1 if self.is_package else 0)]
        return ".".join([*kept, *([name] if name else [])])

    def add_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for local, target in self.bindings(node):
            self.imported[local] = target

    def bindings(self, node: ast.Import | ast.ImportFrom) -> list[tuple[str, str]]:
        """Return the local names that an import binds, each with its dotted path. Star imports bind none."""
        if isinstance(node, ast.Import):
            return [
                (each.asname or each.name.partition(".")[0], each.name if each.asname else each.name.partition(".")[0])
                for each in node.names
            ]
        source = self.absolute(node.module, node.level)
        return [(each.asname or each.name, f"{source}.{each.name}") for each in node.names if each.name != "*"]

    def resolve(self, node: ast.expr) -> str:
        """Return the dotted path of an expression; empty if it is no name or attribute of one."""
        match node:
            case ast.Name(id=name):
                if name in self.imported:
                    return self.imported[name]
                return f"{self.module}.{name}" if name in self.defined else name
            case ast.Attribute(value=value, attr=attribute):
                base = self.resolve(value)
                return f"{base}.{attribute}" if base else ""
            case _:
                return ""


def names_of(tree: ast.Module, module: str, *, is_package: bool) -> Names:
    """Collect the names that a module's statements bind outside functions and classes."""
    names = Names(module=module, is_package=is_package)
    waiting: list[ast.stmt] = list(reversed(tree.body))
    while waiting:
        statement = waiting.pop()
        match statement:
            case ast.Import() | ast.ImportFrom():
                names.add_import(statement)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.defined.add(name)
            case ast.Assign(targets=targets):
                names.defined.update(each.id for target in targets for each in stored_names(target))
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.AugAssign(target=ast.Name(id=name)):
                names.defined.add(name)
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                names.defined.update(each.id for target in targets_of(statement) for each in stored_names(target))
                waiting.extend(reversed(inner_statements(statement)))
            case _:
                pass
    return names
