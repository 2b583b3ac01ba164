"""Generates mutants of a source file: small edits of its functions, each of which a good test should notice.

Only statements inside functions are mutated: those of modules and classes, defaults and decorators run at import,
before a mutant can be put into the live code. ``mutable_code`` decides what is left alone.
"""

from __future__ import annotations

import ast
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from cases.injection.source_mutants import SourceMutant, code_pairs, compiled_functions, differs, digest
from matrix.experiments import mutable_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import CodeType

    from matrix.experiments.mutable_code import Function

    Edits = Iterator[tuple[str, ast.AST, str]]

ID_DIGITS: Final = 10
ARITHMETIC: Final[dict[type[ast.operator], str]] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.Pow: "*",
    ast.BitOr: "&",
    ast.BitAnd: "|",
}
COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
COMMUTATIVE: Final = (ast.Add, ast.Mult, ast.BitOr, ast.BitAnd)
BARE: Final = ("statement", "return", "keyword", "arguments")  # kinds whose edit does not replace an expression
DIMENSIONS: Final = frozenset({"dim", "axis", "dim0", "dim1", "dims", "start_dim", "end_dim"})


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """An edit of a function. ``line`` and ``last`` are those of the code that it replaces.

    Reports show ``name``; the id of the edit is part of the ids of cases, so its words must not be those of options.
    """

    kind: str
    where: str
    line: int
    last: int
    before: str  # the whole lines
    after: str
    edit: SourceMutant
    name: str = ""

    @property
    def id(self) -> str:
        return self.edit.id

    @property
    def file(self) -> str:
        return self.edit.file

    @property
    def package(self) -> str:
        return self.edit.file.partition("/")[0]

    @property
    def changed(self) -> str:
        """The function with the edit as locations name it."""
        return f"{self.file} {self.where}"

    @property
    def lines(self) -> range:
        return range(self.line, self.last + 1)

    def to_line(self) -> dict[str, Any]:
        """The fields of the edit, as ranks read them."""
        return asdict(self.edit)


@dataclass(frozen=True)
class StackFile:
    """A source file of the stack; ``file`` is its path below site-packages."""

    file: str
    text: bytes

    @cached_property
    def digest(self) -> str:
        return digest(self.text)

    @cached_property
    def starts(self) -> list[int]:
        """The byte at which each line starts."""
        starts = [0]
        for line in self.text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def functions(self) -> list[Function]:
        return list(mutable_code.functions(self.tree))

    @cached_property
    def code(self) -> Mapping[tuple[str, int], CodeType]:
        """The compiled functions by qualified name and number."""
        return compiled_functions(self.text)

    def function_around(self, mutant: Mutant) -> range:
        """The lines of the outermost function around a mutant."""
        nodes = (each.node for each in self.functions)
        node = next(each for each in nodes if each.lineno <= mutant.line <= each.end_lineno)
        return range(node.lineno, node.end_lineno + 1)

    def span(self, node: Any) -> tuple[int, int]:
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def old(self, node: ast.AST) -> str:
        begin, end = self.span(node)
        return self.text[begin:end].decode()

    def mutant(self, kind: str, function: Function, node: Any, new: str) -> Mutant:
        return self.edited(kind, function, self.span(node), new, last=node.end_lineno or node.lineno)

    def places(self, node: Any, text: str) -> list[int]:
        """The bytes at which a text stands inside a function."""
        begin, end = self.span(node)
        found = self.text.find(text.encode(), begin, end)
        places = []
        while found >= 0:
            places.append(found)
            found = self.text.find(text.encode(), found + 1, end)
        return places

    def edited(
        self, kind: str, function: Function, span: tuple[int, int], new: str, *, last: int = 0, name: str = ""
    ) -> Mutant:
        """A mutant that replaces these bytes. It keeps the number of lines, so that other code stays where it is."""
        begin, end = span
        old = self.text[begin:end].decode()
        missing = "\n" * (old.count("\n") - new.count("\n"))
        if missing and not name:
            new = f"{new}{missing}" if kind in BARE else f"({new}{missing})"
        line = self.text.count(b"\n", 0, begin) + 1
        digits = sha256(f"{self.file} {self.digest} {begin} {end} {new}".encode()).hexdigest()[:ID_DIGITS]
        edit = SourceMutant(digits, self.file, self.digest, function.outermost, begin, end, new)
        begins, ends = self.text.rfind(b"\n", 0, begin) + 1, self.text.find(b"\n", end)
        head, tail = self.text[begins:begin].decode(), self.text[end:ends].decode()
        return Mutant(
            kind=kind,
            where=function.name,
            line=line,
            last=last or line + old.count("\n"),
            before=head + old + tail,
            after=head + new + tail,
            edit=edit,
            name=name or digits,
        )


