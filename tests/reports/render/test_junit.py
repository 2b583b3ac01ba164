from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from reports.render.junit import junit
from reports.results.grid import grid

if TYPE_CHECKING:
    from matrix.run.outcome import Outcome, RunRecord, SetRecord

    Run = tuple[RunRecord, list[SetRecord], list[Outcome]]


def parsed(run: Run) -> ET.Element:
    return ET.fromstring(junit(grid(*run)))  # noqa: S314 - what we wrote ourselves


def results(run: Run) -> dict[str, str]:
    """Return the element inside each test case, by cell."""
    return {
        f"{suite.get('name')}__{case.get('name')}": ", ".join(f"{child.tag} {child.get('type')}" for child in case)
        for suite in parsed(run)
        for case in suite.iter("testcase")
    }


def test_each_set_states_its_device(small: Run) -> None:
    record, sets, outcomes = small
    shared = [each.model_copy(update={"hardware": "cuda-gloo: NVIDIA H100 x 1"}) for each in outcomes]
    found = {(each.get("name"), each.get("value")) for each in parsed((record, sets, shared)).iter("property")}
    assert {("device", "cuda-gloo"), ("hardware", "NVIDIA H100 x 1")} <= found


def test_every_cell_is_a_test_case(small: Run) -> None:
    assert set(results(small)) == set(small[0].planned)


def test_each_verdict_has_its_element(small: Run) -> None:
    assert {result for result in results(small).values() if result} == {
        "failure fail",
        "failure wrong",
        "failure hang",
        "failure crash",
        "error lost",
        "error blocked",
        "skipped skip",
        "skipped unknown",
    }


def test_a_pass_is_empty(small: Run) -> None:
    assert results(small)["2024-06__train-lora-ddp-fp32"] == ""


def test_a_suite_counts_what_is_in_it(small: Run) -> None:
    for suite in parsed(small):
        for name, tag in {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}.items():
            assert int(suite.get(name, "")) == len(list(suite.iter(tag)))


def test_characters_that_xml_forbids_are_replaced(hostile: Run) -> None:
    failure = next(parsed(hostile).iter("failure"))
    assert "</script>" in (failure.text or "")
    assert "\x1b" not in (failure.text or "")
