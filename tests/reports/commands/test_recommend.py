"""``ftmatrix recommend``: its output, its lock file and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from matrix.versions.sets import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., tuple[int, str, str]]


def test_a_recommendation_exits_with_0(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("recommend", "--need", "method=lora quant=nf4 strategy=fsdp2")
    assert code == 0
    assert "Pin the set " in out


def test_the_lock_can_be_installed_from_anywhere(ftmatrix: Command, tmp_path: Path) -> None:
    code, _, err = ftmatrix("recommend", "--need", "qlora", "--lock", str(tmp_path / "requirements.txt"))
    text = (tmp_path / "requirements.txt").read_text()
    assert (code, err) == (0, f"Wrote {tmp_path / 'requirements.txt'}\n")
    assert text.count("--hash=sha256:") > text.count("==") > len(PACKAGES)
    assert "://" not in text


def test_no_recommendation_exits_with_1_and_writes_no_lock(ftmatrix: Command, tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    code, out, err = ftmatrix("recommend", "--need", "qlora", "--have", "torch<1", "--lock", str(lock))
    assert (code, lock.exists()) == (1, False)
    assert "No published set has these versions together" in out
    assert "not written: no set to lock" in err


def test_a_former_option_name_is_accepted_with_a_note(ftmatrix: Command) -> None:
    former, present = (ftmatrix("recommend", "--need", f"fsdp1 {name}=peft") for name in ("wrap", "auto_wrap_policy"))
    assert former[:2] == present[:2]
    assert former[2] == "--need wrap=peft: the option is auto_wrap_policy now (auto_wrap_policy=peft)\n"


def test_a_recommendation_as_json_has_the_same_answer(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("recommend", "--need", "qlora", "--json")
    found = json.loads(out)
    assert (code, found["device"], found["best"]["needs"][0]["standing"]) == (0, "cpu", "green")
    assert found["best"]["cells"][0]["cell"].startswith(f"{found['best']['set']}__train-lora-nf4")


def test_versions_alone_are_a_question(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("recommend", "--have", "torch==2.8")
    assert code == 0
    assert "Note: --have torch==2.8: read as torch==2.8.*" in out
    assert "torch==2.8.0 " in out


def test_a_question_with_versions_narrows_the_sets(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("recommend", "is", "torch 2.8 with peft 0.17 ok?", "--json")
    found = json.loads(out)
    assert (code, found["have"]) == (0, ["torch==2.8.*", "peft==0.17.*"])
    assert found["best"]["pins"]["torch"] == "2.8.0"


def test_a_set_that_did_not_run_a_case_is_unknown_not_red(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("recommend", "--need", "which peft for transformers 4.46", "--device", "cpu")
    assert code == 1
    assert "Unknown: no run on the 1 published set with these versions answers this." in out


def test_what_nothing_measures_exits_with_1_and_writes_no_lock(ftmatrix: Command, tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    code, out, err = ftmatrix("recommend", "--need", "qlora with deepspeed zero3", "--lock", str(lock))
    assert (code, lock.exists()) == (1, False)
    assert out.startswith("Not measured: DeepSpeed ZeRO.\nThe answer is for the rest of the question:\n")
    assert "not written: a part of the question was not measured" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--need", "full lora"), "'full' and 'lora' contradict each other"),
        (("--need", "full nf4"), "quantised weights are not trainable"),
        (("--need", "quantum=nf4"), "unknown option 'quantum'"),
        (("--need", ""), "empty query"),
        (("--need", "qlora", "--have", "torch=>2"), "is not a requirement"),
        (("--need", "qlora", "--have", "torch", "2.8"), "write it as one word, such as --have torch==2.8"),
        ((), "name features with --need"),
        (("--need", "is my cat ok"), "'cat' is neither a known word nor a term"),
        (("--need", "qlora", "--device", "tpu"), "--device tpu: unknown device"),
        (("--need", "qlora", "--results", "nowhere"), "nowhere: holds no results"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...], message: str, ftmatrix: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "invalid").mkdir()
    (tmp_path / "invalid" / "matrix.json").write_bytes(b"\x00\xff{")
    monkeypatch.chdir(tmp_path)
    code, out, err = ftmatrix("recommend", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("ftmatrix: ")
    assert err.count("\n") == 1


def test_the_answer_is_printed_even_if_the_lock_cannot_be_written(ftmatrix: Command) -> None:
    code, out, err = ftmatrix("recommend", "--need", "qlora", "--lock", "no/such/folder/lock.txt")
    assert (code, "cannot write the lock" in err) == (2, True)
    assert "Pin the set " in out


def test_the_answer_imports_none_of_the_packages() -> None:
    hidden = "; ".join(f"sys.modules[{package!r}] = None" for package in PACKAGES)  # importing these raises
    start = f"import sys; {hidden}; from reports.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", start, "recommend", "--need", "qlora fsdp2"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_kept_versions_narrow_the_recommendation(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("recommend", "--have", "transformers==4.46.3", "--device", "cpu", "--json")
    kept = json.loads(out)["kept"]
    assert (code, kept["best"]["pins"]["transformers"]) == (1, "4.46.3")
    assert kept["refused"][0]["set"] > kept["best"]["set"]
