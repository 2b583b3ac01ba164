"""Probes for what transformers and TRL offer to prepare data: collators, packing, chat templates, masks."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from pathlib import Path

    from cases.space.place import Place


@dataclass(frozen=True)
class Offer:
    """A name in a module; ``argument`` is a parameter that it must have, ``words`` are in its documentation."""

    module: str
    name: str
    argument: str = ""
    words: str = ""

    def __call__(self, _place: Place, _cache: Path) -> None:
        found = importlib.import_module(self.module)
        for part in self.name.split("."):
            if not hasattr(found, part):
                raise LackingError(f"{self.module} has no {self.name}")
            found = getattr(found, part)
        if self.argument and self.argument not in inspect.signature(found).parameters:  # type: ignore[arg-type]
            raise LackingError(f"{self.name} has no {self.argument}")
        if self.words and self.words not in (found.__doc__ or ""):
            raise LackingError(f"the documentation of {self.name} does not mention {self.words!r}")


CHAT = ("transformers", "PreTrainedTokenizerBase.apply_chat_template")
# By the name of the requirement: the offer, and the start of the sentence that explains a skip.
OFFERS = {
    "chatml_conversion": (
        Offer("trl.data_utils", "maybe_convert_to_chatml"),
        "this trl converts no other names of roles",
    ),
    "repetition_reward": (Offer("trl.rewards", "get_repetition_penalty_reward"), "this trl has no such reward"),
    "bema": (Offer("trl", "BEMACallback"), "this trl averages no weights"),
    "overlong_reward": (Offer("trl.rewards", "get_soft_overlong_punishment"), "this trl has no such reward"),
    "format_reward": (Offer("trl.rewards", "think_format_reward"), "this trl has no such reward"),
    "padded_to_multiples": (
        Offer("trl.trainer.utils", "pad", "pad_to_multiple_of"),
        "this trl pads to the longest row",
    ),
    "flushed_rows": (Offer("trl.trainer.utils", "flush_left"), "this trl shifts no rows"),
    "selective_log_softmax": (Offer("trl.trainer.utils", "selective_log_softmax"), "this trl has no such function"),
    "entropy_from_logits": (Offer("trl.trainer.utils", "entropy_from_logits"), "this trl has no such function"),
    "row_statistics": (Offer("trl.trainer.utils", "nanstd", "keepdim"), "this trl has no such functions"),
    "filled_memory": (Offer("torch.utils", "deterministic"), "this torch leaves new memory as it is"),
    "norm_in_two_steps": (Offer("torch.nn.utils", "get_total_norm"), "this torch computes and clips norms in one step"),
    "quantised_parameters": (
        Offer("bitsandbytes.nn.parametrize", "replace_parameter_4bit"),
        "this bitsandbytes quantises no parameters of other layers",
    ),
    "quantised_embeddings": (Offer("bitsandbytes.nn", "EmbeddingNF4"), "this bitsandbytes quantises no embeddings"),
    "layers_of_weights": (
        Offer("bitsandbytes.nn", "Params4bit.from_prequantized", "module"),
        "4-bit weights of this bitsandbytes do not know their layer",
    ),
    "states_of_layers": (
        Offer("bitsandbytes.nn.modules", "fix_4bit_weight_quant_state_from_module"),
        "4-bit layers of this bitsandbytes restore no state",
    ),
    "lora_conversion": (Offer("peft", "convert_to_lora"), "this peft converts no adapters to LoRA"),
    "flattening": (Offer("transformers", "DataCollatorWithFlattening"), "this transformers flattens no batches"),
    "adafactor_rates": (
        Offer("transformers.optimization", "AdafactorSchedule"),
        "this transformers has no such schedule",
    ),
    "dealt_rows": (Offer("trl.trainer.utils", "split_tensor_dict"), "this trl has no such function"),
    "shuffled_rows": (Offer("trl.trainer.utils", "shuffle_sequence_dict"), "this trl has no such function"),
    "repeated_streams": (Offer("trl.trainer.utils", "repeat_iterable_dataset"), "this trl repeats no streams"),
    "scores_and_entropies": (
        Offer("trl.trainer.utils", "selective_log_softmax_and_entropy", "row_mask"),
        "this trl computes scores and entropies apart",
    ),
    "safetensors_checkpoints": (
        Offer("torch.distributed.checkpoint", "HuggingFaceStorageWriter", "enable_consolidation"),
        "this torch writes no whole safetensors",
    ),
    "layerwise_casting": (
        Offer("accelerate.big_modeling", "attach_layerwise_casting_hooks"),
        "this accelerate casts no layers",
    ),
    "clean_environment": (
        Offer("accelerate.utils", "purge_accelerate_environment"),
        "this accelerate has no such function",
    ),
    "flattening_begin": (
        Offer("transformers", "DataCollatorWithFlattening", "position_ids_start"),
        "this transformers numbers positions from 0",
    ),
    "flattening_bounds": (
        Offer("transformers", "DataCollatorWithFlattening", "return_flash_attn_kwargs"),
        "this transformers returns no bounds of documents",
    ),
    "flattening_separator": (
        Offer("transformers", "DataCollatorWithFlattening", "separator_id"),
        "this transformers separates documents by -100 alone",
    ),
    "llama_token_classes": (
        Offer("transformers", "LlamaForTokenClassification"),
        "this transformers has no Llama that classifies tokens",
    ),
    "mask_shares": (
        Offer("transformers", "DataCollatorForLanguageModeling", "mask_replace_prob"),
        "this transformers masks words in fixed shares",
    ),
    "mask_seed": (
        Offer("transformers", "DataCollatorForLanguageModeling", "seed"),
        "this transformers masks words by torch's generator alone",
    ),
    "dtypes_of_configurations": (
        Offer("transformers", "PreTrainedModel._from_config", words="the default `dtype`"),
        "this transformers makes new models in torch's default dtype",
    ),
    "merged_processors": (
        Offer("transformers", "GenerationMixin._merge_criteria_processor_list", words="user-defined one"),
        "this transformers refuses processors of a kind that its settings make",
    ),
    "interpolated_positions": (
        Offer("transformers", "ViTModel.forward", "interpolate_pos_encoding"),
        "this transformers takes images of one size",
    ),
    "tensor_parallel": (
        Offer("transformers", "PreTrainedModel.from_pretrained", words="tp_plan"),
        "this transformers divides no models by tensors",
    ),
    "gemma3": (
        Offer("transformers", "Gemma3ForConditionalGeneration"),
        "this transformers has no Gemma 3",
    ),
    "jetmoe": (Offer("transformers", "JetMoeForCausalLM"), "this transformers has no JetMoe"),
    "cohere": (Offer("transformers", "CohereConfig", "logit_scale"), "this transformers has no Cohere"),
    "granite": (Offer("transformers", "GraniteConfig", "logits_scaling"), "this transformers has no Granite"),
    "completion_collator": (
        Offer("trl", "DataCollatorForCompletionOnlyLM"),
        "this trl has no collator that masks prompts",
    ),
    "continue_final_message": (Offer(*CHAT, "continue_final_message"), "this transformers leaves no message open"),
    "assistant_mask": (Offer(*CHAT, "return_assistant_tokens_mask"), "this transformers has no assistant mask"),
    "training_templates": (
        Offer("trl.chat_template_utils", "qwen2_5_chat_template"),
        "this trl knows no template that it marks",
    ),
    "rendered_conversations": (Offer("trl.data_utils", "apply_chat_template", "tools"), "this trl renders no tools"),
    "assistant_only_loss": (Offer("trl", "SFTConfig", "assistant_only_loss"), "this SFTTrainer learns all roles"),
    "completion_only_loss": (Offer("trl", "SFTConfig", "completion_only_loss"), "this SFTTrainer learns prompts too"),
    "sft_max_length": (Offer("trl", "SFTConfig", "max_length"), "this SFTTrainer has no max_length"),
    "truncation_mode": (Offer("trl", "SFTConfig", "truncation_mode"), "this SFTTrainer cuts rows at their end only"),
    "setup_chat_format": (Offer("trl", "setup_chat_format"), "this trl has no setup_chat_format"),
    "packing_strategies": (Offer("trl", "pack_dataset", "strategy"), "this trl has no packing strategies"),
    "packing_split": (Offer("trl", "pack_dataset", words="bfd_split"), "this trl has one best-fit strategy"),
    "packing_truncates": (
        Offer("trl", "pack_dataset", words="discarding overflow"),
        "this trl does not document what it discards",
    ),
    "padding_free": (Offer("trl", "SFTConfig", "padding_free"), "this SFTTrainer always pads"),
    "constant_length": (Offer("trl.trainer", "ConstantLengthDataset"), "this trl has no ConstantLengthDataset"),
}
