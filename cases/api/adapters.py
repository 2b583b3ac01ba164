"""PEFT in user scripts: adapters that other versions saved, and models with renamed modules."""

from __future__ import annotations

import importlib
import json
import pkgutil
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.api.loading import EXPERTS, SAME, mixtral
from cases.model import architectures, tiny
from cases.space.options import GLOBAL_BATCH
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context

GROUP = "Adapters in a user's script"
# Fields of adapter_config.json in peft 0.19 that peft 0.8 did not have, with neutral values.
LATER_FIELDS = {
    "use_dora": False,
    "layer_replication": None,
    "eva_config": None,
    "corda_config": None,
    "exclude_modules": None,
    "lora_bias": False,
    "trainable_token_indices": None,
    "qalora_group_size": 16,
    "use_qalora": False,
    "target_parameters": None,
    "arrow_config": None,
    "ensure_weight_tying": False,
}


def saved_adapter(ctx: Context, base: Any, **more: Any) -> tuple[Path, Any]:
    """A folder with an adapter, and the logits it gives."""
    from peft import get_peft_model

    model = ingredients.fill_adapter(get_peft_model(base, ingredients.lora(**more)))
    model.save_pretrained(ctx.kept / "adapter")
    return ctx.kept / "adapter", ingredients.logits(model, ctx)


@call(GROUP, phase=Phase.ADAPT)
def lora_trains(ctx: Context) -> Iterator[Check]:
    """get_peft_model and a backward pass give every adapter a gradient."""
    from peft import get_peft_model

    model = ingredients.fill_adapter(get_peft_model(ingredients.base(ctx), ingredients.lora()))
    ids = tiny.batch(0).to(ctx.place.device)
    model(input_ids=ids, labels=ids).loss.backward()
    reached = [
        weight.grad is not None and bool(weight.grad.any()) for weight in model.parameters() if weight.requires_grad
    ]
    yield equal("adapter weights with a gradient", sum(reached), 2 * len(tiny.TARGETS) * tiny.LAYERS)


@call(GROUP, phase=Phase.WRAP)
def peft_fsdp_policy(ctx: Context) -> Iterator[Check]:
    """PEFT's FSDP wrap policy can be made from an adapted model."""
    from peft import get_peft_model
    from peft.utils.other import fsdp_auto_wrap_policy

    policy = fsdp_auto_wrap_policy(get_peft_model(ingredients.base(ctx), ingredients.lora()))
    yield equal("a policy", callable(policy), bound=True)


@call(GROUP, phase=Phase.RELOAD)
def adapter_of_later_peft(ctx: Context) -> Iterator[Check]:
    """An adapter loads if its adapter_config.json has fields of a later peft with neutral values."""
    from peft import PeftModel

    folder, expected = saved_adapter(ctx, ingredients.base(ctx))
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**LATER_FIELDS, **json.loads(path.read_text())}))
    found = ingredients.logits(PeftModel.from_pretrained(ingredients.base(ctx), folder), ctx)
    yield at_most("logits off", ingredients.largest_difference(found, expected), SAME)


@call(GROUP, phase=Phase.RELOAD)
def adapter_by_transformers(ctx: Context) -> Iterator[Check]:
    """model.load_adapter of transformers gives the same logits as PEFT's loading."""
    folder, expected = saved_adapter(ctx, ingredients.base(ctx))
    model = ingredients.base(ctx)
    model.load_adapter(str(folder))
    yield at_most("logits off", ingredients.largest_difference(ingredients.logits(model, ctx), expected), SAME)


def experts(ctx: Context) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(mixtral(ctx)).to(ctx.place.device)


@call(GROUP, phase=Phase.ADAPT)
def lora_on_experts(ctx: Context) -> Iterator[Check]:
    """LoRA on the experts' layers by their earlier names (w1, w2, w3) reaches every expert."""
    from peft import get_peft_model

    model = get_peft_model(experts(ctx), ingredients.lora(target_modules=["q_proj", "v_proj", "w1", "w2", "w3"]))
    trained = sum(weight.numel() for name, weight in model.named_parameters() if "experts" in name and "lora_" in name)
    yield at_least("experts' weights to train", trained, EXPERT_VALUES)


EXPERT_VALUES = tiny.LAYERS * EXPERTS * 3 * tiny.RANK * 3 * tiny.HIDDEN  # r * (in + out) for each of three layers


