"""An explanation lists the fixes that published runs prove, with the device of each run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cases.space.verdict import RED, Verdict
from matrix.search.fixes import Kind
from reports.answers import knowledge
from reports.answers.diagnosis.explain import Explanation, explain
from reports.answers.diagnosis.symptoms import Symptom
from reports.answers.fixes import proven
from reports.render.text import explain_text

if TYPE_CHECKING:
    from reports.answers.fixes.proven import ProvenFix

LOGS = Path(__file__).with_name("logs")
FAMILIES = {  # headline failures and the phase in which cells showed them
    "fsdp1-uniform-dtype": "wrap",
    "fsdp1-requires-grad": "wrap",
    "fsdp-integers-require-grad": "wrap",
    "fsdp1-dora-flat-shards": "forward",
}


def explanation(name: str, **versions: str) -> Explanation:
    (explained,) = explain(Symptom(text=(LOGS / f"{name}.txt").read_text(), versions=versions))
    return explained


def on_cpu(explained: Explanation) -> list[ProvenFix]:
    return [fix for fix in explained.fixes if fix.device == "cpu"]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_headline_family_has_a_proven_fix(name: str) -> None:
    explained = explanation(name)
    assert (explained.signature.id, explained.phase) == (name, FAMILIES[name])
    assert explained.fixes
    assert explained.links


@pytest.mark.parametrize("name", FAMILIES)
def test_a_proof_is_a_green_and_a_red_cell(name: str) -> None:
    published = knowledge.by_device()
    for fix in explanation(name).fixes:
        matrix = published[fix.device]
        sets = [cell.partition("__") for cell in fix.green]
        assert {matrix.verdict(case, key) for key, _, case in sets} == {Verdict.PASS}
        key, _, case = fix.red.partition("__")
        assert matrix.verdict(case, key) in RED


QUANTISATION = ("quant=", "bnb_4bit", "llm_int8")


def test_a_log_without_quantisation_gets_no_fix_that_changes_it() -> None:
    changes = [fix.change for fix in explanation("fsdp1-uniform-dtype").fixes]
    assert changes
    assert [change for change in changes if any(name in change for name in QUANTISATION)] == []


def test_a_log_with_four_bits_gets_fixes_of_four_bits() -> None:
    text = "load_in_4bit=True\n" + (LOGS / "fsdp1-uniform-dtype.txt").read_text()
    (explained,) = explain(Symptom(text=text))
    assert "bnb_4bit_quant_storage=bf16 instead of fp32" in {fix.change for fix in explained.fixes}
    assert {"-nf4-" in fix.red for fix in explained.fixes} == {True}


def test_an_unmeasured_fix_is_unverified_advice() -> None:
    explained = explanation("fsdp2-8bit-optimiser-memory")  # requires two GPUs
    assert [fix["proven"] for fix in explained.as_json()["fixes"]] == [False]
    text = "\n".join(explain_text.lines([explained], {}))
    assert "unverified advice" in text
    assert "not measured yet: it needs" in text


def test_the_text_names_the_device_of_each_proof() -> None:
    called = {fix.device: explain_text.proof(fix) for fix in explanation("fsdp1-uniform-dtype").fixes}
    assert called["cpu"].startswith("green on CPU (gloo), not on GPUs")
    assert called["cuda"].startswith("green on GPUs (NCCL), ")


def test_gpu_results_come_first() -> None:
    fix = on_cpu(explanation("fsdp1-uniform-dtype"))[0]
    on_gpu = replace(fix, device="cuda", kind=Kind.ALTERNATIVE)
    assert [each.device for each in proven.ordered([fix, on_gpu], {}, {})] == ["cuda", "cpu"]
    assert explain_text.proof(on_gpu).startswith("green on GPUs (NCCL), ")


def test_the_sets_nearest_to_the_users_versions_come_first() -> None:
    def first(**versions: str) -> str:
        return on_cpu(explanation("fsdp1-requires-grad", **versions))[0].green[0].partition("__")[0]

    assert first(torch="2.2.2", transformers="4.39.3", peft="0.10.0") == "2024-04"
    assert first() == "2026-11"


def test_versions_that_contradict_a_signature_exclude_it() -> None:
    text = (LOGS / "qdora-integer-weights.json").read_text()
    assert "qdora-integer-weights" not in {
        each.signature.id for each in explain(Symptom(text=text, versions={"peft": "0.18.0"}))
    }


def test_an_unknown_error_is_unexplained() -> None:
    assert explain(Symptom(text="SyntaxError: invalid syntax")) == ()
    assert next(explain_text.lines((), {})).startswith("unexplained")
