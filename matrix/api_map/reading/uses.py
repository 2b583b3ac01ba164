"""Reads what a module uses of other packages: imports, attributes and keyword arguments, with their conditions."""

from __future__ import annotations

import ast
import re
import sys
from typing import TYPE_CHECKING, Final

from matrix.api_map.packages import MAPPED, PACKAGES, counts_libraries
from matrix.api_map.reading.arguments import arguments_of
from matrix.api_map.reading.conditions import AVAILABLE, FUNCTION, OTHER, TELLING, TRY, conditions_of
from matrix.api_map.reading.flow import FlowReader
from matrix.api_map.reading.handlers import ATTRIBUTE_ERROR, IMPORT_ERROR, TYPE_ERROR
from matrix.api_map.reading.scopes import variables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.api_map.reading.names import Names

Use = tuple[str, str, str]  # target, kind, conditions

MODULE: Final = "module"  # the module imports the target
IMPORT: Final = "import"  # the module imports a name from another
ATTRIBUTE: Final = "attribute"
KEYWORD: Final = "keyword"  # TARGET(NAME)
INHERITED: Final = "inherited"  # CLASS.NAME of the module's own class, which may be a base's
STAR: Final = "star"
CHECKED: Final = "checked"  # a requirement that is checked when the package is imported
LISTED: Final = "listed"  # a package whose requirement is checked
LIBRARY: Final = "library"  # the module imports a library outside the map
PLAIN_LOOKUP: Final = 2  # arguments of a `getattr` without a default
CALL: Final = "call"  # the module calls a function of its package when it runs, or asks another one what is available
ERRORS: Final = {
    **dict.fromkeys((MODULE, IMPORT, STAR, LIBRARY), IMPORT_ERROR),
    **dict.fromkeys((ATTRIBUTE, INHERITED), ATTRIBUTE_ERROR),
    KEYWORD: TYPE_ERROR,
}  # that a use raises if its target is missing

# When transformers is imported, it checks the packages that the first module lists, in the versions that the second one
# states. accelerate is not checked if it is older: transformers then acts as if it were not there.
CHECK_MODULE: Final = "transformers.dependency_versions_check"
CHECK_LIST: Final = "pkgs_to_check_at_runtime"
REQUIREMENTS_MODULE: Final = "transformers.dependency_versions_table"
NOT_CHECKED: Final = frozenset({"python", "accelerate"})

# Modules that Python 3.12 or 3.13 removed; older interpreters, and partly setuptools, have them.
REMOVED_FROM_PYTHON: Final = frozenset({"asynchat", "asyncore", "cgi", "distutils", "imghdr", "imp", "pipes", "smtpd"})
STANDARD: Final = frozenset(sys.stdlib_module_names) | REMOVED_FROM_PYTHON


