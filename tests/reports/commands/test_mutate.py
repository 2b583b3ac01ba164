"""``mutate`` writes a document that its schema describes, and refuses what it cannot resume."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from cases.injection.source_mutants import SourceMutant
from matrix.errors import UserError
from matrix.experiments import mutation, mutation_score
from matrix.experiments.located_mutants import MADE, SAME, LocatedMutant
from matrix.experiments.mutant_sample import FileCounts
from matrix.experiments.mutants import Mutant
from matrix.experiments.mutation_score import MutantResult, MutatedCell, SetScore
from reports.commands import mutate
from reports.render.text import mutation_text

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., tuple[int, str, str]]

SCHEMA = Path(mutate.__file__).parents[1] / "schema" / "mutation.schema.json"


def a_result(verdict: str, name: str = "m1") -> MutantResult:
    edit = SourceMutant(name, "peft/a.py", "", "f", 0, 1, "x")
    mutant = Mutant(kind="term", where="f", line=3, last=3, before="  x + y", after="  x", edit=edit)
    cell = MutatedCell(case="train-lora-single-fp32", verdict=verdict, noticed=("gradient",), seconds=1.0)
    return MutantResult(mutant=mutant, cells=(cell,))


def a_score() -> SetScore:
    counts = FileCounts(file="peft/a.py", generated=9, covered=4, import_time=2)
    results = (a_result("wrong"), a_result("pass", "m2"))
    return SetScore(set="2026-11", traced_cells=5, mutants=results, files=(counts,), rejected={"mine": "no function"})


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "run", lambda request: request.directory.mkdir(parents=True) or (a_score(),))


@pytest.mark.usefixtures("scored")
def test_the_document_matches_the_schema(ftmatrix: Command, tmp_path: Path) -> None:
    status, out, _ = ftmatrix("mutate", "--json", "--out", str(tmp_path / "m"))
    document: dict[str, Any] = json.loads(out)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert status == 0
    assert json.loads((tmp_path / "m" / "mutation.json").read_text()) == document


@pytest.mark.usefixtures("scored")
def test_the_tables_are_written_as_markdown(ftmatrix: Command, tmp_path: Path) -> None:
    ftmatrix("mutate", "--out", str(tmp_path / "m"))
    assert "| peft | 1 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 50% |" in (tmp_path / "m" / "mutation.md").read_text()


def test_a_survivor_is_shown_with_its_place_its_diff_and_its_cells() -> None:
    text = "\n".join(mutation_text.lines([a_score()]))
    assert "survived: m2 peft/a.py:3 f (term)\n      -   x + y\n      +   x\n      in train-lora-single-fp32" in text
    assert "1 of 2 mutants killed (50%)" in text
    assert "not mutable: mine: no function" in text


def located_score() -> SetScore:
    """Two located mutants, of which one is compared with the reference, and one that nothing locates."""
    attention = "model.layers.0.self_attn"
    of_reference = LocatedMutant(kind="output", named=attention, ran_in=(attention,))
    of_stack = LocatedMutant(
        kind="weight",
        named="mlp.up",
        ran_in=("mlp",),
        built=("mlp",),
        against="the unchanged stack",
        function="peft/a.py f",
        is_changed=True,
    )
    results = [a_result("wrong", name) for name in ("m1", "m2", "m3")]
    located = [
        replace(result, cells=(replace(result.cells[0], located=found),))
        for result, found in zip(results, (of_reference, of_stack, None), strict=True)
    ]
    return replace(a_score(), mutants=tuple(located))


def test_the_places_of_located_mutants_are_counted_by_what_they_were_compared_with() -> None:
    same, made = (mutation_text.WHERE[name] for name in (SAME, MADE))
    assert list(mutation_text.place_lines(located_score())) == [
        f"The module named first, of 2 located mutants: 1 {same}, 1 {made}.",
        "Of the 1 compared with the reference: 1 the one with the mutated code.",
        "Of the 1 compared with the unchanged stack: 1 a part that the mutated constructor makes.",
        "The function named first, of 1 mutant with one: 1 the mutated one.",
        "Noticed, and not located: 1 with the verdict wrong.",
    ]


def test_a_document_with_locations_matches_the_schema() -> None:
    document = json.loads(json.dumps(mutation_score.document([located_score()], seed=1, run={})))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["sets"][0]["places"] == {"same": 1, "made": 1}


def test_values_that_no_cell_compares_are_shown_and_match_the_schema() -> None:
    silent = a_result("pass", "m3")
    cells = (replace(silent.cells[0], same_numbers=True, changes="peft/a.py f"),)
    score = replace(a_score(), mutants=(a_result("wrong"), replace(silent, cells=cells)))
    jsonschema.validate(
        json.loads(json.dumps(mutation_score.document([score], seed=1, run={}))), json.loads(SCHEMA.read_text())
    )
    text = "\n".join(mutation_text.lines([score]))
    assert "unseen: m3 peft/a.py:3 f changes peft/a.py f" in text
    assert "1 of 2 mutants killed (50%), 1 changed a value that no cell compares" in text
    assert "* `peft/a.py:3` f (term) changes `peft/a.py f`" in mutation_text.markdown([score])


def test_an_earlier_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / mutation.MUTANTS_FOLDER).mkdir()
    with pytest.raises(UserError, match="continue it with --resume"):
        mutate.check(resume=False, out=tmp_path, directory=tmp_path)


def test_resume_needs_a_directory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name it with --out"):
        mutate.check(resume=True, out=None, directory=tmp_path)


@pytest.mark.usefixtures("scored")
def test_reviews_are_added_to_stored_results_and_replaced(ftmatrix: Command, tmp_path: Path) -> None:
    ftmatrix("mutate", "--out", str(tmp_path / "m"))
    for why in ("an old reason", "the rank is ignored"):
        (tmp_path / "r.json").write_text(json.dumps([{"id": "m2", "class": "missed", "why": why}]))
        status, out, _ = ftmatrix("mutate", "--out", str(tmp_path / "m"), "--reviews", str(tmp_path / "r.json"))
    document = json.loads((tmp_path / "m" / "mutation.json").read_text())
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    page = (tmp_path / "m" / "mutation.md").read_text()
    assert status == 0
    assert "If the others are like these, 50% of the mutants that matter are killed." in out
    assert page.count("## Reviews") == 1
    assert "the rank is ignored" in page
    assert "an old reason" not in page


def test_reviews_need_results(ftmatrix: Command, tmp_path: Path) -> None:
    status, _, error = ftmatrix("mutate", "--out", str(tmp_path), "--reviews", str(tmp_path / "r.json"))
    assert (status, "--reviews needs the directory of a finished mutation run" in error) == (2, True)


def test_again_refuses_hand_written_mutants(ftmatrix: Command, tmp_path: Path) -> None:
    mutant = {"id": "mine", "kind": "hand-written", "status": "survived"}
    (tmp_path / "old.json").write_text(json.dumps({"sets": [{"set": "2026-11", "mutants": [mutant]}]}))
    status, _, error = ftmatrix("mutate", "--again", str(tmp_path / "old.json"), "--out", str(tmp_path / "m"))
    assert (status, "has hand-written mutants" in " ".join(error.split())) == (2, True)


def test_again_and_mutants_exclude_each_other(ftmatrix: Command, tmp_path: Path) -> None:
    status, _, error = ftmatrix("mutate", "--again", str(tmp_path / "a"), "--mutants", str(tmp_path / "b"))
    assert (status, "--again and --mutants exclude each other" in error) == (2, True)
