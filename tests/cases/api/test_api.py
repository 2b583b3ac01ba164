"""Tests of the registered calls."""

from __future__ import annotations

import pytest

from cases import api, suite
from cases.probes import requirements
from cases.runtime import rank

CALLS = api.load()


def test_every_call_has_a_reason() -> None:
    assert [name for name, call in CALLS.items() if not call.why] == []


def test_calls_require_only_known_requirements() -> None:
    unknown = {name: set(call.requires) - set(requirements.PROBES) for name, call in CALLS.items()}
    assert {name: requires for name, requires in unknown.items() if requires} == {}


def test_the_requirements_of_a_call_belong_to_its_case() -> None:
    case = suite.CASES["api-load_in_4bit_keyword"]
    assert [need.name for need in suite.SUITE.requirements(case.id, "cpu")] == ["4bit_loading"]


def raised_in(filename: str) -> TypeError:
    """The error of a wrong call in a file of this name."""
    try:
        exec(compile("dict(1, 2)", filename, "exec"))  # noqa: S102 - to choose the frame's file
    except TypeError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("folder", rank.CALLS)
def test_a_type_error_in_a_call_is_a_finding(folder: str) -> None:
    assert not rank.is_ours(raised_in(f"{folder}trainers.py"))


def test_a_type_error_elsewhere_is_the_harnesss_fault() -> None:
    assert rank.is_ours(raised_in(f"{rank.HARNESS}tiny.py"))


def test_the_module_of_every_call_is_found_without_importing_it() -> None:
    found = {name: f"cases.{api.module_of(name)}" for name in api.load()}
    assert found == {name: call.body.__module__ for name, call in api.load().items()}
