"""The tiny random models: one spec per architecture with its configuration and the names of its parts.

Dropout is off. The features of an architecture are set so that they affect short sequences: a sliding window of half a
sequence, soft caps that bend scores of ordinary size.
"""

from __future__ import annotations

import fcntl
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.model import disk, experts, shapes, tiny
from cases.space.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


EXPERTS = 4
NEW_ROWS = 8  # tokens that the user adds (embeddings=resized)

TOKENS = {"vocab_size": tiny.VOCABULARY, "bos_token_id": 1, "eos_token_id": tiny.END, "pad_token_id": 0}
LLAMA = {
    "hidden_size": tiny.HIDDEN,
    "intermediate_size": 2 * tiny.HIDDEN,
    "num_hidden_layers": tiny.LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2 * tiny.LENGTH,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
# As in published configurations. "dynamic" acts beyond the trained length, so its config states a shorter one.
ROPE_SCALINGS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "dynamic": {
        "rope_scaling": {"type": "dynamic", "factor": 4.0},
        "max_position_embeddings": tiny.LENGTH // 2,
    },
    "llama3": {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": tiny.LENGTH,
        }
    },
    # The shares by which YaRN slows the eight wavelengths are then 0, 1/4, 1/2, 3/4 and 1.
    "yarn": {
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
        "max_position_embeddings": 2048,
    },
    # As Phi-3 publishes it: a factor for each of eight wavelengths, and the trained length beside them. Rows are longer
    # than it, so the long factors count.
    "longrope": {
        "rope_scaling": {
            "rope_type": "longrope",
            "short_factor": [1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35],
            "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
        },
        "original_max_position_embeddings": tiny.LENGTH // 2,
        "max_position_embeddings": 4 * tiny.LENGTH,
    },
}


@dataclass(frozen=True)
class Spec:
    """One architecture.

    ``model_type`` and ``settings`` are fields of its published config; ``settings`` lacks the tokens. ``named`` are its
    classes in transformers: config and model. ``targets`` are the ends of the names of linear layers that get an
    adapter, ``adapted`` says how many layers these are. Quantisation reaches ``quantised`` layers except those whose
    names end in ``kept``; a count passes over ``uncounted`` ones. ``blocks`` layers of the classes ``block`` are
    what FSDP wraps. ``plain`` is a linear layer of the first block that gets no adapter; modules that end in
    ``feed_forward`` and ``attention`` occur once in each block (in a block with two attentions, the first).

    Weights whose names end in ``small`` start with a quarter of the usual size. ``norms_add_one``: a norm multiplies by
    1 + w.

    ``transposed``: weights are stored as (in, out). ``tied``: as this architecture is published, the head shares the
    embeddings' matrix.
    """

    model_type: str
    named: tuple[str, str]
    settings: Mapping[str, Any]
    block: tuple[str, ...]
    targets: tuple[str, ...] = tiny.TARGETS
    adapted: int = tiny.LAYERS * len(tiny.TARGETS)
    quantised: int = tiny.LAYERS * len(tiny.LINEARS)
    kept: tuple[str, ...] = ("lm_head",)
    uncounted: tuple[str, ...] = ()
    blocks: int = tiny.LAYERS
    plain: str = "model.layers.0.self_attn.k_proj"
    feed_forward: tuple[str, ...] = (".mlp",)
    attention: str = ".self_attn"
    embedding: str = "model.embed_tokens.weight"
    head: str = "lm_head.weight"
    small: tuple[str, ...] = ()
    norms_add_one: bool = False
    transposed: bool = False
    tied: bool = False
    encoder_decoder: bool = False


