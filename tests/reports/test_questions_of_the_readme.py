"""Each question of the README is answered by its one command, as a user types it."""

from __future__ import annotations

import io
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reports import cli

if TYPE_CHECKING:
    from collections.abc import Mapping

README = Path(__file__).parents[2] / "README.md"
ROW = re.compile(r"^\| [^|]+\? \| `(?P<command>.+)` \|$", re.MULTILINE)
COMMANDS = [match["command"].replace("\\|", "|") for match in ROW.finditer(README.read_text(encoding="utf-8"))]
FREEZE = "torch==2.8.0\ntransformers==4.56.1\npeft==0.17.1\naccelerate==1.10.1\ntrl==0.23.0\nbitsandbytes==0.47.0\n"
CONFIG = "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\n"
LOG = "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32\n"
# The exit code of each command, and what its answer has to contain; nothing else may be on standard error.
ANSWERS: Mapping[str, tuple[int, str]] = {
    "explain train.log": (0, "fsdp1-uniform-dtype"),
    'recommend "qlora fsdp2" --lock pins.txt': (0, "Pin the set "),
    'recommend "which peft for transformers 4.46"': (1, "Green before and after: 2024-09"),
    'recommend "is torch 2.8 with peft 0.17 ok"': (0, "Pin the set 2025-09"),
    'recommend --have "torch 2.8" --need qlora': (0, "Pin the set 2025-09"),
    'can-i-use "two GPUs QLoRA"': (0, "green"),
    'can-i-use "llama 3 8b in 4 bit on one T4 with bf16"': (1, "Not measured: bf16 on a T4"),
    'can-i-use "does DPO work"': (0, "==2.5.1            red"),
    'can-i-use "Does DPOTrainer support deepspeed zero3 with QLoRA?"': (1, "Not measured: DeepSpeed ZeRO"),
    'can-i-use "resume from checkpoint fsdp2 lora"': (0, "torch alone makes the difference: red at 2.8.0"),
    "doctor --versions -": (0, "Versions from standard input: torch 2.8.0"),
    "doctor --versions 2026-11 --config fsdp.yaml": (0, "fsdp.yaml"),
    "fix 2026-11__train-lora-fsdp1-bf16 --look-up": (0, "auto_wrap_policy"),
    "repro 2026-11__train-lora-fsdp1-bf16 --issue": (0, "Must flatten tensors"),
    "devices": (0, "2024-06"),
}


def test_the_readme_asks_fifteen_questions() -> None:
    assert [each.partition("ftmatrix ")[2] for each in COMMANDS] == list(ANSWERS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_question_of_the_readme_is_answered(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("train.log", LOG), ("fsdp.yaml", CONFIG)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    arguments = command.partition("ftmatrix ")[2]
    monkeypatch.setattr(sys, "argv", ["ftmatrix", *shlex.split(arguments)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FREEZE.encode())))
    code, part = ANSWERS[arguments]
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    assert int(ended.value.code or 0) == code
    assert part in printed.out