class UseReader(FlowReader):
    """Collects the uses of a module. Targets are dotted paths, also of the module's own package."""

    def __init__(self, names: Names) -> None:
        super().__init__(names)
        self.package = names.module.partition(".")[0]
        self.mapped = MAPPED if counts_libraries(names.module) else PACKAGES
        self.owner: ast.ClassDef | None = None
        self.found: dict[Use, None] = {}
        self.constants: dict[str, str] = {}  # module-level variables that hold a condition
        self.annotated = True  # annotations are evaluated

    def add(self, target: str, kind: str, extra: tuple[str, ...] = ()) -> None:
        handled = (TRY,) if ERRORS.get(kind) in self.handled else ()
        conditions = sorted({*self.conditions, *handled, *extra})
        self.found[target, kind, ";".join(conditions)] = None

    def is_foreign(self, target: str) -> bool:
        root = target.partition(".")[0]
        return root in self.mapped and root != self.package

    def add_library(self, name: str) -> None:
        """Add a library that the module imports when it runs."""
        root = name.partition(".")[0]
        outside = root and root not in STANDARD and root not in MAPPED
        skipped = FUNCTION in self.conditions or ERRORS[LIBRARY] in self.handled
        if outside and not skipped and counts_libraries(self.names.module):
            self.add(root, LIBRARY)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:  # noqa: N802 - ast names it
        self.visit_decorators(node)
        for each in (*node.args.defaults, *(d for d in node.args.kw_defaults if d)):
            self.visit(each)
        for annotation in annotations_of(node) if self.annotated else ():
            self.visit(annotation)
        self.bound.append(dict.fromkeys(variables(node), ""))
        with self.later():
            self.visit_all(node.body)
        self.bound.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast names it

    def visit_decorators(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        for each in node.decorator_list:
            self.visit(each)
            self.add_call(ast.Call(func=each, args=[node], keywords=[]))  # type: ignore[list-item]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:  # noqa: N802 - ast names it
        self.visit_decorators(node)
        for each in (*node.bases, *node.keywords):
            self.visit(each)
        before, self.owner = self.owner, node
        self.visit_all(node.body)
        self.owner = before

    def visit_Import(self, node: ast.Import) -> None:  # noqa: N802 - ast names it
        if self.bound:
            self.bound[-1].update(self.names.bindings(node))
        for each in node.names:
            self.add_library(each.name)
            if each.name.partition(".")[0] in self.mapped:
                self.add(each.name, MODULE)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:  # noqa: N802 - ast names it
        source = self.names.absolute(node.module, node.level)
        self.annotated &= source != "__future__" or all(each.name != "annotations" for each in node.names)
        if self.bound:
            self.bound[-1].update(self.names.bindings(node))
        self.add_library(source)
        if source.partition(".")[0] in self.mapped:
            self.add(source, MODULE)
            for each in node.names:
                self.add(source if each.name == "*" else f"{source}.{each.name}", STAR if each.name == "*" else IMPORT)

    def visit_Attribute(self, node: ast.Attribute) -> None:  # noqa: N802 - ast names it
        target = self.resolve(node)
        if target and self.is_foreign(target) and isinstance(node.ctx, ast.Load):
            self.add(target, ATTRIBUTE)
        elif isinstance(node.value, ast.Name) and node.value.id == "self" and self.owner is not None:
            if isinstance(node.ctx, ast.Load):
                self.add(f"{self.names.module}.{self.owner.name}.{node.attr}", INHERITED)
        else:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:  # noqa: N802 - ast names it
        called = self.called(node.func)
        self.add_call(node)
        self.visit(node.func)
        for each in node.args:
            self.visit(each)
        tested = self.tested_attribute(node)
        if tested:
            self.add(tested, ATTRIBUTE, () if is_plain_lookup(node) else (TRY,))
        for keyword in node.keywords:
            if called and keyword.arg is not None:
                self.add(f"{called}({keyword.arg})", KEYWORD)
            self.visit(keyword.value)

    def called(self, function: ast.expr) -> str:
        """Return the called class, function or inherited method, if its keyword arguments matter."""
        match function:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name) if self.owner is not None:
                return f"{self.names.module}.{self.owner.name}.super.{name}"
        target = self.resolve(function)
        return target if target and self.is_foreign(target) else ""

    def add_call(self, node: ast.Call) -> None:
        """Add a call that is made when the module runs, unless an error in the called function would be handled."""
        target = self.resolve(node.func)
        is_own = target.startswith(f"{self.package}.")
        asks = self.is_foreign(target) and AVAILABLE.fullmatch(target.rpartition(".")[2]) and not node.args
        runs = not self.handled and FUNCTION not in self.conditions
        if (is_own or asks) and runs and counts_libraries(self.names.module):
            self.add(f"{target}{arguments_of(node)}", CALL)

    def tested_attribute(self, node: ast.Call) -> str:
        """Return the attribute that ``hasattr(X, "name")`` or ``getattr(X, "name", ...)`` looks up."""
        match node:
            case ast.Call(func=ast.Name(id="hasattr" | "getattr"), args=[owner, ast.Constant(value=str(name)), *_]):
                target = self.resolve(owner)
                return f"{target}.{name}" if target and self.is_foreign(target) else ""
        return ""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:  # noqa: N802 - ast names it
        if self.annotated and not self.bound:
            self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_Assign(self, node: ast.Assign) -> None:  # noqa: N802 - ast names it
        match node.targets:
            case [ast.Name(id=name)] if not self.bound and self.owner is None:
                conditions = conditions_of(node.value, self.resolve) if is_test(node.value) else [OTHER]
                self.add_constant(name, node.value, conditions)
                if name == "deps" and self.names.module == REQUIREMENTS_MODULE and isinstance(node.value, ast.Dict):
                    self.read_requirements(node.value)
                if name == CHECK_LIST and self.names.module == CHECK_MODULE and isinstance(node.value, ast.List):
                    for each in node.value.elts:
                        if isinstance(each, ast.Constant):
                            self.add(distribution(str(each.value)), LISTED)
        self.generic_visit(node)

    def add_constant(self, name: str, value: ast.expr, conditions: list[str]) -> None:
        """Keep the condition that a variable holds, unless it gets another value that may be true."""
        if not (isinstance(value, ast.Constant) and not value.value):
            is_known = len(conditions) == 1 and conditions[0].startswith(TELLING)
            held = conditions[0] if is_known else OTHER
            self.constants[name] = held if self.constants.get(name, held) == held else OTHER

    def read_requirements(self, table: ast.Dict) -> None:
        for each in table.values:
            if isinstance(each, ast.Constant):
                self.add(str(each.value).replace("-", "_"), CHECKED)


def is_plain_lookup(node: ast.Call) -> bool:
    """Tell if a call is ``getattr(X, "name")``, which raises if the name is missing."""
    return isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) == PLAIN_LOOKUP


def distribution(requirement: str) -> str:
    """Return the name of a requirement, with underscores."""
    return re.split(r"[^\w-]", requirement)[0].replace("-", "_").lower()


def annotations_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    arguments = node.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if each is not None and each.annotation is not None:
            yield each.annotation
    if node.returns is not None:
        yield node.returns


def is_test(node: ast.expr) -> bool:
    return isinstance(node, ast.Compare | ast.Call | ast.UnaryOp | ast.BoolOp)


def uses_of(tree: ast.Module, names: Names) -> tuple[list[Use], dict[str, str]]:
    """Return the uses of a module in order, and its variables that hold a condition."""
    reader = UseReader(names)
    reader.visit(tree)
    return list(reader.found), {name: held for name, held in reader.constants.items() if held != OTHER}
