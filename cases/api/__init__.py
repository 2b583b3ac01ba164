"""Calls of the libraries' APIs in user scripts: APIs that versions removed, renamed or silently changed.

A call is a function that runs a few lines and yields checks. The decorator ``call`` registers it as the case
``api-<name>``. An exception of the libraries is a finding; checks catch what raises nothing. At import, the modules of
this package need only the standard library and ``cases``. ``cases.behaviour`` holds further calls.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check, Phase

    Body = Callable[[Context], Iterator[Check]]

MODULES = (  # below cases, each with its calls
    "api.adapters",
    "api.adapting",
    "api.advice",
    "api.devices",
    "api.fsdp2",
    "api.loading",
    "api.memory",
    "api.merging",
    "api.quantised",
    "api.quantised_training",
    "api.replicating",
    "api.saving",
    "api.sharded",
    "api.sharded_adapters",
    "api.sharded_saving",
    "api.sharding",
    "api.tokenizers",
    "api.trainers",
    "api.trl_trainers",
    "behaviour.accelerating.batch_sizes",
    "behaviour.accelerating.block_maps",
    "behaviour.accelerating.device_maps",
    "behaviour.accelerating.fsdp1_dtypes",
    "behaviour.accelerating.fsdp2_units",
    "behaviour.accelerating.hooks_of_modules",
    "behaviour.accelerating.loaded_parts",
    "behaviour.accelerating.loader_settings",
    "behaviour.accelerating.loops_of_scripts",
    "behaviour.accelerating.nested_tensors",
    "behaviour.accelerating.offloaded_again",
    "behaviour.accelerating.saved_models",
    "behaviour.accelerating.settings",
    "behaviour.accelerating.states",
    "behaviour.accelerating.stream_loaders",
    "behaviour.accelerating.tensors_one_by_one",
    "behaviour.accelerating.tools_of_scripts",
    "behaviour.accelerating.whole_states",
    "behaviour.accelerating.wrapped_models",
    "behaviour.adapters.activated_lora",
    "behaviour.adapters.adapter_combining",
    "behaviour.adapters.adapter_exchange",
    "behaviour.adapters.adapter_loading",
    "behaviour.adapters.adapter_merging",
    "behaviour.adapters.adapter_patterns",
    "behaviour.adapters.adapter_selection",
    "behaviour.adapters.adapter_status",
    "behaviour.adapters.adapters_in_use",
    "behaviour.adapters.after_deletion",
    "behaviour.adapters.methods.adapter_dtypes",
    "behaviour.adapters.methods.budgets",
    "behaviour.adapters.methods.convolutions",
    "behaviour.adapters.methods.drawn_starts",
    "behaviour.adapters.methods.kinds_of_layers",
    "behaviour.adapters.methods.layers_in_use",
    "behaviour.adapters.methods.life_cycle",
    "behaviour.adapters.methods.lora_variants",
    "behaviour.adapters.methods.made_in_place",
    "behaviour.adapters.methods.method_dropout",
    "behaviour.adapters.methods.method_merging",
    "behaviour.adapters.methods.method_settings",
    "behaviour.adapters.methods.numbers",
    "behaviour.adapters.methods.prompt_bases",
    "behaviour.adapters.methods.prompts_in_use",
    "behaviour.adapters.methods.rotation_terms",
    "behaviour.adapters.methods.saved_parts",
    "behaviour.adapters.methods.saved_prompts",
    "behaviour.adapters.methods.targets",
    "behaviour.adapters.methods.truncated_bases",
    "behaviour.adapters.methods.vector_banks",
    "behaviour.adapters.mixed_batches",
    "behaviour.adapters.models_of_scripts",
    "behaviour.adapters.native_adapters",
    "behaviour.adapters.newer_layers",
    "behaviour.adapters.other_saved_modules",
    "behaviour.adapters.other_tuners",
    "behaviour.adapters.refusals",
    "behaviour.adapters.saved_modules",
    "behaviour.adapters.subspaces",
    "behaviour.adapters.tied_adapters",
    "behaviour.adapters.trained_tokens",
    "behaviour.adapters.utilities.base_states",
    "behaviour.adapters.utilities.helpers",
    "behaviour.adapters.utilities.mixed_models",
    "behaviour.adapters.utilities.prompts_of_heads",
    "behaviour.adapters.utilities.rarer_methods",
    "behaviour.adapters.weighted_vectors",
    "behaviour.data.balanced_batches",
    "behaviour.data.chat_templates",
    "behaviour.data.collator_arguments",
    "behaviour.data.collator_kinds",
    "behaviour.data.collators",
    "behaviour.data.combined_masks",
    "behaviour.data.converted_rows",
    "behaviour.data.data_order",
    "behaviour.data.flattening",
    "behaviour.data.packing",
    "behaviour.data.prepared_loaders",
    "behaviour.data.ready_rewards",
    "behaviour.data.repeated_rows",
    "behaviour.data.rows_of_tensors",
    "behaviour.data.worker_randomness",
    "behaviour.distributed.between_passes",
    "behaviour.distributed.buckets_and_buffers",
    "behaviour.distributed.changed_trainability",
    "behaviour.distributed.checkpoint_contents",
    "behaviour.distributed.checkpoint_formats",
    "behaviour.distributed.communication_hooks",
    "behaviour.distributed.flat_changes",
    "behaviour.distributed.flat_edges",
    "behaviour.distributed.flat_layouts",
    "behaviour.distributed.flat_optimiser_state",
    "behaviour.distributed.grouped_modules",
    "behaviour.distributed.groups_of_ranks",
    "behaviour.distributed.replicated_arguments",
    "behaviour.distributed.replicated_edges",
    "behaviour.distributed.state_options",
    "behaviour.distributed.stored_parts",
    "behaviour.distributed.wrap_policies",
    "behaviour.dropout.model_dropout",
    "behaviour.dropout.noise_of_architectures",
    "behaviour.dropout.randomness",
    "behaviour.dropout.recomputed_masks",
    "behaviour.generation.asked_parts",
    "behaviour.generation.beam_searches",
    "behaviour.generation.cached_passes",
    "behaviour.generation.caches_by_configuration",
    "behaviour.generation.changed_caches",
    "behaviour.generation.continuing",
    "behaviour.generation.ending_rules",
    "behaviour.generation.generated_evaluations",
    "behaviour.generation.generated_logits",
    "behaviour.generation.generation",
    "behaviour.generation.given_to_generate",
    "behaviour.generation.images_in_prompts",
    "behaviour.generation.processed_scores",
    "behaviour.generation.processors_alone",
    "behaviour.generation.prompts_and_caches",
    "behaviour.generation.returned_parts",
    "behaviour.generation.scores_together",
    "behaviour.generation.stopping",
    "behaviour.generation.token_sampling",
    "behaviour.low_precision.float8_numbers",
    "behaviour.low_precision.fp8_adapters",
    "behaviour.low_precision.fp8_checkpoints",
    "behaviour.low_precision.fp8_training",
    "behaviour.low_precision.torchao_weights",
    "behaviour.models.attention_functions",
    "behaviour.models.attention_passes",
    "behaviour.models.configurations",
    "behaviour.models.converted_weights",
    "behaviour.models.functions.activations_by_name",
    "behaviour.models.functions.losses_alone",
    "behaviour.models.heads",
    "behaviour.models.heads_in_training",
    "behaviour.models.inputs_of_classes",
    "behaviour.models.loaded_maps",
    "behaviour.models.losses",
    "behaviour.models.masks_by_definition",
    "behaviour.models.model_files",
    "behaviour.models.new_weights",
    "behaviour.models.packed_masks",
    "behaviour.models.resizing",
    "behaviour.models.returned_fields",
    "behaviour.models.rotary_frequencies",
    "behaviour.models.rotary_lengths",
    "behaviour.models.rotary_settings",
    "behaviour.models.switched_models",
    "behaviour.models.tensor_parallel",
    "behaviour.models.whole_outputs",
    "behaviour.models.written_files",
    "behaviour.optimising.adafactor_rates",
    "behaviour.optimising.adafactor_steps",
    "behaviour.optimising.averaged_weights",
    "behaviour.optimising.clipped_gradients",
    "behaviour.optimising.complex_weights",
    "behaviour.optimising.factored_moments",
    "behaviour.optimising.greedy_rates",
    "behaviour.optimising.lora_optimisers",
    "behaviour.optimising.old_states",
    "behaviour.optimising.optimiser_hooks",
    "behaviour.optimising.optimiser_steps",
    "behaviour.optimising.other_optimisers",
    "behaviour.optimising.schedule_edges",
    "behaviour.optimising.schedule_fields",
    "behaviour.optimising.schedule_functions",
    "behaviour.optimising.tensors_together",
    "behaviour.optimising.torch_optimisers",
    "behaviour.optimising.torch_plateaus",
    "behaviour.optimising.torch_schedules",
    "behaviour.parallel.accelerate_clipping",
    "behaviour.parallel.accelerate_fsdp2",
    "behaviour.parallel.accelerate_loops",
    "behaviour.parallel.checkpoint_files",
    "behaviour.parallel.clipping",
    "behaviour.parallel.distributed_sampling",
    "behaviour.parallel.flat_parts",
    "behaviour.parallel.flat_state",
    "behaviour.parallel.flat_strategies",
    "behaviour.parallel.flat_wrappers",
    "behaviour.parallel.frozen_parts",
    "behaviour.parallel.loader_shards",
    "behaviour.parallel.offloading",
    "behaviour.parallel.precision_of_units",
    "behaviour.parallel.processes",
    "behaviour.parallel.replicated_state",
    "behaviour.parallel.replicating",
    "behaviour.parallel.resharding",
    "behaviour.parallel.sharded_parts",
    "behaviour.parallel.skipped_steps",
    "behaviour.parallel.uneven_shards",
    "behaviour.preferences.arguments",
    "behaviour.preferences.auxiliary_losses",
    "behaviour.preferences.continued_adapters",
    "behaviour.preferences.given_data",
    "behaviour.preferences.grpo",
    "behaviour.preferences.grpo_metrics",
    "behaviour.preferences.grpo_rewards",
    "behaviour.preferences.grpo_rollouts",
    "behaviour.preferences.grpo_variants",
    "behaviour.preferences.inputs.adapter_settings",
    "behaviour.preferences.inputs.cards",
    "behaviour.preferences.inputs.evaluations",
    "behaviour.preferences.inputs.handed_on",
    "behaviour.preferences.inputs.loss_settings",
    "behaviour.preferences.inputs.own_code",
    "behaviour.preferences.inputs.padded_rows",
    "behaviour.preferences.inputs.prepared_columns",
    "behaviour.preferences.inputs.row_forms",
    "behaviour.preferences.inputs.statistics",
    "behaviour.preferences.inputs.truncated_rows",
    "behaviour.preferences.kto",
    "behaviour.preferences.logged_metrics",
    "behaviour.preferences.odds_ratios",
    "behaviour.preferences.pair_losses",
    "behaviour.preferences.preference",
    "behaviour.preferences.references",
    "behaviour.preferences.reward",
    "behaviour.preferences.rloo",
    "behaviour.preferences.rollouts.dealt_rows",
    "behaviour.preferences.rollouts.endings",
    "behaviour.preferences.rollouts.generations",
    "behaviour.preferences.rollouts.rloo_settings",
    "behaviour.preferences.rollouts.rows_left_out",
    "behaviour.preferences.rollouts.scored_batches",
    "behaviour.preferences.rollouts.tools",
    "behaviour.preferences.scaled_logits",
    "behaviour.preferences.sft_losses",
    "behaviour.preferences.truncation",
    "behaviour.quantised.adapters_on_layers",
    "behaviour.quantised.blockwise",
    "behaviour.quantised.bounded_updates",
    "behaviour.quantised.disabled_merges",
    "behaviour.quantised.eight_bit_layers",
    "behaviour.quantised.eight_bit_optimisers",
    "behaviour.quantised.eight_bit_states",
    "behaviour.quantised.embeddings",
    "behaviour.quantised.four_bit_inference",
    "behaviour.quantised.four_bit_layers",
    "behaviour.quantised.layer_arguments",
    "behaviour.quantised.mixed_targets",
    "behaviour.quantised.moved_layers",
    "behaviour.quantised.names_left_out",
    "behaviour.quantised.optimiser_arguments",
    "behaviour.quantised.optimiser_settings",
    "behaviour.quantised.prepared_bases",
    "behaviour.quantised.quantised_files",
    "behaviour.quantised.states_by_hand",
    "behaviour.settings.accelerator_settings",
    "behaviour.settings.callback_lists",
    "behaviour.settings.command_line",
    "behaviour.settings.fresh_models",
    "behaviour.settings.grouped_setters",
    "behaviour.settings.handed_to_torch",
    "behaviour.settings.texts_of_rows",
    "behaviour.settings.trl_settings",
    "behaviour.starts.component_starts",
    "behaviour.starts.converted_methods",
    "behaviour.starts.converted_starts",
    "behaviour.starts.covariance_starts",
    "behaviour.starts.decomposed_starts",
    "behaviour.starts.empty_memory",
    "behaviour.starts.equal_inputs",
    "behaviour.starts.gradient_starts",
    "behaviour.starts.incremental_components",
    "behaviour.starts.initial_values",
    "behaviour.starts.loftq_starts",
    "behaviour.starts.other_starts",
    "behaviour.starts.prompt_starts",
    "behaviour.starts.start_distributions",
    "behaviour.trainers.accumulating",
    "behaviour.trainers.array_helpers",
    "behaviour.trainers.control_flags",
    "behaviour.trainers.encoder_decoders",
    "behaviour.trainers.eval_settings",
    "behaviour.trainers.evaluating_alone",
    "behaviour.trainers.evaluation",
    "behaviour.trainers.decayed_parts",
    "behaviour.trainers.derived_settings",
    "behaviour.trainers.events",
    "behaviour.trainers.loss_windows",
    "behaviour.trainers.optimiser_groups",
    "behaviour.trainers.optimiser_settings",
    "behaviour.trainers.optimisers",
    "behaviour.trainers.plain_modules",
    "behaviour.trainers.resuming",
    "behaviour.trainers.sampling",
    "behaviour.trainers.sampling_settings",
    "behaviour.trainers.scaled_losses",
    "behaviour.trainers.schedules",
    "behaviour.trainers.stops_and_resumes",
    "behaviour.trainers.token_means",
    "behaviour.trainers.trainer_logs",
)


@dataclass(frozen=True)
class Call:
    """``group`` is the heading in a report, ``requires`` names requirements of ``cases.probes``."""

    name: str
    body: Body
    group: str
    why: str
    phase: Phase
    ranks: int
    requires: tuple[str, ...]

    @property
    def room(self) -> str:
        """The package below ``cases`` that defines the call: ``api`` or ``behaviour``."""
        return self.body.__module__.split(".")[1]


CALLS: dict[str, Call] = {}


def call(group: str, *, phase: Phase, ranks: int = 1, requires: tuple[str, ...] = ()) -> Callable[[Body], Body]:
    """Register a function as a call; the first line of its docstring says what a user learns from it."""

    def register(body: Body) -> Body:
        if body.__name__ in CALLS:
            raise ValueError(f"two calls are named {body.__name__}")
        why = (body.__doc__ or "").strip().splitlines()[0].rstrip(".")
        CALLS[body.__name__] = Call(body.__name__, body, group, why, phase, ranks, requires)
        return body

    return register


def run(ctx: Context) -> None:
    """Run the call that a case names, and report its checks."""
    importlib.import_module(f"cases.{module_of(ctx.options.call)}")
    chosen = CALLS[ctx.options.call]
    ctx.reporter.phase(chosen.phase)
    ctx.reporter.checks(list(chosen.body(ctx)))


def module_of(name: str) -> str:
    """The name of the module that defines a call. Searches the text, so that a rank imports no other calls."""
    defined = f"\ndef {name}("
    return next(module for module in MODULES if defined in path(module).read_text(encoding="utf-8"))


def path(module: str) -> Path:
    return Path(__file__).parents[1].joinpath(*module.split(".")).with_suffix(".py")


def requirements(name: str) -> tuple[str, ...]:
    """The names of the requirements of a call; none if no call has this name."""
    return CALLS[name].requires if name in CALLS else ()


def load() -> dict[str, Call]:
    """Every call by name."""
    for module in MODULES:
        importlib.import_module(f"cases.{module}")
    return CALLS
