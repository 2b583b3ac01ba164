"""Probes of TRL's trainers: the trainers and options that a version offers, and their requirements."""

from __future__ import annotations

import importlib.util
import inspect
from functools import partial
from typing import TYPE_CHECKING

from cases.behaviour.preferences import alignment
from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cases.space.place import Place


def option(_place: Place, _cache: Path, *, kind: str, name: str) -> None:
    if name not in alignment.options_of(kind):
        raise LackingError(f"{kind}Config has no {name}")


def trainer(_place: Place, _cache: Path, *, kind: str) -> None:
    alignment.named(f"{kind}Trainer")


def loss_type(_place: Place, _cache: Path, *, kind: str, name: str) -> None:
    if not alignment.source_mentions(kind, f'"{name}"'):
        raise LackingError(f"{kind}Trainer knows no loss_type {name}")


def metric_logged(_place: Place, _cache: Path, *, kind: str, name: str) -> None:
    if not alignment.source_mentions(kind, f'"{name}"'):
        raise LackingError(f"{kind}Trainer logs no {name}")


def mentioned(_place: Place, _cache: Path, *, kind: str, words: str) -> None:
    if not alignment.source_mentions(kind, words):
        raise LackingError(f"the code of {kind}Trainer does not contain {words}")


def weighted_likelihood(place: Place, cache: Path) -> None:
    """The first version with rpo_alpha weights the preference loss instead, as the first version of the paper."""
    option(place, cache, kind="DPO", name="rpo_alpha")
    if not alignment.source_mentions("DPO", "nll_loss"):
        raise LackingError("rpo_alpha weights the preference loss")


def truncated_sequences(_place: Place, _cache: Path) -> None:
    """Earlier versions document truncation_mode for prompts only."""
    if "sequence exceeds" not in (alignment.constructor("DPO").__doc__ or ""):
        raise LackingError("truncation_mode is not about whole sequences")


def packed_attention(_place: Place, _cache: Path) -> None:
    """Versions that mask packed documents for every attention; TRL documents that others need FlashAttention."""
    from transformers import masking_utils

    if not hasattr(masking_utils, "find_packed_sequence_indices"):
        raise LackingError("transformers finds no packed documents")


def smoothed_labels(_place: Place, _cache: Path) -> None:
    """Versions with one function for all losses smooth the sigmoid's labels; later ones document that they do not."""
    if not hasattr(alignment.named("DPOTrainer"), "dpo_loss"):
        raise LackingError("label_smoothing belongs to other losses")


def tokenised_rows(_place: Place, _cache: Path) -> None:
    """Early versions tokenise a column of texts that the user names, and refuse other data."""
    if alignment.source_mentions("SFT", "didn't pass a `dataset_text_field`"):
        raise LackingError("SFTTrainer tokenises every data set")


def reward_functions(_place: Place, _cache: Path) -> None:
    """Early versions of RLOOTrainer take a reward model and have another configuration."""
    option(_place, _cache, kind="RLOO", name="num_iterations")


def copied_adapter(_place: Place, _cache: Path) -> None:
    """Earlier versions document that the reference is the model without its adapter."""
    if not alignment.source_mentions("DPO", '"ref"') or "ref_adapter_name" in alignment.options_of("DPO"):
        raise LackingError("DPOTrainer compares with the model without its adapter")


def repeat_sampler(_place: Place, _cache: Path) -> None:
    from trl.trainer.utils import RepeatSampler

    assert RepeatSampler  # noqa: S101 - the import is the probe


def helper(_place: Place, _cache: Path, *, name: str) -> None:
    from trl.trainer import utils

    if not hasattr(utils, name):
        raise LackingError(f"trl.trainer.utils has no {name}")


def printed_completions(_place: Place, _cache: Path) -> None:
    """Earlier versions print the value of one reward; the table needs the package rich."""
    from trl.trainer import utils

    wanted = {"rewards", "advantages", "step"}
    made = getattr(utils, "print_prompt_completions_sample", None)
    if made is None or not wanted <= set(inspect.signature(made).parameters):
        raise LackingError("no table with a column for each reward, and with advantages")
    if importlib.util.find_spec("rich") is None:
        raise LackingError("rich is not installed")


