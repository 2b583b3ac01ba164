"""Profiles are nested, and the large one leaves nothing out."""

from __future__ import annotations

from cases.options import Options, names, values
from cases.profiles import EVERY, PROFILES

FULL = PROFILES["full"].cases


def ids(profile: str) -> set[str]:
    return {case.id for case in PROFILES[profile].cases}


def test_each_profile_holds_the_smaller_one() -> None:
    assert ids("quick") < ids("full") < ids("nightly")
    assert ids("default") < ids("full")


def test_full_has_two_hundred_and_fifty_cases_of_options_alone() -> None:
    assert len({case.id for case in FULL if not case.options.call}) >= 250


def test_no_two_cases_mean_the_same() -> None:
    stated = [(tuple(case.options.stated.items()), case.source) for case in EVERY]
    assert len(stated) == len(set(stated))


def test_every_value_of_every_option_is_in_full() -> None:
    met = {item for case in FULL for item in case.options.stated.items()}
    met |= {("flow", "api")}  # uses of the interface are of the nightly profile
    assert [(name, value) for name in names() for value in values(name) if (name, value) not in met] == []


def test_every_case_is_legal() -> None:
    assert [case.id for case in EVERY if case.options.why_illegal] == []


def test_a_case_is_one_of_its_own_after_a_travel() -> None:
    assert Options().but(flow="portability").why_illegal == ""
