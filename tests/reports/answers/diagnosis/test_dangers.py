"""What is known against a fix stands beside it, and a fix without dangers comes first."""

from __future__ import annotations

from pathlib import Path

from matrix.search.fixes import Kind
from reports.answers.diagnosis import dangers
from reports.answers.diagnosis.explain import explain
from reports.answers.diagnosis.symptoms import Symptom
from reports.render.text import explain_text

LOG = Path(__file__).with_name("logs") / "fsdp-integers-require-grad.txt"


def test_settings_are_read_from_advice_as_upstream_writes_them() -> None:
    text = "Set bnb_4bit_quant_storage=torch.bfloat16 and use_orig_params=True, or max_grad_norm=0."
    assert dangers.settings_in(text) == {"bnb_4bit_quant_storage": "bf16", "use_orig_params": True}


def test_a_fix_by_fsdp1_names_the_adapter_that_it_does_not_save() -> None:
    (explained,) = explain(Symptom(text=LOG.read_text()))
    with_dangers = [fix for fix in explained.fixes if fix.dangers]
    assert with_dangers
    assert any("__save_reload-lora-fsdp1" in danger for fix in with_dangers for danger in fix.dangers)
    text = "\n".join(explain_text.lines([explained], {}))
    assert "beware: saving and loading again is then red" in text


def test_a_first_fix_without_dangers_comes_before_one_with_them() -> None:
    (explained,) = explain(Symptom(text=LOG.read_text()))
    settings = [fix for fix in explain_text.first_fixes(explained) if fix.kind is not Kind.VERSIONS]
    dangerous = [bool(fix.dangers) for fix in settings]
    assert dangerous == sorted(dangerous)
