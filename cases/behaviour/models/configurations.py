"""Fields of configurations as released models state them: logits, loss and all gradients by the reference.

The fields and their meaning: https://huggingface.co/docs/transformers/model_doc/llama, and so on for each model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models import building
from cases.behaviour.models.building import LAYERS, REMOVED, Variant
from cases.model import tiny
from cases.space.verdict import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Changes = Mapping[str, Mapping[str, Any]]

GROUP = "Configurations"
WINDOW = tiny.LENGTH // 4

ONE_GROUP: Changes = {
    "one head of keys": {"num_key_value_heads": 1},
    "a head of keys per query": {"num_key_value_heads": 4},
}
WIDE: Changes = {"wide heads": {"head_dim": 24}, "narrow heads": {"head_dim": 8}}  # as in Mistral-Nemo and Qwen 3
EPSILON: Changes = {"epsilon of norms": {"rms_norm_eps": 0.25}}
BIASES: Changes = {"biases of attention": {"attention_bias": True}}
ACTIVATIONS: Changes = {name: {"hidden_act": name} for name in ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")}

TIED: Changes = {"tied": {"tie_word_embeddings": True}}
SCALES: Changes = {
    "scores by layer": {"scale_attn_by_inverse_layer_idx": True, "n_layer": LAYERS},
    "scores as they are": {"scale_attn_weights": False},
}


def compared(ctx: Context, model: str, changes: Changes, **arguments: Any) -> Iterator[Check]:
    """Compare a training pass with each change, on rows of which some are padded on the right."""
    for name, each in changes.items():
        tied = each.get("tie_word_embeddings", False)
        folder = Variant(model, each, tied=tied).written(ctx, name)
        network, loaded = building.network(folder), building.loaded(ctx, folder, **arguments)
        yield from building.compared(name, loaded, network, building.rows("padded_right"))


@call(GROUP, phase=Phase.BACKWARD)
def configured_llama(ctx: Context) -> Iterator[Check]:
    """Heads, biases, activations and epsilon of a Llama configuration have the effect on logits and gradients."""
    missing: Changes = {"heads by default": {"num_key_value_heads": REMOVED}}
    biases: Changes = {**BIASES, "biases of the feed-forward layers": {"mlp_bias": True}}
    yield from compared(ctx, "llama", {**ONE_GROUP, **WIDE, **EPSILON, **biases, **ACTIVATIONS, **missing})


@call(GROUP, phase=Phase.BACKWARD, requires=("model_qwen",))
def configured_qwen2(ctx: Context) -> Iterator[Check]:
    """Heads, epsilon, tied embeddings and the activation of a Qwen 2 configuration have their effect."""
    yield from compared(ctx, "qwen", {**ONE_GROUP, **EPSILON, **TIED, "relu": ACTIVATIONS["relu"]})


def windows_of_layers(ctx: Context, model: str) -> Iterator[Check]:
    windows = {"use_sliding_window": True, "sliding_window": WINDOW, "num_hidden_layers": LAYERS}
    patterns: Changes = {
        "windows in the last layer": {**windows, "max_window_layers": 3},
        "windows in all layers": {**windows, "max_window_layers": 0},
        "windows not in use": {**windows, "max_window_layers": 0, "use_sliding_window": False},
    }
    yield from compared(ctx, model, patterns)


@call(GROUP, phase=Phase.BACKWARD, requires=("model_qwen",))
def windows_of_layers_qwen2(ctx: Context) -> Iterator[Check]:
    """The layers of Qwen 2 from max_window_layers on have a sliding window, if use_sliding_window is set.

    transformers 4.47 gives all layers one mask, unless FlashAttention makes it.
    """
    yield from windows_of_layers(ctx, "qwen")


@call(GROUP, phase=Phase.BACKWARD, requires=("model_qwen3",))
def windows_of_layers_qwen3(ctx: Context) -> Iterator[Check]:
    """The layers of Qwen 3 from max_window_layers on have a sliding window, if use_sliding_window is set."""
    yield from windows_of_layers(ctx, "qwen3")


@call(GROUP, phase=Phase.BACKWARD, requires=("model_qwen3",))
def configured_qwen3(ctx: Context) -> Iterator[Check]:
    """Heads, their width, biases, epsilon and tied embeddings of a Qwen 3 configuration have their effect."""
    yield from compared(ctx, "qwen3", {**ONE_GROUP, **WIDE, **EPSILON, **BIASES, **TIED})


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mistral",))
def configured_mistral(ctx: Context) -> Iterator[Check]:
    """Heads, their width, epsilon, tied embeddings and the sliding window of a Mistral configuration have effect."""
    windows: Changes = {
        "no window": {"sliding_window": None},
        "a short window": {"sliding_window": WINDOW},
        "a window of one token": {"sliding_window": 1},
        "a window of all tokens": {"sliding_window": tiny.LENGTH},
    }
    yield from compared(ctx, "mistral", {**ONE_GROUP, **WIDE, **EPSILON, **TIED, **windows})


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mixtral",))
def configured_mixtral(ctx: Context) -> Iterator[Check]:
    """Heads, the number of experts, the activation and the sliding window of a Mixtral configuration have effect."""
    experts: Changes = {
        "one expert per token": {"num_experts_per_tok": 1},
        "all experts": {"num_experts_per_tok": 4},
        "three of six experts": {"num_local_experts": 6, "num_experts_per_tok": 3},
        "a window": {"sliding_window": WINDOW},
        "gelu": ACTIVATIONS["gelu"],
    }
    yield from compared(ctx, "mixtral", {**ONE_GROUP, **WIDE, **EPSILON, **TIED, **experts})


@call(GROUP, phase=Phase.BACKWARD, requires=("model_gemma",))
def configured_gemma2(ctx: Context) -> Iterator[Check]:
    """Heads, scale, caps, biases, activation and windows of a Gemma 2 configuration have their effect."""
    changes: Changes = {
        "another scale": {"query_pre_attn_scalar": 64},
        "no cap of scores": {"attn_logit_softcapping": None},
        "no cap of logits": {"final_logit_softcapping": None},
        "exact gelu": {"hidden_act": "gelu", "hidden_activation": "gelu"},
        "windows in every other of four layers": {"num_hidden_layers": LAYERS, "sliding_window": WINDOW},
    }
    # Eager, as its authors advise: some versions drop the soft cap otherwise.
    every: Changes = {**ONE_GROUP, **WIDE, **EPSILON, **BIASES, **TIED, **changes}
    yield from compared(ctx, "gemma", every, attn_implementation="eager")


@call(GROUP, phase=Phase.BACKWARD)
def configured_gpt2(ctx: Context) -> Iterator[Check]:
    """Heads, inner width, activation and epsilon of a GPT-2 configuration have their effect, tied or not."""
    changes: Changes = {
        "two heads": {"n_head": 2},
        "inner width by default": {"n_inner": None},
        "epsilon of norms": {"layer_norm_epsilon": 0.25},
        **{name: {"activation_function": name} for name in ("relu", "gelu", "silu")},
    }
    yield from compared(ctx, "gpt2", {**changes, **TIED})


@call(GROUP, phase=Phase.BACKWARD)
def scales_of_gpt2(ctx: Context) -> Iterator[Check]:
    """Both scales of GPT-2's attention scores act with the attention that transformers selects.

    In transformers 4.47, SDPA attention of GPT-2 divides by the root of the width whatever they say.

    https://huggingface.co/docs/transformers/model_doc/gpt2#transformers.GPT2Config
    """
    yield from compared(ctx, "gpt2", SCALES)


@call(GROUP, phase=Phase.BACKWARD)
def scales_of_gpt2_eager(ctx: Context) -> Iterator[Check]:
    """Both scales of GPT-2's attention scores act with attn_implementation=eager."""
    yield from compared(ctx, "gpt2", SCALES, attn_implementation="eager")


