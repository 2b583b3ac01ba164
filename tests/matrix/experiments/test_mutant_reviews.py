"""Reviews are added to the mutants that no cell noticed, and estimate how many of the others are missed."""

from __future__ import annotations

import contextlib
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from matrix.errors import UserError
from matrix.experiments import mutant_reviews

if TYPE_CHECKING:
    from pathlib import Path


def a_document() -> dict[str, Any]:
    """Six killed mutants, one survivor, four that changed no number."""
    statuses = {"k": "killed", "s": "survived", "a": "same numbers", "b": "same numbers", "c": "same numbers"}
    mutants = [{"id": name, "status": status} for name, status in statuses.items()]
    return {"sets": [{"set": "new", "total": {"killed": 6, "survived": 1, "same_numbers": 4}, "mutants": mutants}]}


def reviewed(**classes: str) -> dict[str, Any]:
    document = a_document()
    mutant_reviews.add(document, [{"id": name, "class": kind, "why": "…"} for name, kind in classes.items()])
    found: dict[str, Any] = document["sets"][0]["reviewed"]
    return found


def test_the_mutants_that_nobody_read_are_estimated_from_those_that_were() -> None:
    found = reviewed(a="missed", b="equivalent")
    assert (found["mutants"], found["missed"], found["equivalent"]) == (2, 1, 1)
    assert found["estimated_score"] == round(6 / (6 + 1 + 4 / 2), 4)


def test_a_survivor_counts_as_missed_unless_a_review_calls_it_harmless() -> None:
    assert reviewed(a="equivalent")["estimated_score"] == round(6 / 7, 4)
    assert reviewed(a="equivalent", s="no numbers")["estimated_score"] == 1.0
    assert reviewed(a="equivalent", s="missed")["estimated_score"] == round(6 / 7, 4)


@pytest.mark.parametrize("name", ["k", "unknown"])
def test_a_review_of_another_mutant_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} is not among the mutants that no cell noticed"):
        reviewed(**{name: "missed"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ("{}", "expected a JSON list of objects with id, class, why"),
        ('[{"id": "a", "class": "missed"}]', "expected a JSON list"),
        ('[{"id": "a", "class": "fine", "why": ""}]', "class 'fine' is none of missed, equivalent"),
    ],
)
def test_a_file_of_other_content_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "reviews.json").write_text(text)
    with pytest.raises(UserError, match=reason):
        mutant_reviews.read(tmp_path / "reviews.json")


def test_what_no_cell_noticed_and_no_review_calls_harmless_runs_again() -> None:
    document = a_document()
    mutant_reviews.add(
        document, [{"id": "a", "class": "missed", "why": ""}, {"id": "b", "class": "equivalent", "why": ""}]
    )
    assert mutant_reviews.to_run_again(document, "new") == {"s", "a", "c"}
    assert mutant_reviews.to_run_again(document, "old") == set()


def test_results_are_read(tmp_path: Path) -> None:
    (tmp_path / "mutation.json").write_text(json.dumps(a_document()))
    (tmp_path / "mutation.json.gz").write_bytes(gzip.compress(json.dumps(a_document()).encode()))
    for name in ("mutation.json", "mutation.json.gz"):
        assert mutant_reviews.results(tmp_path / name, "--again") == a_document()


@pytest.mark.parametrize(("kind", "is_refused"), [("hand-written", True), ("constant", False)])
def test_only_drawn_mutants_run_again(tmp_path: Path, kind: str, *, is_refused: bool) -> None:
    document = a_document()
    document["sets"][-1]["mutants"][0]["kind"] = kind
    (tmp_path / "mutation.json").write_text(json.dumps(document))
    message = r"^--again .*mutation\.json has hand-written mutants; run those .* with --mutants$"
    with pytest.raises(UserError, match=message) if is_refused else contextlib.nullcontext():
        mutant_reviews.drawn_results(tmp_path / "mutation.json", "--again")


@pytest.mark.parametrize("text", ["[]", "{", '{"sets": [{"mutants": [{"id": "a"}]}]}'])
def test_other_files_are_no_results(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(UserError, match=r"^--again .*other\.json is no mutation\.json"):
        mutant_reviews.results(tmp_path / "other.json", "--again")
