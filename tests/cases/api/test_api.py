"""Tests of the registered calls."""

from __future__ import annotations

import pytest

from cases import api, suite
from cases.probes import requirements
from cases.runtime import rank

CALLS = api.load()


@pytest.mark.parametrize("name", CALLS)
def test_every_call_has_a_reason(name: str) -> None:
    assert CALLS[name].why


@pytest.mark.parametrize("name", CALLS)
def test_a_call_requires_only_known_requirements(name: str) -> None:
    assert set(CALLS[name].requires) <= set(requirements.PROBES)


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