def generate(source: StackFile) -> Iterator[Mutant]:
    """Every mutant of a file, each edit once."""
    known: set[str] = set()
    for function in source.functions:
        for node in mutable_code.nodes(function):
            for kind, target, new in edits(source, function, node):
                mutant = source.mutant(kind, function, target, new)
                if mutant.id not in known and mutant.before != mutant.after:
                    known.add(mutant.id)
                    yield mutant


def is_valid(mutant: Mutant, source: StackFile) -> bool:
    """Return whether the mutated file compiles to other code. It parses the whole file, so it is for a sample."""
    try:
        pairs = code_pairs(source.code, mutant.edit.mutated(source.text), mutant.edit.function)
    except (SyntaxError, ValueError):
        return False
    return any(differs(old, new) for old, new in pairs)


def edits(source: StackFile, function: Function, node: ast.AST) -> Edits:
    """The edits of one node: their kind, the node that they replace, and its new text."""
    for kind in KINDS.get(type(node), ()):
        yield from kind(source, function, node)


def arithmetic(source: StackFile, _function: Function, node: Any) -> Edits:
    if type(node.op) not in ARITHMETIC or is_text(node):
        return
    left, right = source.old(node.left), source.old(node.right)
    yield "arithmetic", node, f"(({left}) {ARITHMETIC[type(node.op)]} ({right}))"
    yield "term", node, f"({left})"
    if isinstance(node.op, COMMUTATIVE):
        yield "term", node, f"({right})"


def is_text(node: ast.BinOp) -> bool:
    """Return whether an operand is text, whose ``+`` and ``%`` build messages and names."""
    operands = (node.left, node.right)
    return any(isinstance(each, ast.JoinedStr) or text_constant(each) for each in operands)


def text_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def comparison(source: StackFile, _function: Function, node: Any) -> Edits:
    if len(node.ops) == 1:
        left, right = source.old(node.left), source.old(node.comparators[0])
        yield "comparison", node, f"(({left}) {COMPARISONS[type(node.ops[0])]} ({right}))"


def boolean(source: StackFile, _function: Function, node: Any) -> Edits:
    word = " or " if isinstance(node.op, ast.And) else " and "
    yield "condition", node, f"({word.join(f'({source.old(each)})' for each in node.values)})"


def constant(_source: StackFile, _function: Function, node: Any) -> Edits:
    value = node.value
    if isinstance(value, bool):
        yield "constant", node, str(not value)
    elif isinstance(value, int):
        changed = {0: (1,), 1: (0, 2)}.get(value, (value + 1, value * 2))
        yield from (("constant", node, str(each)) for each in changed)
    elif isinstance(value, float):
        yield from (("constant", node, f"({each!r})") for each in (value * 2, -value, value + 1) if each != value)


def sign(source: StackFile, _function: Function, node: Any) -> Edits:
    if isinstance(node.op, ast.USub):
        yield (
            "constant" if isinstance(node.operand, ast.Constant) else "arithmetic",
            node,
            f"({source.old(node.operand)})",
        )
    elif isinstance(node.op, ast.Not) and not mutable_code.is_left_alone(node.operand):
        yield "condition", node, f"bool({source.old(node.operand)})"


