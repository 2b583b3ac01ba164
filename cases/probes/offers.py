"""Offers of transformers and PEFT that only some versions have: masks, caches, optimisers and helpers."""

from __future__ import annotations

from cases.probes.data import Offer

MASKS, CACHES = "transformers.masking_utils", "transformers.cache_utils"
# By the name of the requirement: the offer, and the start of the sentence that explains a skip.
OFFERS = {
    "masks_of_embeddings": (
        Offer(MASKS, "create_causal_mask", "allow_is_causal_skip"),
        "this transformers makes masks from other arguments",
    ),
    "recorded_windows": (
        Offer(CACHES, "DynamicSlidingWindowLayer.activate_past_recording"),
        "this transformers crops no full windows",
    ),
    "base_states": (
        Offer("peft.utils.save_and_load", "set_base_model_state_dict"),
        "this peft takes no state of the base by its own names",
    ),
    "kappa_targets": (Offer("peft.helpers", "KappaTuneSelector"), "this peft chooses no targets by condition numbers"),
    "cast_mixed_precision": (
        Offer("peft.utils.other", "cast_mixed_precision_params"),
        "this peft has no cast_mixed_precision_params",
    ),
    "intruders": (Offer("peft.tuners.lora.intruders", "reduce_intruder_dimension"), "this peft reduces no intruders"),
    "loss_functions": (
        Offer("transformers.loss.loss_utils", "ForCausalLMLoss", "shift_labels"),
        "this transformers has no loss functions of shifted labels",
    ),
    "greedy_schedule": (Offer("transformers.optimization", "get_greedy_schedule"), "this transformers has no GreedyLR"),
    "set_attention": (
        Offer("transformers", "PreTrainedModel.set_attn_implementation"),
        "this transformers sets no attention of a model that is made",
    ),
    "activation_checkpointing": (
        Offer("transformers", "PreTrainedModel.activation_checkpointing_enable", "every_n_layers"),
        "this transformers checkpoints all layers",
    ),
    "balanced_batches": (
        Offer("transformers.trainer_pt_utils", "BatchRebalanceSampler"),
        "this transformers balances no batches by cost",
    ),
    "converted_weights": (
        Offer("transformers.core_model_loading", "Chunk", "num_shards_attribute"),
        "this transformers converts weights in other ways",
    ),
    "whole_words": (
        Offer("transformers", "DataCollatorForLanguageModeling", "whole_word_mask"),
        "this transformers has a collator of its own for whole words",
    ),
    "multiple_choice": (
        Offer("transformers", "DataCollatorForMultipleChoice"),
        "this transformers has no collator of choices",
    ),
    "lorafa": (Offer("peft.optimizers", "create_lorafa_optimizer"), "this peft has no LoRA-FA"),
    "riemannian": (
        Offer("peft.optimizers", "create_riemannian_optimizer"),
        "this peft has no Riemannian preconditioning",
    ),
}