def constructor_argument(_place: Place, _cache: Path, *, kind: str, name: str) -> None:
    if name not in inspect.signature(alignment.named(f"{kind}Trainer").__init__).parameters:
        raise LackingError(f"{kind}Trainer has no {name}")


def model_and_model_init(place: Place, cache: Path) -> None:
    """Later versions of the Trainer take either a model or model_init, and TRL's trainers need a model."""
    from transformers import Trainer

    constructor_argument(place, cache, kind="CPO", name="model_init")
    if "but not both" in inspect.getsource(Trainer.__init__):
        raise LackingError("the Trainer takes a model or model_init, not both")


def made_reward_models(place: Place, cache: Path) -> None:
    """Later versions change the model that they are given, and need one."""
    constructor_argument(place, cache, kind="Reward", name="model_init")
    if alignment.source_mentions("Reward", "disable_dropout_in_model(model)"):
        raise LackingError("RewardTrainer changes a given model")


def whole_sequences(_place: Place, _cache: Path) -> None:
    """Earlier versions cut prompts and completions apart."""
    if "max_prompt_length" in alignment.options_of("KTO"):
        raise LackingError("KTOTrainer cuts prompts and completions apart")


def processed_rows(_place: Place, _cache: Path) -> None:
    if not alignment.source_mentions("KTO", "def _process_tokens("):
        raise LackingError("KTOTrainer has no function of rows")


def filtered_rewards(_place: Place, _cache: Path) -> None:
    if not alignment.source_mentions("Reward", "max_length = 512"):
        raise LackingError("RewardTrainer has no length of its own")