def condition(source: StackFile, _function: Function, node: Any) -> Edits:
    if not isinstance(node.test, (ast.Compare, ast.Constant, ast.UnaryOp)) and not mutable_code.is_left_alone(
        node.test
    ):
        yield "condition", node.test, f"(not ({source.old(node.test)}))"


def returned(source: StackFile, _function: Function, node: Any) -> Edits:
    value = node.value
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        return
    yield "return", node, "return None"
    if isinstance(value, ast.Tuple) and len(value.elts) == 2:  # noqa: PLR2004 - a pair
        first, second = map(source.old, value.elts)
        yield "term", value, f"({second}, {first})"


def call(source: StackFile, _function: Function, node: Any) -> Edits:
    for keyword in node.keywords:
        if keyword.arg in DIMENSIONS and isinstance(keyword.value, (ast.Constant, ast.UnaryOp)):
            yield "dim", keyword.value, "0" if source.old(keyword.value) in {"-1", "1"} else "-1"
    pairs = zip(node.args, node.args[1:], strict=False)
    swapped = [pair for pair in pairs if not any(isinstance(each, (ast.Starred, ast.Constant)) for each in pair)]
    for one, other in swapped[:1]:
        between = source.text[source.span(one)[1] : source.span(other)[0]].decode()
        both = ast.copy_location(ast.Pass(), one)
        both.end_lineno, both.end_col_offset = other.end_lineno, other.end_col_offset
        yield "arguments", both, f"{source.old(other)}{between}{source.old(one)}"
    yield from dropped_keywords(source, node)


def dropped_keywords(source: StackFile, node: ast.Call) -> Edits:
    """Drop a keyword with the comma before it, or the one after it if it comes first."""
    given: list[Any] = sorted([*node.args, *node.keywords], key=source.span)
    for before, keyword, after in zip([None, *given], given, [*given[1:], None], strict=False):
        if not isinstance(keyword, ast.keyword) or keyword.arg is None:
            continue
        dropped = ast.copy_location(ast.Pass(), keyword)
        if before is not None:
            dropped.lineno, dropped.col_offset = before.end_lineno or 0, before.end_col_offset or 0
        elif after is not None:
            dropped.end_lineno, dropped.end_col_offset = after.lineno, after.col_offset
        else:
            continue
        yield "keyword", dropped, ""


def assignment(_source: StackFile, function: Function, node: Any) -> Edits:
    """Skip an assignment to a name that has a value already, or to part of an object."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if all(is_assigned(each, function, node.lineno) for each in targets):
        yield "statement", node, "pass"


def is_assigned(target: ast.AST, function: Function, line: int) -> bool:
    if isinstance(target, ast.Tuple):
        return all(is_assigned(each, function, line) for each in target.elts)
    if isinstance(target, ast.Name):
        return function.assigned.get(target.id, line) < line
    return isinstance(target, (ast.Subscript, ast.Attribute)) and function.method != "__init__"


def statement(_source: StackFile, _function: Function, node: Any) -> Edits:
    if isinstance(node.value, ast.Call):
        yield "statement", node, "pass"


KINDS: Final[dict[type[ast.AST], tuple[Callable[[StackFile, Function, Any], Edits], ...]]] = {
    ast.BinOp: (arithmetic,),
    ast.Compare: (comparison,),
    ast.BoolOp: (boolean,),
    ast.Constant: (constant,),
    ast.UnaryOp: (sign,),
    ast.If: (condition,),
    ast.IfExp: (condition,),
    ast.Return: (returned,),
    ast.Call: (call,),
    ast.Assign: (assignment,),
    ast.AugAssign: (assignment,),
    ast.Expr: (statement,),
}
