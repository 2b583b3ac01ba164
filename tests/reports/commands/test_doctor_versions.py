"""``ftmatrix doctor --versions``: the same answers without an environment."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = Path(__file__).parents[1] / "answers" / "configuration" / "configs"
QLORA = ("--config", str(EXAMPLES / "accelerate_fsdp1.yaml"), "--config", str(EXAMPLES / "trl_qlora.yaml"))
SHARDED_DORA = ("--config", str(EXAMPLES / "accelerate_fsdp2.yaml"), "--config", str(EXAMPLES / "trl_dora.yaml"))
SIX = "torch==2.15.0\ntransformers==5.23.0\npeft==0.21.2\nbitsandbytes==0.50.2\naccelerate==1.15.0\ntrl==1.16.0\n"


def pipe(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))


def is_one_sentence(found: tuple[int, str, str], message: str) -> bool:
    code, out, err = found
    return (code, out, err.count("\n")) == (2, "", 1) and err.startswith("ftmatrix: ") and message in err


def answer(found: tuple[int, str, str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(found[1])
    return {key: document[key] for key in ("standing", "device", "problems", "green", "change", "versions")}


def test_text_file_freeze_and_key_give_the_answer_of_the_environment(
    ftmatrix: Callable[..., Any],
    environment: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = answer(ftmatrix("doctor", "--python", str(environment("2026-11")), *QLORA, "--json"))
    assert expected["standing"] == "red"
    (tmp_path / "requirements.txt").write_text(SIX)
    pipe(monkeypatch, SIX)
    for given in (",".join(SIX.split()), str(tmp_path / "requirements.txt"), "-", "2026-11"):
        assert answer(ftmatrix("doctor", "--versions", given, *QLORA, "--json")) == expected


def test_the_key_of_a_set_that_only_results_have_is_known(ftmatrix: Callable[..., Any]) -> None:
    _, out, _ = ftmatrix("doctor", "--versions", "2026-11+py3.12+torch2.11.0+cu130")
    assert "Versions from set 2026-11+py3.12+torch2.11.0+cu130: Python 3.12: torch 2.11.0+cu130" in out
    assert "on GPU (cuda)" in out


MOVED = "  this changes a default: TrainingArguments(hub_private_repo): None -> False\n"


def test_an_advised_move_lists_the_defaults_that_it_changes(ftmatrix: Callable[..., Any]) -> None:
    code, out, _ = ftmatrix("doctor", "--versions", "2024-12", *SHARDED_DORA)
    _, moved, rest = out.partition(MOVED)
    assert (code, bool(moved)) == (1, True)
    (every,) = (line for line in rest.splitlines() if line.startswith("  all changed defaults: "))
    assert "`ftmatrix map changes transformers 4.47.0 4.41.2`" in every


def test_a_default_that_the_job_states_is_not_listed(ftmatrix: Callable[..., Any], tmp_path: Path) -> None:
    stated = tmp_path / "stated.yaml"
    stated.write_text((EXAMPLES / "trl_dora.yaml").read_text() + "hub_private_repo: false\n")
    _, out, _ = ftmatrix("doctor", "--versions", "2024-12", *SHARDED_DORA[:3], str(stated))
    assert "Nearest set on which" in out
    assert MOVED not in out


def test_packages_that_a_text_leaves_out_are_unknown_and_no_problem(ftmatrix: Callable[..., Any]) -> None:
    code, out, _ = ftmatrix("doctor", "--versions", "torch==2.15.0 transformers==5.23.0 peft>=0.21", *QLORA)
    assert "  not pinned: peft>=0.21\n  not given: bitsandbytes, accelerate, trl\n" in out
    unknown = "Unknown: the job needs peft and bitsandbytes and accelerate and trl, of which the command line gives no"
    assert (code, unknown in out, "is not installed" in out) == (0, True, False)


def test_packages_that_a_freeze_leaves_out_are_a_problem(
    ftmatrix: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    freeze = "torch==2.15.0\ntransformers==5.23.0\npeft==0.21.2\nfilelock==3.19.1\ntyping_extensions==4.15.0\n"
    pipe(monkeypatch, freeze)
    code, out, _ = ftmatrix("doctor", "--versions", "-", *QLORA)
    assert (code, "  not installed: bitsandbytes, accelerate, trl\n" in out) == (1, True)
    assert "Problem: the job needs bitsandbytes and accelerate and trl, which is not installed" in out


def test_a_build_without_cuda_is_judged_by_the_results_of_cpus(ftmatrix: Callable[..., Any]) -> None:
    assert "on CPU (gloo)" in ftmatrix("doctor", "--versions", SIX.replace("2.15.0", "2.15.0+cpu"))[1]


def test_a_version_that_does_not_exist_is_a_problem(ftmatrix: Callable[..., Any]) -> None:
    code, out, _ = ftmatrix("doctor", "--versions", SIX.replace("0.21.2", "0.21.9"))
    assert (code, "  peft 0.21.9 was not released by 2026-11-13; the newest peft is 0.21.2\n" in out) == (0, True)
    code, out, _ = ftmatrix("doctor", "--versions", SIX.replace("2.15.0", "2.14.7"))
    assert (code, "Problem: torch 2.14.7 was not released by 2026-11-13; its neighbours are" in out) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--python", "venv", "--versions", "2026-11"), "--python and --versions both name the versions to check"),
        (("--versions", "2026-13"), 'unknown version set "2026-13"; did you mean'),
        (("--versions", "nowhere.txt"), "nowhere.txt: there is no such file"),
        (("--versions", "torhc==2.8.0"), 'unknown package "torhc"; did you mean torch?'),
    ],
)
def test_bad_versions_are_one_sentence(arguments: tuple[str, ...], message: str, ftmatrix: Callable[..., Any]) -> None:
    assert is_one_sentence(ftmatrix("doctor", *arguments), message)


ENGINE = "zero.json", '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}'
DORA = "adapter_config.json", '{"peft_type": "LORA", "use_dora": true, "r": 8, "lora_alpha": 16}'
FULL = "full.yaml", "model_name_or_path: x\nuse_peft: false\ndataset_name: y\n"


@pytest.mark.parametrize(
    ("example", "other", "message"),
    [
        ("accelerate_fsdp1.yaml", ENGINE, "accelerate_fsdp1.yaml requests FSDP and zero.json DeepSpeed"),
        ("trl_lora.yaml", DORA, "adapter_config.json describes method=dora and trl_lora.yaml method=lora"),
        ("axolotl_qlora_fsdp.yml", FULL, "both are trainer files; give one of them"),
        ("llamafactory_int8.yaml", FULL, "both are trainer files; give one of them"),
    ],
)
def test_files_of_two_jobs_are_one_sentence(
    example: str, other: tuple[str, str], message: str, ftmatrix: Callable[..., Any], tmp_path: Path
) -> None:
    shutil.copy(EXAMPLES / example, tmp_path)
    (tmp_path / other[0]).write_text(other[1])
    files = ("--config", str(tmp_path / example), "--config", str(tmp_path / other[0]))
    assert is_one_sentence(ftmatrix("doctor", "--versions", "2026-11", *files), message)
