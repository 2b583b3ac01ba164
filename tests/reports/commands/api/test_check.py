"""``ftmatrix check``: the releases with which a script, a notebook or a configuration fits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Answer = tuple[int, str, str]
    Check = Callable[..., Answer]

OLD_SCRIPT = """\
from transformers import TrainingArguments
from trl import SFTTrainer

trainer = SFTTrainer(args=TrainingArguments(output_dir="x", evaluation_strategy="no"), tokenizer=None)
trainer.train(resume_from_checkpoint=True)
"""
OVERRIDE = """\
from transformers import Trainer


class MyTrainer(Trainer):
    def {method}:
        return 0
"""


@pytest.fixture
def check(ftmatrix: Callable[..., Answer], small_map: Path, tmp_path: Path) -> Check:
    """Check one file with a text; further arguments are those of the command."""

    def run(text: str, *arguments: str, name: str = "train.py") -> Answer:
        path = tmp_path / name
        path.write_text(text)
        return ftmatrix("check", str(path), "--map", str(small_map), *arguments)

    return run


@pytest.fixture
def fits(check: Check) -> Callable[..., dict[str, Any]]:
    """Return the ranges of releases that fit, by package."""

    def run(text: str, name: str = "train.py") -> dict[str, Any]:
        _, printed, _ = check(text, "--json", name=name)
        return {each["package"]: each["ranges"] for each in json.loads(printed)["packages"]}

    return run


def test_a_removed_argument_ends_the_range_and_names_its_successor(check: Check) -> None:
    code, printed, _ = check(OLD_SCRIPT)
    assert code == 0
    assert "TrainingArguments(evaluation_strategy=)  transformers 4.40.0; now eval_strategy" in printed


def test_a_field_of_a_base_in_another_package_narrows_that_package(fits: Callable[..., Any]) -> None:
    found = fits("from trl import SFTConfig\nSFTConfig(evaluation_strategy='no')\n")
    assert found["transformers"] == [["4.40.0", "4.40.0"]]


def test_a_field_of_a_base_is_listed_with_the_package_of_the_base(check: Check) -> None:
    _, printed, _ = check("from trl import SFTConfig\nSFTConfig(evaluation_strategy='no')\n")
    assert (
        "SFTConfig(evaluation_strategy=)  trl all, 0.9.0 to 0.13.0, with transformers 4.40.0; now eval_strategy"
        in printed
    )


def test_a_release_that_requires_what_does_not_fit_is_excluded(fits: Callable[..., Any]) -> None:
    found = fits("from trl import SFTConfig\nSFTConfig(evaluation_strategy='no')\n")
    assert found["trl"] == [["0.9.0", "0.9.0"]]


def test_code_that_no_release_fits_exits_with_1(check: Check) -> None:
    text = "from transformers import AdamW, Trainer\nTrainer(processing_class=None)\n"
    code, printed, _ = check(text)
    assert (code, printed.splitlines()[-1]) == (
        1,
        "No common range: no release of transformers has everything that is used of it.",
    )
    assert "no release has both AdamW and Trainer(processing_class=)" in printed


@pytest.mark.parametrize(
    "guarded",
    [
        "try:\n    from transformers import AdamW\nexcept ImportError:\n    pass\n",
        "if version.parse(transformers.__version__) < version.parse('4.46'):\n    transformers.AdamW\n",
        "if hasattr(transformers, 'AdamW'):\n    transformers.AdamW\n",
        "NEW = version.parse(transformers.__version__) >= version.parse('4.46')\nif not NEW:\n    transformers.AdamW\n",
        "def f():\n    if is_old_transformers_version():\n        return\n    transformers.AdamW\n",
    ],
)
def test_what_a_guard_protects_narrows_nothing(fits: Callable[..., Any], guarded: str) -> None:
    assert fits(f"import transformers\n{guarded}")["transformers"] == [["4.40.0", "4.46.0"]]


@pytest.mark.parametrize(
    "text",
    [
        "from transformers import Trainer\nTrainer().accelerator\n",  # which a release may set by `setattr`
        "from transformers import GoneTokenizer\n",  # for which newer releases find another class
    ],
)
def test_what_a_release_may_make_at_run_time_narrows_nothing(fits: Callable[..., Any], text: str) -> None:
    assert fits(text)["transformers"] == [["4.40.0", "4.46.0"]]


def test_arguments_that_are_built_at_run_time_are_unknown(check: Check) -> None:
    _, printed, _ = check("from transformers import TrainingArguments\nTrainingArguments(**options)\n")
    assert "train.py:2: arguments of TrainingArguments that are built at run time (`**options`)" in printed


def test_an_override_that_lacks_an_argument_which_is_passed_narrows(fits: Callable[..., Any]) -> None:
    found = fits(OVERRIDE.format(method="compute_loss(self, model, inputs, return_outputs=False)"))
    assert found["transformers"] == [["4.40.0", "4.40.0"]]


def test_an_override_with_keyword_arguments_accepts_new_ones(fits: Callable[..., Any]) -> None:
    found = fits(OVERRIDE.format(method="compute_loss(self, model, inputs, **kwargs)"))
    assert found["transformers"] == [["4.40.0", "4.46.0"]]


def test_an_override_without_proof_that_the_argument_is_passed_is_only_listed(check: Check) -> None:
    _, printed, _ = check(OVERRIDE.format(method="push_to_hub(self, message='')"))
    assert "MyTrainer.push_to_hub lacks revision, which Trainer.push_to_hub has in transformers 4.46.0" in printed
    assert printed.endswith("Every release of the map has what the code takes by name.\n")


def test_versions_that_lack_an_argument_do_not_fit(check: Check) -> None:
    code, printed, _ = check(OLD_SCRIPT, "--versions", "transformers==4.46.0 trl==0.13.0")
    assert (code, printed.splitlines()[-1]) == (1, "Does not fit: 2 names missing.")


def test_versions_that_have_everything_fit(check: Check) -> None:
    code, _, _ = check(OLD_SCRIPT, "--versions", "transformers==4.40.0 trl==0.9.0")
    assert code == 0


def test_a_package_without_a_version_is_not_checked(check: Check) -> None:
    _, printed, _ = check(OLD_SCRIPT, "--versions", "transformers==4.40.0")
    assert "Not checked: trl (no version given)" in printed


def test_a_freeze_gives_the_versions(check: Check, tmp_path: Path) -> None:
    freeze = tmp_path / "freeze.txt"
    freeze.write_text("transformers==4.46.0\ntrl==0.13.0\nfilelock==3.0\n")
    code, _, _ = check(OLD_SCRIPT, "--have", str(freeze))
    assert code == 1


def test_a_configuration_of_trl_is_checked_by_its_fields(check: Check) -> None:
    text = "model_name_or_path: x\nuse_peft: true\nmax_seq_length: 8\nevaluation_strategy: 'no'\n"
    _, printed, _ = check(text, name="sft.yaml")
    assert "sft.yaml:3  SFTConfig(max_seq_length=)" in printed
    assert "sft.yaml: model_name_or_path: read by TRL itself, or by no release of the map" in printed


def test_fields_of_a_tool_of_its_own_are_outside(check: Check) -> None:
    _, printed, _ = check("base_model: x\nadapter: qlora\nevaluation_strategy: 'no'\n", name="axolotl.yaml")
    assert "axolotl.yaml: base_model, adapter, evaluation_strategy: read by Axolotl itself" in printed


def test_the_options_of_a_script_are_the_fields_of_its_parser(check: Check, tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text("model_name_or_path: x\nuse_peft: true\nevaluation_strategy: 'no'\n")
    script = "from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser(TrainingArguments)\n"
    _, printed, _ = check(script, str(tmp_path / "sft.yaml"))
    assert "sft.yaml:3  TrainingArguments(evaluation_strategy=)  transformers 4.40.0; now eval_strategy" in printed


def test_options_of_a_program_that_is_not_given_are_outside(check: Check) -> None:
    text = "accelerate launch own.py --use_peft --evaluation_strategy steps\n"
    _, printed, _ = check(text, name="run.sh")
    assert "run.sh: use_peft, evaluation_strategy: read by own.py itself" in printed


def test_options_of_a_program_that_is_given_are_fields_of_its_parser(check: Check, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("accelerate launch train.py --use_peft --evaluation_strategy steps\n")
    script = "from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser(TrainingArguments)\n"
    _, printed, _ = check(script, str(tmp_path / "run.sh"))
    assert "run.sh:1  TrainingArguments(evaluation_strategy=)" in printed


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("old.py", 'print "loss"\n', 'old.py:1: this is Python 2 (`print "loss"`); the stack needs Python 3'),
        ("broken.py", "def f(:\n", "broken.py:1: the code does not parse as Python 3: invalid syntax"),
        ("binary.py", "\0\1", "binary.py: is not text; give a script, notebook or configuration"),
        ("empty.py", "", "empty.py: is empty; give a script, notebook or configuration"),
        ("empty.ipynb", '{"cells": []}', "empty.ipynb: the notebook has no code; give one with code cells"),
        ("cut.ipynb", '{"cells": [', "cut.ipynb: is not a notebook: not valid JSON; save it again in Jupyter"),
        ("other.yaml", "a: 1\n", "give a script, a notebook, or a file of one of these tools"),
    ],
)
def test_bad_input_is_one_sentence(check: Check, name: str, text: str, sentence: str) -> None:
    code, printed, error = check(text, name=name)
    assert (code, printed, error.count("\n")) == (2, "", 1)
    assert error.rstrip().endswith(sentence)


def test_a_missing_file_is_one_sentence(ftmatrix: Callable[..., Answer], small_map: Path) -> None:
    code, _, error = ftmatrix("check", "gone.py", "--map", str(small_map))
    expected = "ftmatrix: gone.py: cannot be read (No such file or directory); name an existing file\n"
    assert (code, error) == (2, expected)


def test_two_options_that_name_versions_are_refused(check: Check) -> None:
    code, _, error = check(OLD_SCRIPT, "--versions", "trl==0.9.0", "--set", "2026-11")
    assert (code, error) == (
        2,
        "ftmatrix: --versions, --set and --have each name the versions to check; give one of them\n",
    )