@call(GROUP, phase=Phase.BACKWARD)
def configured_gpt2_reordered(ctx: Context) -> Iterator[Check]:
    """reorder_and_upcast_attn of GPT-2 changes only the precision of its scores, also with scales by layer."""
    chosen = {"reorder_and_upcast_attn": True, "n_layer": LAYERS}
    changes: Changes = {"reordered": chosen, "reordered, by layer": {**chosen, "scale_attn_by_inverse_layer_idx": True}}
    yield from compared(ctx, "gpt2", changes, attn_implementation="eager")


@call(GROUP, phase=Phase.BACKWARD)
def configured_t5(ctx: Context) -> Iterator[Check]:
    """Feed-forward layers, buckets, widths and depths of a T5 configuration have their effect, tied or not."""
    changes: Changes = {
        "as T5 1.0": {"feed_forward_proj": "relu", "tie_word_embeddings": True},
        "gated silu": {"feed_forward_proj": "gated-silu"},
        "gelu without a gate": {"feed_forward_proj": "gelu"},
        "wide heads": {"d_kv": 24},
        "more buckets": {"relative_attention_num_buckets": 16, "relative_attention_max_distance": 12},
        "a short decoder": {"num_layers": 3, "num_decoder_layers": 1},
        "epsilon of norms": {"layer_norm_epsilon": 0.25},
    }
    yield from compared(ctx, "t5", changes)
