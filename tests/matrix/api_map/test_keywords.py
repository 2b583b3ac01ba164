"""Keyword arguments that functions accept without stating them."""

from __future__ import annotations

import ast
from datetime import date
from typing import TYPE_CHECKING, Protocol

import pytest

from matrix.api_map.query import ApiMap
from matrix.api_map.reading.keywords import accepted_keywords, translated_keywords
from matrix.api_map.reading.names import Names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DECORATOR = """
def validate(fn):
    @wraps(fn)
    def inner(*args, **kwargs):
        kwargs = deprecated(name=fn.__name__, kwargs=kwargs)
        return fn(*args, **kwargs)
    return inner

def deprecated(name, kwargs):
    new = kwargs.copy()
    use_auth_token = new.pop("use_auth_token", None)
    if use_auth_token is not None:
        new["token"] = use_auth_token
    new.pop("proxies", None)
    return new
"""
DECORATED = """
from .checks import validate

@validate
def download(name, token=None): pass

@validate
def listing(name): pass

class Client:
    @validate
    def __init__(self, token=None): pass

class Model:
    def __init__(self, **kwargs):
        kwargs.pop("scale", 1)
    def load(self, name, **kwargs):
        bits = kwargs.pop("bits", 8)
        options.pop("other", None)
        return super().load(name, **kwargs)
"""


class FakeIndex(Protocol):
    def add(self, package: str, version: str, sources: dict[str, str], day: date) -> None: ...


@pytest.fixture
def keywords(index: FakeIndex, updated: Callable[[FakeIndex, Path], object], tmp_path: Path) -> ApiMap:
    sources = {"trl/__init__.py": "", "trl/core.py": DECORATED, "trl/checks.py": DECORATOR}
    index.add("trl", "0.10.0", sources, date(2024, 6, 1))
    removed = {"trl/checks.py": "def validate(fn):\n    return fn\n"}
    index.add("trl", "0.11.0", sources | removed, date(2024, 7, 1))
    updated(index, tmp_path)
    return ApiMap(tmp_path / "map")


def test_a_decorator_takes_a_keyword_for_the_function_that_states_the_new_one(keywords: ApiMap) -> None:
    assert keywords.having("trl.core.download(use_auth_token)").versions == ("0.10.0",)
    assert keywords.rename("trl.core.download", "use_auth_token") == "token"
    assert keywords.having("trl.core.Client(use_auth_token)").versions == ("0.10.0",)
    assert not keywords.having("trl.core.listing(use_auth_token)").known


def test_a_decorator_takes_a_keyword_that_it_drops_for_every_function(keywords: ApiMap) -> None:
    assert keywords.having("trl.core.listing(proxies)").versions == ("0.10.0",)


def test_a_method_accepts_what_it_takes_from_its_keyword_arguments(keywords: ApiMap) -> None:
    found = keywords.having("trl.core.Model.load(bits)")
    assert found.versions == ("0.10.0", "0.11.0")
    assert keywords.having("trl.core.Model(scale)").known
    assert not keywords.having("trl.core.Model.load(other)").known


def names(module: str = "trl.core") -> Names:
    return Names(module=module, is_package=False)


def test_what_a_method_accepts_is_no_member_of_its_class(keywords: ApiMap) -> None:
    assert not keywords.having("trl.core.Model.scale").known


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("kwargs.pop('a')", ["a"]),
        ("kwargs.get('a', 1)", ["a"]),
        ("kwargs.pop(name)", []),
        ("'a' in kwargs", []),
        ("other.pop('a')", []),
        ("rest = kwargs.copy()\n    rest.pop('a')", ["a"]),
        ("def g():\n        kwargs.pop('a')", ["a"]),
        ("def g(**kwargs):\n        kwargs.pop('a')", []),
    ],
)
def test_only_keywords_that_are_taken_by_name_count(body: str, expected: list[str]) -> None:
    tree = ast.parse(f"def f(x, **kwargs):\n    {body}\n")
    assert [name for name, _, _ in accepted_keywords(tree, names())] == [f"f.{each}" for each in expected]


def test_modules_of_one_model_are_left_out() -> None:
    tree = ast.parse("def f(**kwargs):\n    kwargs.pop('a')\n")
    assert not [*accepted_keywords(tree, names("transformers.models.bert.modeling_bert"))]


def test_a_function_that_decorates_nothing_translates_nothing() -> None:
    assert translated_keywords(ast.parse("def f(**kwargs):\n    kwargs.pop('a')\n"), names()) == {}