@call(GROUP, phase=Phase.RELOAD)
def reload_on_experts(ctx: Context) -> Iterator[Check]:
    """A reloaded adapter of a mixture of experts gives the same logits."""
    from peft import PeftModel

    targets = ["q_proj", "v_proj", "w1", "w2", "w3"]
    folder, expected = saved_adapter(ctx, experts(ctx), target_modules=targets)
    found = ingredients.logits(PeftModel.from_pretrained(experts(ctx), folder), ctx)
    yield at_most("logits off", ingredients.largest_difference(found, expected), SAME)


@call(GROUP, phase=Phase.FORWARD)
def prefix_encoder_decoder(ctx: Context) -> Iterator[Check]:
    """Prefix tuning of an encoder-decoder model: every prefix gets a gradient."""
    from peft import PrefixTuningConfig, get_peft_model
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
    base = T5ForConditionalGeneration(T5Config(vocab_size=tiny.VOCABULARY, **sizes)).to(ctx.place.device)
    model = get_peft_model(base, PrefixTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=4))
    ids = tiny.batch(0).to(ctx.place.device)
    model(input_ids=ids, labels=ids).loss.backward()
    reached = [
        weight.grad is not None and bool(weight.grad.any()) for weight in model.parameters() if weight.requires_grad
    ]
    yield at_least("trained weights", len(reached), 1)
    yield equal("without a gradient", reached.count(False), 0)


@call(GROUP, phase=Phase.RELOAD)
def adapter_of_earlier_llava(ctx: Context) -> Iterator[Check]:
    """An adapter of a vision-language model, saved before transformers 4.52 renamed the modules, takes effect."""
    from peft import PeftModel, get_peft_model
    from safetensors.torch import load_file, save_file

    config = ingredients.lora(target_modules=r".*language_model.*\.(q_proj|v_proj)")
    model = ingredients.fill_adapter(get_peft_model(llava(ctx), config))
    expected = image_logits(model, ctx)
    model.save_pretrained(ctx.kept / "adapter")
    path = ctx.kept / "adapter" / "adapter_model.safetensors"
    weights = {earlier_name(name): weight for name, weight in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})
    found = image_logits(PeftModel.from_pretrained(llava(ctx), ctx.kept / "adapter"), ctx)
    yield at_least(
        "what the adapter does", ingredients.largest_difference(expected, image_logits(llava(ctx), ctx)), 100 * SAME
    )
    yield at_most("logits off", ingredients.largest_difference(found, expected), SAME)


def earlier_name(name: str) -> str:
    """The name that transformers before 4.52 used, when the language model was a complete causal model."""
    _, mark, rest = name.partition("layers.")
    return f"base_model.model.language_model.model.{mark}{rest}"


IMAGE = tiny.VOCABULARY  # the token of an image patch; the texts of ``tiny`` have none
PATCHES = 4


def llava(ctx: Context) -> Any:
    import torch
    from transformers import CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration

    small = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    eye = CLIPVisionConfig(**small, image_size=8, patch_size=4)
    text = architectures.plain_config()
    text.vocab_size = IMAGE + 1
    torch.manual_seed(0)
    config = LlavaConfig(vision_config=eye, text_config=text, image_token_index=IMAGE, image_seq_length=PATCHES)
    return LlavaForConditionalGeneration(config).to(ctx.place.device)


def image_logits(model: Any, ctx: Context) -> Any:
    """Logits of a batch whose rows begin with an image."""
    import torch

    ids = torch.cat([torch.full((GLOBAL_BATCH, PATCHES), IMAGE), tiny.batch(0)], dim=1)
    pixels = tiny.values("pixels", (GLOBAL_BATCH, 3, 8, 8))
    with torch.no_grad():
        found = model.eval()(
            input_ids=ids.to(ctx.place.device),
            pixel_values=pixels.to(ctx.place.device),
            attention_mask=torch.ones_like(ids).to(ctx.place.device),
        )
    return found.logits.float().cpu()


@call(GROUP, phase=Phase.IMPORT)
def peft_utilities(ctx: Context) -> Iterator[Check]:
    """Every module of peft.utils can be imported, as projects that patch PEFT do."""
    import peft.utils

    del ctx
    names = [module.name for module in pkgutil.iter_modules(peft.utils.__path__, "peft.utils.")]
    for name in names:
        importlib.import_module(name)
    yield at_least("modules imported", len(names), 1)
