"""Users' scripts in the really installed newest default set: launchers, adapters, and the documented example."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cases.space.verdict import Phase, Verdict
from matrix.run import request, store
from matrix.run.execute import Suite
from matrix.run.scripts import user_scripts
from matrix.versions import sets

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome

NEWEST = sets.select(sets.load(), "default")[-1].key
DOCUMENT = Path(__file__).parents[2] / "docs" / "scripts.md"
RANKS = """
import os, signal, sys
import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1 and sys.argv[1] == "raise":
    raise ValueError("boom")
if dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGSEGV)
dist.barrier()
"""
ADAPTER = """
import os, sys
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
if sys.argv[1] == "raise":
    raise KeyError("column")
out = os.environ["FTMATRIX_OUT"]
shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
LlamaForCausalLM(LlamaConfig(vocab_size=64, **shape)).save_pretrained(f"{out}/base")
base = LlamaForCausalLM.from_pretrained(f"{out}/base")
model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]))
for name, parameter in model.named_parameters():
    if "lora_B" in name and ("q_proj" in name or sys.argv[1] == "nan"):
        parameter.data.fill_(float("nan") if sys.argv[1] == "nan" else 1.0)
model.peft_config["default"].base_model_name_or_path = sys.argv[2]
model.save_pretrained(f"{out}/adapter")
"""
TABLES = """
[scripts.torchrun_raises]
command = ["torchrun", "--nproc-per-node", "2", "ranks.py", "raise"]
ranks = 2

[scripts.torchrun_faults]
command = ["torchrun", "--nproc-per-node", "2", "ranks.py", "fault"]
ranks = 2

[scripts.accelerate_raises]
command = ["accelerate", "launch", "--cpu", "--num_processes", "1", "adapter.py", "raise"]

[scripts.one_module_frozen]
script = "adapter.py"
command = ["{python}", "{script}", "freeze", "nowhere/base"]
adapter = { folder = "adapter", base = "base" }

[scripts.one_module_excused]
script = "adapter.py"
command = ["{python}", "{script}", "freeze", "nowhere/base"]
adapter = { folder = "adapter", base = "base", unchanged = ["*v_proj*"] }

[scripts.not_finite]
script = "adapter.py"
command = ["{python}", "{script}", "nan", "{out}/base"]
adapter = "adapter"

[scripts.no_base]
script = "adapter.py"
command = ["{python}", "{script}", "freeze", "nowhere/base"]
adapter = "adapter"

[scripts.too_slow]
command = ["{python}", "-c", "import time; time.sleep(60)"]
timeout_s = 8

[scripts.half_a_line]
command = ["sh", "-c", "echo '{\\"f1\\": 0.9'; echo '{\\"f1\\": 0' > {out}/metrics.jsonl"]
metrics = { f1 = { min = 0.5 } }

[scripts.too_new]
command = ["{python}", "-c", "1"]
dependencies = ["peft>=99"]
"""


def write_scripts(folder: Path) -> tuple[Path, Path]:
    """Write the scripts of this module, and the one of the documentation."""
    example = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    for name, text in (("train.py", example[1]), ("ranks.py", RANKS), ("adapter.py", ADAPTER), ("own.toml", TABLES)):
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "train.py", folder / "own.toml"


@pytest.fixture(scope="session")
def outcomes(make_once: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Outcomes of one run, for the tests of all workers."""

    def run(out: Path) -> None:
        scripts = user_scripts.load_all(write_scripts(tmp_path_factory.mktemp("scripts")))
        request.run(request.RunRequest(sets=NEWEST, device="cpu", out=out, suite=Suite(scripts=scripts)))

    directory = make_once("user-scripts", run)
    return {each.case.removeprefix("script-"): each for each in store.read(directory)[2]}


def test_the_documented_example_passes(outcomes: dict[str, Outcome]) -> None:
    found = outcomes["train"]
    assert (found.verdict, found.reason) == (Verdict.PASS, "")
    assert found.facts["extra_packages"] == f"tabulate=={str(found.facts['extra_packages']).partition('==')[2]}"
    names = {check.name for check in found.checks}
    assert {"change of loss from first to last", "last value of accuracy", "tensors of the saved adapter"} <= names


@pytest.mark.parametrize(
    ("name", "verdict", "reason"),
    [
        ("torchrun_raises", Verdict.FAIL, "ValueError: boom"),
        ("torchrun_faults", Verdict.CRASH, "rank 1 of the script was ended by SIGSEGV"),
        ("accelerate_raises", Verdict.FAIL, "KeyError: 'column'"),
        ("not_finite", Verdict.WRONG, "saved adapter tensors that are not finite base_model"),
        ("one_module_frozen", Verdict.WRONG, "saved adapter tensors that are as they started base_model.model.model"),
        ("one_module_excused", Verdict.PASS, ""),
        ("no_base", Verdict.FAIL, "OSError: "),
        ("too_slow", Verdict.HANG, "not done in 8 s: the command in <module> (<string>:1)"),
        ("half_a_line", Verdict.WRONG, "places that hold no JSON object metrics.jsonl line 1 == none; metrics with a"),
        ("too_new", Verdict.SKIP, "the script requires peft>=99; the set has"),
    ],
)
def test_a_script_gets_its_verdict_and_reason(
    outcomes: dict[str, Outcome], name: str, verdict: Verdict, reason: str
) -> None:
    assert (outcomes[name].verdict, outcomes[name].reason[: len(reason)]) == (verdict, reason)


def test_an_error_names_the_rank_and_the_line_of_the_script(outcomes: dict[str, Outcome]) -> None:
    error = outcomes["torchrun_raises"].error
    assert error is not None
    assert (error.type, error.message, error.rank) == ("ValueError", "boom", 1)
    assert 'ranks.py", line 6' in error.traceback


def test_an_adapter_without_its_base_fails_when_it_is_reloaded(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["no_base"].phase is Phase.RELOAD


def test_the_output_of_a_red_script_is_kept(outcomes: dict[str, Outcome]) -> None:
    assert {"rank 0 script log"} <= set(outcomes["half_a_line"].evidence)
    assert any(name.endswith("stacks") for name in outcomes["too_slow"].evidence)
