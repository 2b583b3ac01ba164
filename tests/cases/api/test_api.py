"""Calls: uses of the libraries' interface."""

from __future__ import annotations

import pytest

from cases import api, suite
from cases.probes import requirements
from cases.runtime import rank

CALLS = api.load()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_says_what_a_user_learns(name: str) -> None:
    assert CALLS[name].why


@pytest.mark.parametrize("name", CALLS)
def test_a_call_requires_only_known_requirements(name: str) -> None:
    assert set(CALLS[name].requires) <= set(requirements.PROBES)


def test_what_a_call_needs_is_probed() -> None:
    case = suite.CASES["api-load_in_4bit_keyword"]
    assert [need.name for need in suite.SUITE.requirements(case.id, "cpu")] == ["4bit_loading"]


def raised_in(filename: str) -> TypeError:
    """The error that a wrong keyword makes in a file of this name."""
    try:
        exec(compile("dict(1, 2)", filename, "exec"))  # noqa: S102 - to choose the frame's file
    except TypeError as error:
        return error
    raise AssertionError


def test_a_wrong_keyword_in_a_call_is_a_fact_about_the_stack() -> None:
    assert not rank.is_ours(raised_in(f"{rank.CALLS}trainers.py"))


def test_a_wrong_keyword_elsewhere_is_ours() -> None:
    assert rank.is_ours(raised_in(f"{rank.HARNESS}tiny.py"))


def test_the_module_of_every_call_is_found_without_importing_it() -> None:
    found = {name: f"cases.api.{api.module_of(name)}" for name in api.load()}
    assert found == {name: call.body.__module__ for name, call in api.load().items()}