# By the name of the requirement: the probe, and the beginning of the sentence of the skip.
REQUIRED: Mapping[str, tuple[Callable[[Place, Path], None], str]] = {
    "dpo_rpo_alpha": (weighted_likelihood, "this trl weights no likelihood by rpo_alpha"),
    "dpo_truncated_sequences": (truncated_sequences, "this trl truncates prompts and completions apart"),
    "packed_attention": (packed_attention, "packed documents need FlashAttention in this transformers"),
    "dpo_copied_adapter": (copied_adapter, "this trl takes the model without adapters as reference"),
    "sft_tokenised": (tokenised_rows, "this trl takes no tokenised rows"),
    "repeat_sampler": (repeat_sampler, "this trl repeats prompts in another way"),
    "printed_completions": (printed_completions, "this trl prints no table of completions with several rewards"),
    "grpo": (partial(trainer, kind="GRPO"), "this trl has no GRPOTrainer"),
    "orpo": (partial(trainer, kind="ORPO"), "this trl has no ORPOTrainer"),
    "cpo": (partial(trainer, kind="CPO"), "this trl has no CPOTrainer"),
    "running_moments": (partial(helper, name="RunningMoments"), "this trl has no RunningMoments beside its trainers"),
    "begun_pairs": (partial(helper, name="add_bos_token_if_needed"), "this trl adds no start tokens to pairs"),
    "kto_processed_rows": (processed_rows, "this trl prepares rows of KTO in another way"),
    "reward_max_length_filter": (filtered_rewards, "this RewardTrainer leaves no pairs out by default"),
    "exponent_caps": (partial(helper, name="cap_exp"), "this trl has no cap_exp"),
    "reward_model_init": (made_reward_models, "this RewardTrainer needs a model"),
    "cpo_model_init": (model_and_model_init, "trainers of this stack take either a model or model_init"),
    "kto_rows_of_max_length": (whole_sequences, "this KTOTrainer cuts prompts and completions apart"),
    "rloo": (reward_functions, "RLOOTrainer of this trl takes no reward functions"),
    **{
        f"{kind.lower()}_{name}": (partial(loss_type, kind=kind, name=name), f"this trl has no {name} loss")
        for kind, name in (
            ("DPO", "robust"),
            ("DPO", "discopop"),
            ("DPO", "sigmoid_norm"),
            ("DPO", "forward_kl"),
            ("GRPO", "dapo"),
            ("GRPO", "batch"),
            ("GRPO", "cispo"),
            ("GRPO", "sapo"),
            ("GRPO", "luspo"),
            ("GRPO", "vespo"),
            ("SFT", "dft"),
        )
    },
    **{
        name: (partial(metric_logged, kind=kind, name=metric), f"this trl does not log {metric} of {kind}Trainer")
        for name, kind, metric in (
            ("dpo_entropy", "DPO", "entropy"),
            ("kto_entropy", "KTO", "entropy"),
            ("reward_metrics", "Reward", "mean_reward"),
            ("grpo_metrics", "GRPO", "completions/mean_terminated_length"),
        )
    },
    **{
        name: (partial(mentioned, kind=kind, words=words), because)
        for name, kind, words, because in (
            (
                "grpo_trainer_state",
                "GRPO",
                '"trainer_state"',
                "rewards of this GRPOTrainer do not see the trainer's state",
            ),
            (
                "grpo_tools",
                "GRPO",
                "def _get_tool_suffix_ids",
                "this GRPOTrainer has no tools that it answers by tokens",
            ),
            ("grpo_environment_mask", "GRPO", '"env_mask"', "rollouts of this GRPOTrainer have no environment"),
            ("kto_cast_labels", "KTO", "dtype=torch.bool", "this KTOTrainer takes labels that are true or false alone"),
            ("dpo_images", "DPO", '"images" in dataset_sample', "this DPOTrainer does not look for images"),
            ("rollouts_of_images", "RLOO", 'output["num_images"]', "rows of this RLOOTrainer have one image at most"),
            ("sft_compute_loss_func", "SFT", "compute_loss_func:", "this SFTTrainer takes no compute_loss_func"),
            ("grpo_log_metric", "GRPO", '"log_metric"', "rewards of this GRPOTrainer log no metrics"),
            ("rloo_log_metric", "RLOO", '"log_metric"', "rewards of this RLOOTrainer log no metrics"),
            ("grpo_async_rewards", "GRPO", "asyncio", "this GRPOTrainer awaits no rewards"),
            ("grpo_absent_rewards", "GRPO", "torch.nan", "rewards of this GRPOTrainer are never absent"),
            (
                "grpo_unscored_completions",
                "GRPO",
                "unscorable_mask",
                "this GRPOTrainer counts a completion that no reward judges as one with a reward of 0",
            ),
        )
    },
    "dpo_label_smoothing": (smoothed_labels, "this trl smooths no labels of the sigmoid loss"),
    **{
        f"{kind.lower()}_{name}": (partial(option, kind=kind, name=name), f"this trl has no {name} in {kind}Trainer")
        for kind, name in (
            ("CPO", "alpha"),
            ("KTO", "max_prompt_length"),
            *(
                ("RLOO", name)
                for name in (
                    "pad_to_multiple_of",
                    "num_generations_eval",
                    "steps_per_generation",
                    "shuffle_dataset",
                )
            ),
            ("DPO", "pad_to_multiple_of"),
            ("DPO", "reference_free"),
            ("DPO", "ref_adapter_name"),
            ("DPO", "loss_weights"),
            ("DPO", "use_weighting"),
            ("DPO", "ld_alpha"),
            ("DPO", "precompute_ref_batch_size"),
            ("Reward", "center_rewards_coefficient"),
            ("GRPO", "loss_type"),
            ("GRPO", "num_iterations"),
            ("SFT", "router_aux_loss_coef"),
            ("GRPO", "router_aux_loss_coef"),
            ("GRPO", "epsilon_high"),
            ("GRPO", "use_bias_correction_kl"),
            ("GRPO", "delta"),
            ("GRPO", "mask_truncated_completions"),
            ("GRPO", "importance_sampling_level"),
            ("GRPO", "top_entropy_quantile"),
            ("GRPO", "entropy_coef"),
            ("GRPO", "use_adaptive_entropy"),
            ("GRPO", "generation_kwargs"),
            ("GRPO", "generation_batch_size"),
            ("GRPO", "chat_template_kwargs"),
            ("GRPO", "reward_weights"),
            ("GRPO", "multi_objective_aggregation"),
            ("GRPO", "off_policy_mask_threshold"),
            ("GRPO", "temperature"),
            ("GRPO", "num_generations_eval"),
            ("GRPO", "cast_lm_head_to_fp32"),
            *((kind, "sync_ref_model") for kind in ("DPO", "GRPO", "KTO")),
            ("SFT", "completion_only_loss"),
            ("SFT", "assistant_only_loss"),
            ("SFT", "packing_strategy"),
            ("SFT", "padding_free"),
            ("SFT", "chat_template_path"),
        )
    },
}
