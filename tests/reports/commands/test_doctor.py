"""``ftmatrix doctor`` on the published results, with configurations that follow the examples of the projects."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from matrix.versions import sets
from matrix.versions.sets import PACKAGES
from reports.answers.knowledge import PUBLISHED
from reports.results import document as data
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

Command = "Callable[..., tuple[int, str, str]]"
EXAMPLES = Path(__file__).parents[1] / "answers" / "configuration" / "configs"
FSDP1 = "accelerate_fsdp1.yaml"
# Of no set; but between 2024-09 and 2026-11 in every package.
BETWEEN = {
    "torch": "2.6.0",
    "transformers": "5.2.0",
    "peft": "0.15.0",
    "bitsandbytes": "0.47.0",
    "accelerate": "1.15.0",
    "trl": "1.0.0",
}
BEYOND = {"torch": "3.0.0", "transformers": "6.0.0", "peft": "0.30.0", "accelerate": "2.0.0"}
TRAINER = "trl_qlora.yaml"
QLORA = (FSDP1, TRAINER)
CPU = ("--device", "cpu")
INFERRED = re.compile(r"inferred from \S+ and \S+, between which these versions lie")
# As measured on GPUs.
ON_GPUS = {
    "torch": "2.11.0+cu130",
    "transformers": "5.23.0",
    "peft": "0.21.2",
    "bitsandbytes": "0.50.2",
    "accelerate": "1.15.0",
    "trl": "1.16.0",
}
NEWEST_ON_GPUS = "2026-11+py3.12+torch2.11.0+cu130"
PLAIN_TRL = """\
model_name_or_path: x
use_peft: true
dtype: float32
bf16: false
optim: adamw_torch
gradient_checkpointing: false
dataset_name: y
"""


@pytest.fixture
def examine(ftmatrix: Callable[..., Any], environment: Callable[..., Path], tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs doctor on the versions of a set and copies of examples."""

    def run(version_set: str, *names: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        python = tmp_path / "environment"
        if not python.exists():
            environment(version_set)
        copies = [tmp_path / name for name in names]
        for copy in copies:
            if not copy.exists():
                shutil.copy(EXAMPLES / copy.name, copy)
        files = [word for copy in copies for word in ("--config", str(copy))]
        found: tuple[int, str, str] = ftmatrix("doctor", "--python", str(python), *files, *options)
        return found

    return run


def document(found: tuple[int, str, str]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(found[1])
    return read


def changed_lines(path: Path) -> list[str]:
    before = (EXAMPLES / path.name).read_text().splitlines()
    return [line for line in path.read_text().splitlines() if line not in before]


def test_what_a_missing_trainer_file_leaves_open_is_no_problem_and_nothing_is_written(
    examine: Callable[..., Any], tmp_path: Path
) -> None:
    code, out, _ = examine("2025-09", FSDP1, options=("--write",))
    assert (code, "Possible problem, as no file says otherwise: ValueError: Must flatten" in out) == (0, True)
    assert (tmp_path / FSDP1).read_text() == (EXAMPLES / FSDP1).read_text()


def test_four_bit_weights_in_bytes_under_fsdp_are_known_red_and_repaired(
    examine: Callable[..., Any], tmp_path: Path
) -> None:
    code, out, _ = examine("2026-06", *QLORA)
    assert code == 1
    assert "Problem: ValueError: Cannot flatten integer dtype tensors" in out
    assert "why: bitsandbytes packs 4-bit weights into uint8 by default" in out
    assert "see https://github.com/huggingface/peft/issues/1432" in out
    assert "Change: trl_qlora.yaml: bnb_4bit_quant_storage: not set -> bfloat16" in out
    assert (tmp_path / TRAINER).read_text() == (EXAMPLES / TRAINER).read_text()
    code, out, _ = examine("2026-06", *QLORA, options=("--write",))
    assert (code, f"Wrote {tmp_path / TRAINER}" in out) == (0, True)
    assert changed_lines(tmp_path / TRAINER) == ["bnb_4bit_quant_storage: bfloat16"]
    code, out, _ = examine("2026-06", *QLORA)
    assert (code, "No known failures; training is green, as shown by" in out) == (0, True)


def test_a_change_that_leaves_another_problem_is_written_and_exits_with_1(
    examine: Callable[..., Any], tmp_path: Path
) -> None:
    """An adapter saved whole from FSDP1 by peft 0.21 is empty, whatever the weights are packed in."""
    sharded = (EXAMPLES / FSDP1).read_text()
    (tmp_path / FSDP1).write_text(sharded.replace("SHARDED_STATE_DICT", "FULL_STATE_DICT"))
    code, out, _ = examine("2026-11", *QLORA, options=("--write",))
    assert (code, "Problem: save_pretrained of an FSDP1 model writes an adapter file without tensors" in out) == (
        1,
        True,
    )
    assert changed_lines(tmp_path / TRAINER) == ["bnb_4bit_quant_storage: bfloat16"]
    assert "Cannot flatten" not in examine("2026-11", *QLORA)[1]


def test_the_same_file_is_fine_where_the_storage_follows_the_load_dtype(examine: Callable[..., Any]) -> None:
    code, out, _ = examine("2025-09", FSDP1, "trl_qlora.yaml")
    assert (code, "shown by 2025-09__train-lora-nf4-bnb_4bit_quant_storage_bf16-fsdp1" in out) == (0, True)


@pytest.mark.parametrize(
    ("files", "repaired", "lines"),
    [
        ((FSDP1, "trl_int8.yaml"), "trl_int8.yaml", {"load_in_8bit: false", "load_in_4bit: true"}),
        ((FSDP1, "llamafactory_int8.yaml"), "llamafactory_int8.yaml", {"quantization_bit: 4"}),
        (
            ("axolotl_lora_8bit_fsdp.yml",),
            "axolotl_lora_8bit_fsdp.yml",
            {"load_in_8bit: false", "load_in_4bit: true", "adapter: qlora"},
        ),
    ],
)
def test_int8_under_fsdp_is_dropped_only_with_give_up(
    files: tuple[str, ...], repaired: str, lines: set[str], examine: Callable[..., Any], tmp_path: Path
) -> None:
    code, out, _ = examine("2025-09", *files, options=("--write",))
    assert (code, "Alternative that drops quant=int8" in out, "Nothing was written" in out) == (1, True, True)
    assert changed_lines(tmp_path / repaired) == []
    assert examine("2025-09", *files, options=("--write", "--give-up"))[0] == 0
    assert set(changed_lines(tmp_path / repaired)) <= lines | {"bnb_4bit_quant_storage: bfloat16"}
    assert lines <= set((tmp_path / repaired).read_text().splitlines())
    assert examine("2025-09", *files)[0] == 0


def test_a_command_line_is_read_and_never_written(examine: Callable[..., Any], tmp_path: Path) -> None:
    command = tmp_path / "train.sh"
    command.write_text("accelerate launch --use_fsdp --fsdp_use_orig_params false sft.py --use_peft --fp16 false\n")
    before = command.read_text()
    assert "Job train.sh (accelerate) + train.sh (TRL): method=lora" in examine("2025-09", "train.sh")[1]
    code, _, err = examine("2025-09", "train.sh", options=("--write",))
    assert (code, "--write changes no command lines" in err, command.read_text()) == (2, True, before)


def test_dora_under_fsdp_needs_a_newer_peft_and_nothing_else(examine: Callable[..., Any]) -> None:
    code, out, _ = examine("2024-06", FSDP1, "trl_dora.yaml", options=("--write", "--device", "cpu"))
    assert code == 1
    assert 'Nearest set on which a simpler form of it is green, 2024-06+peft0.12.0: pip install "peft==0.12.0"' in out
    (shown,) = (line for line in out.splitlines() if "shown on a CPU by 2024-06+peft0.12.0__" in line)
    assert "(pass), with Python 3.11, a simpler form without" in shown
    assert shown.endswith("clip_grad_norm=True, optim=adamw, front_end=sft")
    assert "Nothing was written" in out


def test_dora_under_fsdp_is_fine_with_that_peft(examine: Callable[..., Any]) -> None:
    assert examine("2024-06+peft0.12.0", FSDP1, "trl_dora.yaml")[0] == 0


def test_a_job_that_needs_a_gpu_is_unknown_on_cpu_results(examine: Callable[..., Any]) -> None:
    """A float32 load dtype with flash attention and 4-bit weights."""
    found = document(examine("2026-11", "trl_flash.yaml", options=("--json",)))
    assert (found["standing"], found["problems"]) == ("unknown", [])
    assert found["job"]["options"]["attn_implementation"] == "flash_attention_2"
    assert any("no case like this job ran" in each for each in found["unknown"])


def test_a_failure_of_cpus_only_is_no_problem_of_a_job_on_gpus(examine: Callable[..., Any], tmp_path: Path) -> None:
    """FSDP2 in torch 2.8 trains wrongly over gloo, and so does such a job only if it is one on a CPU."""
    results = tmp_path / "results"  # without those on GPUs
    results.mkdir()
    shutil.copy(PUBLISHED / "outcomes.parquet", results)
    on_cpus = ("--results", str(results))
    code, out, _ = examine("2025-06", "accelerate_fsdp2.yaml", options=on_cpus)
    assert (code, "is red because of the machine that it ran on: In torch 2.7 and 2.8, gloo's" in out) == (0, True)
    config = tmp_path / "accelerate_fsdp2.yaml"
    config.write_text(config.read_text().replace("use_cpu: false", "use_cpu: true"))
    code, out, _ = examine("2025-06", "accelerate_fsdp2.yaml", options=on_cpus)
    assert (code, "why: In torch 2.7 and 2.8, gloo's" in out) == (1, True)


@pytest.mark.parametrize(
    ("files", "standing"),
    [
        (("accelerate_ddp.yaml", "trl_lora.yaml"), "unknown"),  # saving by DDP was not measured
        (("axolotl_qlora_fsdp.yml",), "unknown"),
        (("accelerate_deepspeed.yaml",), "unknown"),
        (("accelerate_deepspeed.yaml", "trl_lora.yaml"), "unknown"),
    ],
)
def test_green_and_unknown_jobs_exit_with_0(files: tuple[str, ...], standing: str, examine: Callable[..., Any]) -> None:
    found = examine("2026-06", *files, options=("--json",))
    assert (found[0], document(found)["standing"]) == (0, standing)


def test_versions_that_were_not_measured_are_unknown_and_the_nearest_set_is_named(
    ftmatrix: Callable[..., Any], environment: Callable[..., Path]
) -> None:
    code, out, _ = ftmatrix("doctor", "--python", str(environment(BEYOND)), "--config", str(EXAMPLES / FSDP1))
    assert "these versions were not measured; on the nearest set" in out
    assert ("inferred" in out, "Problem" in out, code) == (False, False, 0)
    code, out, _ = ftmatrix(
        "doctor", "--python", str(Path(out.split()[1].rstrip(":"))), "--config", str(EXAMPLES / "accelerate_ddp.yaml")
    )
    assert (code, "No known failures, but this combination is untested" in out) == (0, True)


def test_gpu_results_win_over_cpu_results(
    ftmatrix: Callable[..., Any], environment: Callable[..., Path], tmp_path: Path
) -> None:
    (column,) = sets.select(sets.load(), "2026-06")
    folder = environment({**column.pins, "torch": "2.12.0+cu130"})
    for name in QLORA:
        shutil.copy(EXAMPLES / name, tmp_path / name)
    arguments = ("--python", str(folder), *(word for name in QLORA for word in ("--config", str(tmp_path / name))))
    code, out, _ = ftmatrix("doctor", *arguments)
    assert (code, "measured as 2026-06, 2026-06+py3.12+host, on GPU (cuda)" in out) == (1, True)
    assert ftmatrix("doctor", *arguments, "--write")[0] == 0
    assert changed_lines(tmp_path / TRAINER) == ["bnb_4bit_quant_storage: bfloat16"]
    code, out, _ = ftmatrix("doctor", *arguments)
    assert (code, "training is green, as shown by 2026-06__" in out) == (0, True)
    assert "on CPU (gloo)" in ftmatrix("doctor", *arguments, "--device", "cpu")[1]


@pytest.mark.parametrize(
    ("other", "inferred"),
    [
        ({"transformers": "5.5.0"}, True),
        ({"torch": "2.11.0+cu128", "transformers": "5.5.0"}, True),
        ({"torch": "2.1.2"}, False),  # the oldest that was measured is 2.2.2
        ({"transformers": "5.23.1"}, False),
    ],
)
def test_a_failure_of_two_sets_is_inferred_only_for_versions_between_them(
    other: dict[str, str], ftmatrix: Callable[..., Any], environment: Callable[..., Path], *, inferred: bool
) -> None:
    files = (word for name in QLORA for word in ("--config", str(EXAMPLES / name)))
    arguments = ("--python", str(environment({**ON_GPUS, **other})), *files)
    _, out, _ = ftmatrix("doctor", *arguments, "--device", "cuda")
    assert "these versions were not measured; on the nearest set" in out
    assert bool(INFERRED.search(out)) is inferred


@pytest.mark.parametrize("build", ["cpu", "cpu.cxx11.abi", "rocm6.4"])
def test_another_build_is_not_the_one_that_was_measured_on_gpus(
    build: str, ftmatrix: Callable[..., Any], environment: Callable[..., Path]
) -> None:
    arguments = ("doctor", "--python", str(environment({**ON_GPUS, "torch": f"2.11.0+{build}"})))
    code, out, _ = ftmatrix(*arguments)
    assert (code, "cuda" in out, "these versions were not measured; the nearest set is 2026-11" in out) == (
        0,
        False,
        True,
    )
    assert is_one_sentence(ftmatrix(*arguments, "--device", "cuda"), f"torch 2.11.0+{build} is not built for the GPUs")


def test_another_python_and_another_gpu_build_are_named(
    ftmatrix: Callable[..., Any], environment: Callable[..., Path]
) -> None:
    """The environment's Python is 3.11, and 3.12 was on the machine with the GPU."""
    folder = environment({**ON_GPUS, "torch": "2.11.0+cu128"})
    out = ftmatrix("doctor", "--python", str(folder))[1]
    assert "  measured with Python 3.12, but this environment has 3.11.9\n" in out
    assert "  measured with torch 2.11.0+cu130, but this environment has 2.11.0+cu128\n" in out
    report = document(ftmatrix("doctor", "--python", str(folder), "--config", str(EXAMPLES / FSDP1), "--json"))
    assert len(report["environment"]["measured_with"]) == 2


def test_the_same_python_is_not_mentioned(examine: Callable[..., Any]) -> None:
    assert "measured with" not in examine("2026-11")[1]


def test_pins_to_install_have_no_local_version(ftmatrix: Callable[..., Any], environment: Callable[..., Path]) -> None:
    arguments = ("--python", str(environment({**ON_GPUS, "torch": "2.6.0"})), "--config", str(EXAMPLES / FSDP1))
    out = ftmatrix("doctor", *arguments, "--device", "cuda")[1]
    assert f'is green with a change of settings, {NEWEST_ON_GPUS}: pip install "torch==2.11.0"\n' in out
    assert "(pass), with Python 3.12, a simpler form without sync_module_states=True" in out


@pytest.mark.parametrize(
    ("version_set", "old", "new", "launcher"),
    [
        ("2024-12", "gradient_accumulation_steps: 4", "gradient_accumulation_steps: 1", ()),
        ("2026-11", "optim: adamw_bnb_8bit", "optim: adamw_torch", ("accelerate_fsdp2.yaml",)),
    ],
)
def test_a_part_of_the_job_is_dropped_only_with_give_up(
    version_set: str, old: str, new: str, launcher: tuple[str, ...], examine: Callable[..., Any], tmp_path: Path
) -> None:
    config = tmp_path / "trl.yaml"
    text = PLAIN_TRL if "optim" not in old else PLAIN_TRL.replace("optim: adamw_torch\n", "")
    config.write_text(f"{text}{old}\n")
    code, out, _ = examine(version_set, "trl.yaml", *launcher, options=("--write", *CPU))
    assert (code, "Change: " in out, f"{old} -> " in out, config.read_text()) == (1, False, True, f"{text}{old}\n")
    assert "Alternative that drops " in out
    assert examine(version_set, "trl.yaml", *launcher, options=("--write", "--give-up", *CPU))[0] == 0
    assert config.read_text() == f"{text}{new}\n"


def test_results_without_a_set_of_the_six_packages_alone_are_one_sentence(
    ftmatrix: Callable[..., Any],
    environment: Callable[..., Path],
    tmp_path: Path,
    build_run: Callable[..., Any],
    build_set: Callable[..., Any],
) -> None:
    arguments = ("--python", str(environment("2026-11")), "--results", str(tmp_path))
    for columns in ((), (build_set("2025-12+hub1.2.3"),)):
        record = build_run()
        published = data.document(record, grid(record, columns, ()), generated=record.started)
        (tmp_path / "matrix.json").write_text(data.dumped(published))
        for more in ((), ("--config", str(EXAMPLES / FSDP1))):
            assert is_one_sentence(ftmatrix("doctor", *arguments, *more), "consists of the six packages only")


def test_an_unverified_change_is_not_written(
    ftmatrix: Callable[..., Any], environment: Callable[..., Path], tmp_path: Path
) -> None:
    for name in QLORA:
        shutil.copy(EXAMPLES / name, tmp_path / name)
    files = (word for name in QLORA for word in ("--config", str(tmp_path / name)))
    code, out, _ = ftmatrix("doctor", "--python", str(environment(BETWEEN)), *files, "--write")
    assert INFERRED.search(out)
    assert (code, "Nothing was written" in out) == (1, True)
    assert changed_lines(tmp_path / TRAINER) == []


def test_a_missing_package_of_the_job_is_a_problem(
    ftmatrix: Callable[..., Any], environment: Callable[..., Path]
) -> None:
    versions = {"torch": "2.15.0", "transformers": "5.23.0", "peft": "0.21.2"}
    found = ftmatrix("doctor", "--python", str(environment(versions)), "--config", str(EXAMPLES / "trl_qlora.yaml"))
    assert found[0] == 1
    assert "the job needs bitsandbytes and accelerate and trl, which is not installed: install it" in found[1]


def test_without_a_job_the_known_failures_are_listed(examine: Callable[..., Any]) -> None:
    code, out, _ = examine("2026-11")
    assert (code, "measured as 2026-11" in out, "Known red on 2026-11: " in out) == (0, True, True)


def test_without_a_job_json_has_every_cause(examine: Callable[..., Any]) -> None:
    found = document(examine("2026-11", options=("--json", "--device", "cpu")))
    assert (found["standing"], found["job"], found["change"]) == ("green", None, None)
    assert len(found["known_red"]) > 20
    assert all(each["example"].startswith("2026-11__") for each in found["known_red"])


def test_an_environment_in_which_the_plainest_use_fails_is_a_problem(examine: Callable[..., Any]) -> None:
    code, out, _ = examine("2026-03+peft0.17.1")
    assert (code, "cannot import name 'HybridCache'" in out) == (1, True)
    assert 'Nearest set on which the plainest use (sft_trains) is green, 2026-03: pip install "peft==0.18.1"' in out


def test_declared_requirements_between_packages_are_checked(
    ftmatrix: Callable[..., Any], environment: Callable[..., Path]
) -> None:
    folder = environment({"transformers": "4.44.2", "trl": "0.23.0"}, trl="transformers>=4.56.1")
    code, out, _ = ftmatrix("doctor", "--python", str(folder))
    assert (code, "trl 0.23.0 requires transformers>=4.56.1, but 4.44.2 is installed" in out) == (1, True)


def test_json_has_the_same_answer(examine: Callable[..., Any]) -> None:
    found = document(examine("2026-06", *QLORA, options=("--json", "--device", "cpu")))
    assert (found["schema"], found["standing"], found["device"]) == (1, "red", "cpu")
    assert found["environment"]["sets"] == ["2026-06"]
    (problem,) = found["problems"]
    red = "2026-06__train-lora-nf4-fsdp1-auto_wrap_policy_peft-use_orig_params_false-bf16 (fail)"
    assert (problem["shown_by"], problem["part"], problem["finding"]) == (red, "", "")
    (changes,) = found["change"]["files"].values()
    assert changes == [{"key": "bnb_4bit_quant_storage", "old": None, "new": "bfloat16"}]
    assert [each["id"] for each in found["notes"]] == ["train-loss-of-one-rank"]
    assert "machine_rank" in found["job"]["not_looked_at"][FSDP1]


BAD = {
    "unknown dialect": (b"trainer:\n  max_epochs: 3\n", "no keys of accelerate"),
    "tabs": (b"distributed_type: FSDP\nfsdp_config:\n\tfsdp_version: 2\n", "a tab"),
    "binary": (b"\x00\xff\xfe\x01", "not text"),
    "empty": (b"", "is empty"),
}


def is_one_sentence(found: tuple[int, str, str], message: str) -> bool:
    code, out, err = found
    return (code, out, err.count("\n")) == (2, "", 1) and err.startswith("ftmatrix: ") and message in err


@pytest.mark.parametrize(("raw", "message"), BAD.values(), ids=BAD)
def test_a_bad_configuration_is_one_sentence(
    raw: bytes, message: str, ftmatrix: Callable[..., Any], environment: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_bytes(raw)
    arguments = ("--python", str(environment("2026-11")), "--config", str(tmp_path / "job.yaml"))
    assert is_one_sentence(ftmatrix("doctor", *arguments), message)


def test_a_file_of_200_megabytes_is_one_sentence(
    ftmatrix: Callable[..., Any], environment: Callable[..., Path], tmp_path: Path
) -> None:
    with (tmp_path / "job.yaml").open("wb") as file:
        file.truncate(200_000_000)
    arguments = ("--python", str(environment("2026-11")), "--config", str(tmp_path / "job.yaml"))
    assert is_one_sentence(ftmatrix("doctor", *arguments), "larger than 100 kB")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--python", "nowhere/python"), "there is no such interpreter"),
        (("--config", "missing.yaml"), "cannot be read"),
        (("--write",), "--write needs configuration files"),
        (("--device", "tpu"), "holds no results measured on tpu"),
        (("--results", "nowhere"), "holds no results"),
    ],
)
def test_bad_arguments_are_one_sentence(
    arguments: tuple[str, ...],
    message: str,
    ftmatrix: Callable[..., Any],
    environment: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VIRTUAL_ENV", str(environment("2026-11")))
    assert is_one_sentence(ftmatrix("doctor", *arguments), message)


def test_an_environment_without_any_of_the_packages_is_one_sentence(
    ftmatrix: Callable[..., Any], environment: Callable[..., Path]
) -> None:
    found = ftmatrix("doctor", "--python", str(environment({"numpy": "2.0.0"})))
    assert is_one_sentence(found, "none of torch, transformers, peft, bitsandbytes, accelerate, trl is installed there")


def test_an_unwritable_file_stays_unchanged(
    examine: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path, __: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    found = examine("2026-06", *QLORA, options=("--write",))
    assert is_one_sentence(found, "cannot be written (No space left on device); nothing in it was changed")
    assert changed_lines(tmp_path / TRAINER) == []


def test_the_answer_needs_nothing_of_the_stack(environment: Callable[..., Path]) -> None:
    hidden = "; ".join(f"sys.modules[{package!r}] = None" for package in PACKAGES)  # importing these raises
    start = f"import sys; {hidden}; from reports.cli import main; main()"
    arguments = ["doctor", "--python", str(environment("2026-11")), "--config", str(EXAMPLES / "accelerate_ddp.yaml")]
    done = subprocess.run([sys.executable, "-c", start, *arguments], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_number_for_which_a_measured_one_stands_is_shown(examine: Callable[..., Any]) -> None:
    _, out, _ = examine("2026-11", *QLORA)
    assert "gradient_accumulation_steps=8 (judged as 2)" in out
    assert "world_size=8 (judged as 2)" in out
