"""Evaluates expressions of a script as far as its text tells: imports, constructors, parsers of arguments."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reports.answers.check.values import Instance, Named, OwnClass, OwnInstance, Parser, Several

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reports.answers.check.values import Value

Scope = dict[str, "Value"]
PARSERS: Final = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})
TO_OBJECTS: Final = frozenset(
    {"parse_args_into_dataclasses", "parse_args_and_config", "parse_yaml_file", "parse_json_file", "parse_dict"}
)
# Functions that return an object of a class of their package.
RETURNS: Final = {"get_peft_model": "PeftModel"}


@dataclass
class Scopes:
    """The names of a module, and of the functions and classes around the code that is read, innermost last."""

    chain: list[Scope] = field(default_factory=lambda: [{}])
    attributes: dict[tuple[OwnClass, str], Value] = field(default_factory=dict)  # of objects of own classes

    def look_up(self, name: str) -> Value:
        return next((scope[name] for scope in reversed(self.chain) if name in scope), None)

    def bind(self, name: str, value: Value) -> None:
        self.chain[-1][name] = value

    def enter(self) -> None:
        self.chain.append({})

    def leave(self) -> None:
        self.chain.pop()

    def nested(self) -> Scopes:
        """Return the scopes of a function in this one: it sees the final values of the names around it."""
        return Scopes([*self.chain, {}], self.attributes)

    def copy(self) -> Scope:
        return dict(self.chain[-1])

    def restore(self, scope: Scope) -> None:
        self.chain[-1].clear()
        self.chain[-1].update(scope)

    def merge(self, ends: Iterable[Scope]) -> None:
        """Keep the values on which the ends of alternative blocks agree; a name that one lacks is the other's."""
        several = list(ends)
        for name in {name for each in several for name in each}:
            values = [each[name] for each in several if name in each]
            self.bind(name, values[0] if all(each == values[0] for each in values) else None)


def evaluate(node: ast.AST | None, scopes: Scopes) -> Value:  # noqa: PLR0911 - one per kind of expression
    """Return what an expression stands for; None if the text does not tell."""
    match node:
        case ast.Name(id=name):
            return scopes.look_up(name)
        case ast.Attribute(value=inner, attr=attribute):
            return attribute_of(evaluate(inner, scopes), attribute, scopes)
        case ast.Call():
            return result_of(node, scopes)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return Several(tuple(evaluate(each, scopes) for each in elements))
        case ast.Subscript(value=inner, slice=ast.Constant(value=int(place))):
            several = evaluate(inner, scopes)
            return several.items[place] if isinstance(several, Several) and 0 <= place < len(several.items) else None
        case ast.IfExp(body=body, orelse=orelse):
            either, other = evaluate(body, scopes), evaluate(orelse, scopes)
            return either if either == other else None
        case ast.NamedExpr(value=inner) | ast.Await(value=inner):
            return evaluate(inner, scopes)
        case _:
            return None


def attribute_of(value: Value, attribute: str, scopes: Scopes) -> Value:
    match value:
        case Named(path=path):
            return Named(f"{path}.{attribute}")
        case OwnInstance(owner=own):
            return scopes.attributes.get((own, attribute))
        case _:
            return None


def result_of(call: ast.Call, scopes: Scopes) -> Value:  # noqa: PLR0911 - one per kind of callee
    """Return what a call returns."""
    match call.func:
        case ast.Attribute(value=inner, attr=method):
            owner = evaluate(inner, scopes)
            if isinstance(owner, Parser):
                return parsed_objects(owner, call) if method in TO_OBJECTS else None
            if method == "from_pretrained":
                return pretrained(owner)
    called = evaluate(call.func, scopes)
    match called:
        case Named() as named if named.path.rpartition(".")[2] in PARSERS:
            return parser_of(call, scopes)
        case Named() as named if named.is_class and not is_auto(named.path):
            return Instance(named.path)
        case Named(path=path) if path.rpartition(".")[2] in RETURNS:
            return Instance(f"{path.partition('.')[0]}.{RETURNS[path.rpartition('.')[2]]}")
        case OwnClass() as own:
            return OwnInstance(own)
        case _:
            return of_other_call(call, scopes)


def of_other_call(call: ast.Call, scopes: Scopes) -> Value:
    """Return the object that ``tyro.cli(CLASS)`` and similar functions build from the command line."""
    if ast.unparse(call.func) == "tyro.cli" and call.args:
        return instance_of(evaluate(call.args[0], scopes))
    return None


def pretrained(owner: Value) -> Value:
    """Return an object of the class that loads itself; an ``Auto`` class returns one of another class."""
    if isinstance(owner, Named) and is_auto(owner.path):
        return None
    return instance_of(owner)


def is_auto(path: str) -> bool:
    return path.rpartition(".")[2].startswith("Auto")


def instance_of(value: Value) -> Value:
    match value:
        case Named() as named if named.is_class:
            return Instance(named.path)
        case OwnClass() as own:
            return OwnInstance(own)
        case _:
            return None


def parser_of(call: ast.Call, scopes: Scopes) -> Value:
    """Return a parser with the dataclasses that it gets."""
    given = (
        call.args[0]
        if call.args
        else next((each.value for each in call.keywords if each.arg == "dataclass_types"), None)
    )
    value = evaluate(given, scopes)
    if isinstance(value, Several):
        return Parser(value.items)
    return Parser((value,)) if value is not None else None


def parsed_objects(parser: Parser, call: ast.Call) -> Value:
    """Return the objects that a parser returns, in the order of its classes."""
    items = tuple(instance_of(each) for each in parser.classes)
    is_plain = all(each.arg is not None for each in call.keywords)
    return Several(items) if is_plain else None