SPECS: Mapping[str, Spec] = {
    "llama": Spec("llama", ("LlamaConfig", "LlamaForCausalLM"), LLAMA, ("LlamaDecoderLayer",)),
    # Biases on q, k and v.
    "qwen": Spec("qwen2", ("Qwen2Config", "Qwen2ForCausalLM"), LLAMA, ("Qwen2DecoderLayer",)),
    # Norms of each head's queries and keys.
    "qwen3": Spec("qwen3", ("Qwen3Config", "Qwen3ForCausalLM"), {**LLAMA, "head_dim": 16}, ("Qwen3DecoderLayer",)),
    # Soft caps on attention scores and logits, scaled embeddings, norms by 1 + w before and after each part, and a
    # sliding window in every other layer.
    "gemma": Spec(
        "gemma2",
        ("Gemma2Config", "Gemma2ForCausalLM"),
        {
            **LLAMA,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": tiny.LENGTH // 2,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 4.0,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_activation": "gelu_pytorch_tanh",
            "use_cache": True,  # some versions refuse to save its kind of cache with use_cache=False
        },
        ("Gemma2DecoderLayer",),
        norms_add_one=True,
        tied=True,
    ),
    # A sliding window in every layer.
    "mistral": Spec(
        "mistral",
        ("MistralConfig", "MistralForCausalLM"),
        {**LLAMA, "sliding_window": tiny.LENGTH // 2},
        ("MistralDecoderLayer",),
    ),
    # Two of four experts per token. Their weights are linear layers in some versions and stacked in one parameter in
    # others; adapters are put on the attention, as is usual. The router is too small for its quantisation to matter.
    "mixtral": Spec(
        "mixtral",
        ("MixtralConfig", "MixtralForCausalLM"),
        {
            **LLAMA,
            "num_local_experts": EXPERTS,
            "num_experts_per_tok": 2,
            "output_router_logits": False,
            "sliding_window": None,
        },
        ("MixtralDecoderLayer",),
        targets=("q_proj", "v_proj"),
        adapted=tiny.LAYERS * 2,
        quantised=tiny.LAYERS * (4 + 3 * EXPERTS),
        uncounted=("gate",),
        feed_forward=(".mlp", ".block_sparse_moe"),
    ),
    # Conv1D layers, which store weights as (in, out); biases everywhere; learned positions.
    "gpt2": Spec(
        "gpt2",
        ("GPT2Config", "GPT2LMHeadModel"),
        {
            "n_embd": tiny.HIDDEN,
            "n_inner": 2 * tiny.HIDDEN,
            "n_layer": tiny.LAYERS,
            "n_head": 4,
            "n_positions": 2 * tiny.LENGTH,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        },
        ("GPT2Block",),
        targets=("c_attn", "mlp.c_proj"),
        adapted=tiny.LAYERS * 2,
        quantised=tiny.LAYERS * 4,
        plain="transformer.h.0.mlp.c_fc",
        attention=".attn",
        embedding="transformer.wte.weight",
        transposed=True,
        tied=True,
    ),
    # T5 1.1: encoder and decoder, gated feed-forward layers whose last matrix transformers keeps in float32.
    "t5": Spec(
        "t5",
        ("T5Config", "T5ForConditionalGeneration"),
        {
            "d_model": tiny.HIDDEN,
            "d_kv": 16,
            "d_ff": 2 * tiny.HIDDEN,
            "num_layers": tiny.LAYERS,
            "num_decoder_layers": tiny.LAYERS,
            "num_heads": 4,
            "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": tiny.LENGTH,
            "dropout_rate": 0.0,
            "feed_forward_proj": "gated-gelu",
            "layer_norm_epsilon": 1e-6,
            "decoder_start_token_id": 0,
        },
        ("T5Block",),
        targets=("q", "v", "wi_0"),
        adapted=tiny.LAYERS * (3 + 5),
        quantised=tiny.LAYERS * (6 + 10),
        kept=("lm_head", "wo"),
        blocks=2 * tiny.LAYERS,
        plain="encoder.block.0.layer.0.SelfAttention.k",
        feed_forward=(".DenseReluDense",),
        attention=".SelfAttention",
        embedding="shared.weight",
        # T5 does not divide its scores by sqrt(d_kv), so they would saturate; and ten parts in a row, each as large as
        # what it is added to, would multiply rounding.
        small=("Attention.k.weight", "Attention.o.weight", "wo.weight"),
        encoder_decoder=True,
    ),
}


def spec(options: Options) -> Spec:
    return SPECS[options.model]


def is_tied(options: Options) -> bool:
    """Return whether the head shares the embeddings' matrix; a resized model is tied as it was published."""
    return options.embeddings == "tied" or (options.embeddings == "resized" and spec(options).tied)


def vocabulary(options: Options) -> int:
    return tiny.VOCABULARY + (NEW_ROWS if options.embeddings == "resized" else 0)


def settings(options: Options, rows: int) -> dict[str, Any]:
    """The configuration as it is published, in ``config.json``."""
    return {
        "model_type": spec(options).model_type,
        "architectures": [spec(options).named[1]],
        "torch_dtype": "float32",
        **TOKENS,
        "use_cache": False,
        **spec(options).settings,
        **ROPE_SCALINGS[options.rope_scaling],
        "is_encoder_decoder": spec(options).encoder_decoder,
        "vocab_size": rows,
        "tie_word_embeddings": is_tied(options),
    }


def config(options: Options, rows: int) -> Any:
    """The configuration as an object of transformers."""
    import transformers

    fields = {**TOKENS, "use_cache": False, **spec(options).settings, "vocab_size": rows}
    return getattr(transformers, spec(options).named[0])(**fields, tie_word_embeddings=is_tied(options))


def weights(options: Options, rows: int) -> dict[str, Any]:
    """Every tensor of the published checkpoint: float32, with the values that belong to its name."""
    return {name: values(name, shape, options) for name, shape in shapes.shapes(settings(options, rows)).items()}


def values(name: str, shape: tuple[int, ...], options: Options) -> Any:
    """The start values of a parameter, of which rows beyond the first vocabulary are the user's new tokens."""
    import torch

    if spec(options).norms_add_one and "norm" in name:
        return tiny.values(name, shape) - 1
    if name.endswith(spec(options).small):
        return tiny.values(name, shape) / 4
    if name not in (spec(options).embedding, spec(options).head):
        return tiny.values(name, shape)
    if is_tied(options) and not spec(options).encoder_decoder:  # T5 divides what its tied head gets
        name = spec(options).head  # of its size: larger logits than a head's would saturate the loss
    elif name == spec(options).embedding and "embed" not in name:
        name = f"{name} of embeddings"  # this word selects the size in tiny.values
    known = tiny.values(name, (tiny.VOCABULARY, *shape[1:]))
    added = tiny.values(f"{name} of new tokens", (NEW_ROWS, *shape[1:]))
    return torch.cat([known, added])[: shape[0]]


def with_new_rows(name: str, tensor: Any, options: Options) -> Any:
    """A tensor of the published checkpoint with the rows of the user's new tokens, if it has a row per token."""
    if options.embeddings != "resized" or name not in (spec(options).embedding, spec(options).head):
        return tensor
    return values(name, (vocabulary(options), *tensor.shape[1:]), options)


def linear_values(name: str, shape: tuple[int, ...], options: Options) -> Any:
    """The start values of a linear layer's matrix, shape (out, in), however the architecture stores it."""
    name = experts.published_name(name)
    if spec(options).transposed:
        return values(name, shape[::-1], options).T
    return values(name, shape, options)


def checkpoint(options: Options, cache: Path) -> Path:
    """A published checkpoint, which ``from_pretrained`` loads; the first process writes it."""
    scaled = "" if options.rope_scaling == "none" else f"-{options.rope_scaling}"
    name = f"{options.model}{scaled}{'-tied' if is_tied(options) else ''}"
    folder = cache / name
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = cache / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)  # of a process that failed, whose error must not be hidden
            disk.write(unfinished, settings(options, tiny.VOCABULARY), weights(options, tiny.VOCABULARY))
            unfinished.rename(folder)
    return folder


