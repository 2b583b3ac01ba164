"""The weights of a model that is made from a configuration, by the distributions that its paper or code states."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models.building import Variant
from cases.model import experts
from cases.reference.tolerance import worst
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "New models"
RANGE, FACTOR = 0.5, 2.0
SURE = 6.0  # standard errors
LABELS = 20


def made(ctx: Context, model: str, **changes: Any) -> tuple[dict[str, Any], Any]:
    """The parameters of a new model by their published names, and its configuration."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    config = AutoConfig.from_pretrained(Variant(model, changes).written(ctx, "new"))
    torch.manual_seed(0)
    found = (AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM).from_config(config)
    tensors = experts.published({name: each.detach() for name, each in found.named_parameters()})
    return tensors, config


def compared(
    model: str, tensors: Mapping[str, Any], deviation: Callable[[str], float | None], norm: float = 1.0
) -> Iterator[Check]:
    """Compare each matrix with its standard deviation, biases with zero, and vectors of norms with their number."""
    errors, fixed, matrices = [], [], 0
    for name, tensor in tensors.items():
        wanted = deviation(name)
        if wanted is None:
            value = 0.0 if name.endswith("bias") else norm
            fixed += [] if bool((tensor == value).all()) else [name]
            continue
        matrices += 1
        drawn = tensor[tensor.abs().sum(-1) > 0]  # the row of a padding token may be zero
        errors.append(abs(float(drawn.std()) / wanted - 1) * math.sqrt(2 * drawn.numel()) / SURE)
        errors.append(abs(float(drawn.mean())) / wanted * math.sqrt(drawn.numel()) / SURE)
        fixed += [] if len(drawn) >= len(tensor) - 1 else [name]
    yield at_most(f"distance from its distribution, {model}", worst(errors), 1.0)
    yield equal(f"tensors with other numbers, {model}", "+".join(fixed) or "none", "none")
    yield at_least(f"matrices, {model}", matrices, 6)
    drawn = [tuple(each.flatten()[:4].tolist()) for name, each in tensors.items() if deviation(name) is not None]
    yield equal(f"matrices that begin alike, {model}", len(drawn) - len(set(drawn)), 0)


@call(GROUP, phase=Phase.LOAD)
def new_llama(ctx: Context) -> Iterator[Check]:
    """initializer_range is the standard deviation of all new matrices of Llama; biases are zero, norms one.

    https://huggingface.co/docs/transformers/model_doc/llama#transformers.LlamaConfig
    """
    tensors, _ = made(ctx, "llama", initializer_range=RANGE, attention_bias=True, mlp_bias=True)
    yield from compared("llama", tensors, lambda name: None if "norm" in name or name.endswith("bias") else RANGE)


@call(GROUP, phase=Phase.LOAD, requires=("dtypes_of_configurations",))
def new_models_in_their_dtype(ctx: Context) -> Iterator[Check]:
    """A model that is made from a configuration has the dtype that it states, also by the auto class."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = Variant("llama").written(ctx, "dtypes")
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        config = AutoConfig.from_pretrained(folder)
        config.dtype = dtype
        made = AutoModelForCausalLM.from_config(config)
        yield equal(f"dtypes, {dtype}", str({each.dtype for each in made.parameters()}), str({dtype}))
        yield equal(f"dtype of its configuration, {dtype}", str(made.config.dtype), str(dtype))


@call(GROUP, phase=Phase.LOAD, requires=("model_qwen",))
def new_qwen2(ctx: Context) -> Iterator[Check]:
    """As new_llama, with Qwen 2."""
    tensors, _ = made(ctx, "qwen", initializer_range=RANGE)
    yield from compared("qwen", tensors, lambda name: None if "norm" in name or name.endswith("bias") else RANGE)


@call(GROUP, phase=Phase.LOAD, requires=("model_mixtral",))
def new_mixtral(ctx: Context) -> Iterator[Check]:
    """As new_llama, with the experts and the router of Mixtral."""
    tensors, _ = made(ctx, "mixtral", initializer_range=RANGE)
    yield from compared("mixtral", tensors, lambda name: None if "norm" in name else RANGE)


@call(GROUP, phase=Phase.LOAD)
def new_gpt2(ctx: Context) -> Iterator[Check]:
    """New matrices of GPT-2 that end in the residual stream have initializer_range over the root of their number.

    "We scale the weights of residual layers at initialization by a factor of 1/√N where N is the number of residual
    layers" (Radford et al., 2019, section 2.3): two in each block.
    """
    tensors, config = made(ctx, "gpt2", initializer_range=RANGE)

    def deviation(name: str) -> float | None:
        if ".ln_" in name or name.endswith("bias"):
            return None
        return RANGE / math.sqrt(2 * config.n_layer) if name.endswith("c_proj.weight") else RANGE

    yield from compared("gpt2", tensors, deviation)


@call(GROUP, phase=Phase.LOAD)
def new_t5(ctx: Context) -> Iterator[Check]:
    """New norms of T5 have initializer_factor, matrices this over the root of their inputs, queries of their width too.

    As in Mesh TensorFlow, since T5 does not scale attention scores: https://arxiv.org/abs/1910.10683, section 2.1.
    """
    yield from made_t5(ctx, initializer_factor=FACTOR, feed_forward_proj="relu")


@call(GROUP, phase=Phase.LOAD)
def new_gated_t5(ctx: Context) -> Iterator[Check]:
    """As new_t5, with the gated activation of T5 1.1 and FLAN-T5, whose two inner matrices start alike."""
    yield from made_t5(ctx, initializer_factor=FACTOR, feed_forward_proj="gated-gelu")


@call(GROUP, phase=Phase.LOAD)
def new_token_classifiers_t5(ctx: Context) -> Iterator[Check]:
    """A new classifier of tokens on T5 has initializer_factor as its deviation around zero, and no bias."""
    import torch
    from transformers import AutoConfig, T5ForTokenClassification

    folder = Variant("t5", {"initializer_factor": FACTOR}).written(ctx, "tokens")
    torch.manual_seed(0)
    found = T5ForTokenClassification(AutoConfig.from_pretrained(folder, num_labels=LABELS)).classifier
    drawn = found.weight.detach()
    errors = (float(drawn.mean()) / FACTOR, (float(drawn.std()) / FACTOR - 1) * math.sqrt(2))
    yield at_most("distance from its distribution, classifier", max(map(abs, errors)) * drawn.numel() ** 0.5, SURE)
    yield equal("biases other than zero, classifier", int((found.bias != 0).sum()), 0)


def made_t5(ctx: Context, **changes: Any) -> Iterator[Check]:
    tensors, config = made(ctx, "t5", **changes)
    hidden, width, heads, inner = config.d_model, config.d_kv, config.num_heads, config.d_ff

    def deviation(name: str) -> float | None:
        part = name.split(".")[-2]
        inputs = {"q": hidden * width, "k": hidden, "v": hidden, "o": heads * width, "wo": inner}
        if "layer_norm" in name:
            return None
        if part in ("shared", "lm_head", "embed_tokens"):
            return FACTOR
        return FACTOR / math.sqrt(inputs.get(part, hidden))

    few = {name for name in tensors if "relative_attention_bias" in name}  # a bias for each bucket and head
    yield equal("tables of relative positions", len(few), 2)
    yield from compared("t5", tensors, deviation, norm=FACTOR)
