"""Reads one file of a release, without importing it, into facts that a cache can keep."""

from __future__ import annotations

import ast
import json
import warnings
import zlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from matrix.api_map.packages import LIBRARIES, PACKAGES, counts_libraries, is_outlined
from matrix.api_map.reading.availability import asked, returned
from matrix.api_map.reading.definitions import Definition, definitions, least_torch
from matrix.api_map.reading.functions import FunctionFacts, called_functions
from matrix.api_map.reading.keywords import Keywords, accepted_keywords, decorators, translated_keywords
from matrix.api_map.reading.lazy import FILE_RULES, LazyExports, lazy_exports
from matrix.api_map.reading.names import Names, names_of
from matrix.api_map.reading.unbound import unbound_uses
from matrix.api_map.reading.uses import Use, uses_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FORMAT: Final = 10  # of cached facts; raise it when what is read changes
# Files without these words export nothing lazily.
LAZY: Final = (b"__all__", b"__getattr__", b"@requires", FILE_RULES.encode())


@dataclass(kw_only=True)
class ModuleFacts:
    """What one module defines, binds by imports, exports lazily, and uses.

    Attributes:
        definitions: name, kind, detail of each definition.
        imports: local name -> dotted path, of imports at module level from packages of the map.
        stars: modules of which every public name is imported.
        constants: variables that hold a condition.
        decorators: function -> dotted paths of the package's decorators on it.
        translated: decorator -> keywords that it takes from those for the decorated function.
        functions: function -> what it uses if it is called during an import.
        unreadable: why the file could not be parsed; empty if it was.
    """

    definitions: list[Definition] = field(default_factory=list)
    imports: dict[str, str] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    lazy: LazyExports = field(default_factory=LazyExports)
    uses: list[Use] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    decorators: dict[str, list[str]] = field(default_factory=dict)
    translated: dict[str, Keywords] = field(default_factory=dict)
    functions: dict[str, FunctionFacts] = field(default_factory=dict)
    unreadable: str = ""

    def packed(self) -> bytes:
        return zlib.compress(json.dumps(asdict(self), separators=(",", ":")).encode(), 1)

    @classmethod
    def unpacked(cls, data: bytes) -> ModuleFacts:
        row: dict[str, Any] = json.loads(zlib.decompress(data))
        row["lazy"] = LazyExports(**row["lazy"])
        row["definitions"] = [tuple(each) for each in row["definitions"]]
        row["uses"] = [tuple(each) for each in row["uses"]]
        return cls(**row)


def read_module(source: bytes, module: str, *, is_package: bool) -> ModuleFacts:
    """Read a module. A file that is no Python 3 has no facts but the reason."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes in old files
            tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        return ModuleFacts(unreadable=str(error))
    names = names_of(tree, module, is_package=is_package)
    outline = is_outlined(module)
    renaming = b"deprecat" in source or b"renamed" in source  # most files rename nothing, and need no search
    if outline:
        return ModuleFacts(definitions=list(definitions(tree, names, outline=True)), lazy=lazy_exports(tree, names))
    if module.partition(".")[0] in LIBRARIES:
        return ModuleFacts(
            definitions=list(definitions(tree, names, outline=True)), imports=dict(module_imports(tree, names))
        )
    uses, constants = uses_of(tree, names)
    return ModuleFacts(
        definitions=[
            *definitions(tree, names, outline=False, renaming=renaming),
            *(least_torch(tree) if b"Disabling PyTorch" in source else ()),
            *((*returned(tree, names), *asked(tree, names)) if b"_available(" in source else ()),
            *accepted_keywords(tree, names),
        ],
        imports=dict(module_imports(tree, names)),
        stars=module_stars(tree, names),
        lazy=lazy_exports(tree, names) if is_package or any(word in source for word in LAZY) else LazyExports(),
        uses=[*uses, *(unbound_uses(tree, names) if counts_libraries(module) else ())],
        constants=constants,
        decorators=decorators(tree, names),
        translated=translated_keywords(tree, names),
        functions=called_functions(tree, names),
    )


def module_imports(tree: ast.Module, names: Names) -> list[tuple[str, str]]:
    """Return the names of packages of the map that a module imports when it runs; of a library's, also its own."""
    packages = (*PACKAGES, *LIBRARIES) if names.module.partition(".")[0] in LIBRARIES else PACKAGES
    found = []
    for statement in executed(tree.body):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            found += [each for each in names.bindings(statement) if each[1].partition(".")[0] in packages]
    return found


def module_stars(tree: ast.Module, names: Names) -> list[str]:
    found = [
        names.absolute(each.module, each.level)
        for each in executed(tree.body)
        if isinstance(each, ast.ImportFrom) and each.names[0].name == "*"
    ]
    return list(dict.fromkeys([*found, *copied_modules(tree, names)]))


def copied_modules(tree: ast.Module, names: Names) -> Iterator[str]:
    """Yield the modules whose names a loop over ``dir(MODULE)`` puts into ``globals()``, as torch does with its own."""
    for statement in tree.body:
        match statement:
            case ast.For(iter=ast.Call(func=ast.Name(id="dir"), args=[source])) if "globals()[" in ast.unparse(
                statement
            ):
                path = names.resolve(source)
                is_own_part = path.partition(".")[0] not in PACKAGES and names.is_package
                yield f"{names.module}.{path}" if is_own_part else path
            case _:
                pass


def executed(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements outside functions and classes, without those that only type checkers read."""
    found: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.If) and is_for_type_checkers(statement.test):
            found += executed(statement.orelse)
        elif isinstance(statement, ast.If) and is_negated(statement.test, is_for_type_checkers):
            found += executed(statement.body)
        elif isinstance(statement, ast.If | ast.Try | ast.With | ast.For):
            found += executed(statement.body)
            for handler in getattr(statement, "handlers", ()):
                found += executed(handler.body)
            found += executed(getattr(statement, "orelse", []))
        else:
            found.append(statement)
    return found


def is_for_type_checkers(test: ast.expr) -> bool:
    """Tell if a test holds for type checkers only."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(map(is_for_type_checkers, test.values))
    return ast.unparse(test).rpartition(".")[2] == "TYPE_CHECKING"


def is_negated(test: ast.expr, tells: Callable[[ast.expr], bool]) -> bool:
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and tells(test.operand)