def plain_checkpoint(cache: Path) -> Path:
    """The checkpoint of the default model, as a directory that ``from_pretrained`` loads."""
    return checkpoint(Options(), cache)


def plain_config() -> Any:
    """The configuration of the default model."""
    return config(Options(), tiny.VOCABULARY)


def decoder_layers(model: Any, options: Options) -> list[Any]:
    """The layers that FSDP wraps by default."""
    return [module for module in model.modules() if type(module).__name__ in spec(options).block]


def auto_class(options: Options) -> Any:
    import transformers

    return transformers.AutoModelForSeq2SeqLM if spec(options).encoder_decoder else transformers.AutoModelForCausalLM


def resized(model: Any, options: Options, *, filled: bool) -> Any:
    """Add rows for new tokens, with our values if ``filled``, else with the library's."""
    import torch

    if options.embeddings != "resized":
        return model
    model.resize_token_embeddings(vocabulary(options))
    if filled:
        parts = {
            spec(options).embedding: model.get_input_embeddings(),
            spec(options).head: model.get_output_embeddings(),
        }
        with torch.no_grad():
            for name, part in parts.items():
                part.weight[tiny.VOCABULARY :] = values(name, tuple(part.weight.shape), options)[tiny.VOCABULARY :]
    return model


def adapter_arguments(options: Options) -> dict[str, Any]:
    """The arguments of a PEFT config that depend on the architecture."""
    return {
        "task_type": "SEQ_2_SEQ_LM" if spec(options).encoder_decoder else "CAUSAL_LM",
        "target_modules": list(spec(options).targets),
        **({"fan_in_fan_out": True} if spec(options).transposed else {}),
    }


def is_target(name: str, options: Options) -> bool:
    return ends(name, spec(options).targets)


def ends(name: str, parts: tuple[str, ...]) -> bool:
    """Return whether the last parts of a dotted name equal one of these."""
    return any(f".{name}".endswith(f".{part}") for part in parts)


def inputs(ids: Any, options: Options) -> dict[str, Any]:
    """The arguments of a forward pass for logits; a decoder predicts each id from those before it."""
    if not spec(options).encoder_decoder:
        return {"input_ids": ids}
    return {"input_ids": ids, "decoder_input_ids": shifted(ids)}


def shifted(ids: Any) -> Any:
    """Each row behind the start token (0), without its last."""
    import torch

    return torch.cat([torch.zeros_like(ids[:, :1]), ids[:, :-1]], dim=1)


def matrix(layer: Any) -> Any:
    """A linear layer's weight as (out, in); Conv1D stores (in, out)."""
    return layer.weight.data.T if type(layer).__name__ == "Conv1D" else layer.weight.data
