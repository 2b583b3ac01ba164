"""``ftmatrix can-i-use``: its output, its files and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import jsonschema
import pytest

from matrix.versions.sets import PACKAGES
from reports.answers.support import support

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., tuple[int, str, str]]


def test_an_answer_as_json_matches_the_schema(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("can-i-use", "qlora fsdp2 dora", "--json")
    assert code == 0
    jsonschema.validate(json.loads(out), json.loads(support.SCHEMA_FILE.read_text()))


def test_words_need_no_quotes(ftmatrix: Command) -> None:
    assert ftmatrix("can-i-use", "qlora", "fsdp2") == ftmatrix("can-i-use", "qlora fsdp2")


def test_a_former_option_name_is_accepted_with_a_note(ftmatrix: Command) -> None:
    former, present = (ftmatrix("can-i-use", "fsdp1", f"{name}=peft") for name in ("wrap", "auto_wrap_policy"))
    assert former[:2] == present[:2]
    assert former[2] == "wrap=peft: the option is auto_wrap_policy now (auto_wrap_policy=peft)\n"


def test_a_feature_that_works_on_no_set_exits_with_1(ftmatrix: Command) -> None:
    assert ftmatrix("can-i-use", "lokr nf4 fsdp2 hsdp world_size=4")[0] == 1


def test_support_of_everything_is_written(ftmatrix: Command, tmp_path: Path) -> None:
    code, _, _ = ftmatrix("can-i-use", "--write", str(tmp_path / "support.json.gz"))
    assert code == 0
    assert (tmp_path / "support.json.gz").read_bytes() == support.PUBLISHED.read_bytes()


def test_a_question_has_the_answer_of_its_terms(ftmatrix: Command) -> None:
    question = ftmatrix("can-i-use", "how", "to train with 4 bit LoRA and FSDP 2?")
    assert question == ftmatrix("can-i-use", "quant=nf4 method=lora strategy=fsdp2")


def test_what_nothing_measures_exits_with_1(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("can-i-use", "fp8 on a B200", "--json")
    assert (code, json.loads(out)["not_measured"]) == (1, ["FP8"])


def test_a_trainer_is_answered_from_its_cases(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("can-i-use", "does DPO work?")
    assert (code, out.splitlines()[0]) == (0, "Needed: case=api-dpo_trains")


def test_a_trainer_with_other_features_is_not_measured(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("can-i-use", "DPO with QLoRA")
    assert (code, out.splitlines()[0]) == (1, "Not measured: DPO together with qlora.")


def test_versions_narrow_the_answer(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("can-i-use", "lora", "--have", "torch==2.8", "--json")
    document = json.loads(out)
    assert (code, document["have"]) == (0, ["torch==2.8.*"])
    ranges = document["devices"][0]["support"][0]["packages"]["torch"]
    assert [each["versions"] for each in ranges if each["status"] != "unknown"] == ["==2.8.0"]


def test_versions_without_a_set_have_no_answer(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("can-i-use", "lora", "--have", "torch==1.13")
    assert code == 1
    assert "No published set with these versions has a case for this." in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name either features"),
        (("qlora", "--write", "x.json"), "name either features"),
        (("qloar",), "did you mean qlora"),
        (("\udcff\x00",), "is neither a known word nor a term"),
        (("--write", "no/such/folder/support.json"), "cannot write the file"),
        (("qlora", "--results", "spoilt"), "not JSON"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...], message: str, ftmatrix: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spoilt").mkdir()
    (tmp_path / "spoilt" / "matrix.json").write_bytes(b"\x00\xff{")
    monkeypatch.chdir(tmp_path)
    code, out, err = ftmatrix("can-i-use", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("ftmatrix: ")
    assert err.count("\n") == 1


def test_the_answer_needs_nothing_of_the_stack() -> None:
    hidden = "; ".join(f"sys.modules[{package!r}] = None" for package in PACKAGES)  # importing these raises
    start = f"import sys; {hidden}; from reports.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", start, "can-i-use", "qlora fsdp2"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pair_that_no_cell_measured_is_answered_from_the_map(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("can-i-use", "peft 0.17 with transformers 5.1", "--device", "cpu")
    assert code == 1
    assert "peft 0.17.1 with transformers 5.1.0: breaks at import" in out


def test_a_pair_as_json_matches_the_schema(ftmatrix: Command) -> None:
    out = json.loads(ftmatrix("can-i-use", "peft 0.17 with transformers 5.1", "--device", "cpu", "--json")[1])
    jsonschema.validate(out, json.loads(support.SCHEMA_FILE.read_text()))
    assert [each["status"] for each in out["pairs"]] == ["breaks at import"]


def test_a_pair_of_a_measured_set_is_answered_by_its_cells(ftmatrix: Command) -> None:
    assert "pairs" not in json.loads(ftmatrix("can-i-use", "peft 0.14 with torch 2.5", "--device", "cpu", "--json")[1])
