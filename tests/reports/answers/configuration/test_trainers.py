"""A job has a trainer, a purpose, and the trainer's arguments under the names of transformers and TRL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.answers.configuration.job import TrainingJob

    Build = Callable[..., TrainingJob]

TRL = "model_name_or_path: x\ndataset_name: x/y\n"
FACTORY = "model_name_or_path: x\ntemplate: qwen\n"
MERGED = f"{FACTORY}adapter_name_or_path: saves/a\n"
AXOLOTL = "base_model: x\nmicro_batch_size: 2\n"
V1 = "model: x\ntrain_dataset: a.yaml\nmodel_class: llm\n"


@pytest.mark.parametrize(
    ("name", "text", "trainer"),
    [
        ("a.yaml", TRL, "sft"),
        ("a.yaml", f"{TRL}beta: 0.1\nmax_prompt_length: 512\n", "dpo"),
        ("a.yaml", f"{TRL}beta: 0.1\nhub_model_id: my-orpo-model\n", "orpo"),
        ("a.yaml", f"{TRL}num_generations: 8\n", "grpo"),
        ("rloo.yaml", f"{TRL}num_generations: 8\n", "rloo"),
        ("a.yaml", f"{TRL}desirable_weight: 1.0\n", "kto"),
        ("a.yaml", f"{TRL}center_rewards_coefficient: 0.01\n", "reward"),
        ("dpo_qlora.yaml", TRL, "dpo"),
        ("a.yaml", f"{TRL}loss_type: nll\n", "sft"),
        ("a.yaml", f"{FACTORY}stage: pt\ndo_train: true\n", "pretraining"),
        ("a.yaml", f"{FACTORY}stage: rm\ndo_train: true\n", "reward"),
        ("a.yaml", f"{FACTORY}stage: dpo\npref_loss: orpo\ndo_train: true\n", "orpo"),
        ("a.yaml", f"{AXOLOTL}rl: ipo\n", "dpo"),
        ("a.yaml", f"{AXOLOTL}reward_model: true\n", "reward"),
        ("a.yaml", f"{AXOLOTL}pretraining_dataset: x\n", "pretraining"),
        ("a.yaml", f"{V1}pref_beta: 0.1\n", "dpo"),
    ],
)
def test_a_file_names_its_trainer(job_of: Build, name: str, text: str, trainer: str) -> None:
    combined = job_of({name: text})
    assert combined.trainer == trainer
    assert (f"{trainer} training ({name})" in combined.forcing) == (trainer not in ("sft", "pretraining"))


@pytest.mark.parametrize(
    ("text", "purpose", "activity"),
    [
        (f"{FACTORY}stage: sft\ndo_predict: true\neval_dataset: a\n", "predict", "prediction"),
        (f"{MERGED}export_dir: out\nexport_size: 5\n", "merge", "merging"),
        (f"{FACTORY}export_dir: out\n", "export", "export"),
        (f"{FACTORY}export_dir: out\nexport_quantization_bit: 4\n", "quantise", "quantisation"),
        (f"{MERGED}infer_backend: vllm\n", "inference", "inference"),
        (MERGED, "inference", "inference"),
        (f"{FACTORY}do_train: true\ntokenized_path: tokens\n", "preprocess", "preprocessing"),
        (f"{FACTORY}do_eval: true\n", "evaluation", "evaluation"),
        ("model: x\npeft_config:\n  name: lora\n  export_dir: out\n", "merge", "merging"),
        ("output_dir: x\ndo_train: false\ndo_eval: true\n", "evaluation", "evaluation"),
    ],
)
def test_a_file_that_does_not_train_has_a_purpose_and_no_options(
    job_of: Build, text: str, purpose: str, activity: str
) -> None:
    combined = job_of({"a.yaml": text})
    assert (combined.purpose, combined.options) == (purpose, None)
    assert combined.notes == (f"a.yaml is a file for {activity}, not training",)


@pytest.mark.parametrize(
    "text",
    [
        f"{FACTORY}stage: sft\ndo_train: true\ndo_predict: true\n",
        f"{MERGED}stage: sft\ndataset: a\n",
        f"{FACTORY}do_train: true\ntokenized_path: tokens\nlearning_rate: 1.0e-4\n",
        "output_dir: x\ndo_eval: true\n",
    ],
)
def test_a_file_that_also_trains_is_for_training(job_of: Build, text: str) -> None:
    assert job_of({"a.yaml": text}).purpose == ""


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (f"{TRL}evaluation_strategy: no\nsave_steps: '500'\n", {"eval_strategy": "no", "save_steps": 500}),
        (
            f"{TRL}label_smoothing_factor: 0.1\nbf16_full_eval: yes\n",
            {"label_smoothing_factor": 0.1, "bf16_full_eval": True},
        ),
        (f"{TRL}resume_from_checkpoint: /A/b\nload_best_model_at_end: true\n", {"resume_from_checkpoint": "/A/b"}),
        (f"{TRL}f_divergence_type: reverse_kl\n", {"f_divergence_type": "reverse_kl"}),
        (
            f"{FACTORY}cutoff_len: 2048\ndisable_gradient_checkpointing: true\nstage: dpo\npref_beta: 0.1\n",
            {"max_length": 2048, "gradient_checkpointing": False, "beta": 0.1},
        ),
        (
            f"{AXOLOTL}num_epochs: 3\noptimizer: adamw_torch\nbf16: full\nsaves_per_epoch: 2\n",
            {"num_train_epochs": 3, "optim": "adamw_torch", "bf16_full_eval": True, "save_strategy": "steps"},
        ),
        (
            f"{AXOLOTL}val_set_size: 0.1\nevals_per_epoch: 4\nrl: dpo\ndpo_label_smoothing: 0.1\n",
            {"eval_strategy": "steps", "save_strategy": "epoch", "label_smoothing": 0.1},
        ),
        (f"{V1}micro_batch_size: 4\nsave_epochs: 1\n", {"per_device_train_batch_size": 4, "save_strategy": "epoch"}),
    ],
)
def test_arguments_have_the_names_of_transformers_and_trl(job_of: Build, text: str, arguments: dict[str, Any]) -> None:
    found = job_of({"a.yaml": text}).arguments
    assert {name: found.get(name) for name in arguments} == arguments


def test_an_empty_argument_is_not_stated(job_of: Build) -> None:
    assert "resume_from_checkpoint" not in job_of({"a.yaml": f"{TRL}resume_from_checkpoint: null\n"}).arguments
