"""The tensors of a published checkpoint, by name, with their shapes: one function per architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Shapes = Iterator[tuple[str, tuple[int, ...]]]


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of a checkpoint; a tied head is not among them."""
    return dict(SHAPES[config["model_type"]](config))


def llama(config: Mapping[str, Any]) -> Shapes:
    for number in range(config["num_hidden_layers"]):
        yield from llama_attention(config, number)
        yield from gated(f"model.layers.{number}.mlp", config)
        yield from norms(config, number, "input_layernorm", "post_attention_layernorm")
    yield from ends(config)


def ends(config: Mapping[str, Any]) -> Shapes:
    """The embeddings, the last norm and the head."""
    rows, hidden = config["vocab_size"], config["hidden_size"]
    yield "model.embed_tokens.weight", (rows, hidden)
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (rows, hidden)


def llama_attention(config: Mapping[str, Any], number: int) -> Shapes:
    name, hidden = f"model.layers.{number}.self_attn", config["hidden_size"]
    width = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries = config["num_attention_heads"] * width
    groups = (config.get("num_key_value_heads") or config["num_attention_heads"]) * width
    for part, size in (("q", queries), ("k", groups), ("v", groups)):
        yield f"{name}.{part}_proj.weight", (size, hidden)
        if config["model_type"] == "qwen2" or config.get("attention_bias"):
            yield f"{name}.{part}_proj.bias", (size,)
    yield f"{name}.o_proj.weight", (hidden, queries)
    if config.get("attention_bias"):
        yield f"{name}.o_proj.bias", (hidden,)
    if config["model_type"] == "qwen3":
        yield f"{name}.q_norm.weight", (width,)
        yield f"{name}.k_norm.weight", (width,)


def gated(name: str, config: Mapping[str, Any]) -> Shapes:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    for part, sizes in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
        yield f"{name}.{part}_proj.weight", sizes
        if config.get("mlp_bias"):
            yield f"{name}.{part}_proj.bias", sizes[:1]


def norms(config: Mapping[str, Any], number: int, *names: str) -> Shapes:
    for name in names:
        yield f"model.layers.{number}.{name}.weight", (config["hidden_size"],)


def gemma2(config: Mapping[str, Any]) -> Shapes:
    yield from llama(config)
    for number in range(config["num_hidden_layers"]):
        yield from norms(config, number, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def mixtral(config: Mapping[str, Any]) -> Shapes:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    for number in range(config["num_hidden_layers"]):
        name = f"model.layers.{number}.block_sparse_moe"
        yield from llama_attention(config, number)
        yield from norms(config, number, "input_layernorm", "post_attention_layernorm")
        yield f"{name}.gate.weight", (config["num_local_experts"], hidden)
        for expert in range(config["num_local_experts"]):
            yield f"{name}.experts.{expert}.w1.weight", (inner, hidden)
            yield f"{name}.experts.{expert}.w2.weight", (hidden, inner)
            yield f"{name}.experts.{expert}.w3.weight", (inner, hidden)
    yield from ends(config)


def gpt2(config: Mapping[str, Any]) -> Shapes:
    hidden, inner = config["n_embd"], config.get("n_inner") or 4 * config["n_embd"]
    yield "transformer.wte.weight", (config["vocab_size"], hidden)
    yield "transformer.wpe.weight", (config["n_positions"], hidden)
    for number in range(config["n_layer"]):
        name = f"transformer.h.{number}"
        for norm in ("ln_1", "ln_2"):
            yield f"{name}.{norm}.weight", (hidden,)
            yield f"{name}.{norm}.bias", (hidden,)
        for part, sizes in (
            ("attn.c_attn", (hidden, 3 * hidden)),
            ("attn.c_proj", (hidden, hidden)),
            ("mlp.c_fc", (hidden, inner)),
            ("mlp.c_proj", (inner, hidden)),
        ):
            yield f"{name}.{part}.weight", sizes
            yield f"{name}.{part}.bias", sizes[1:]
    yield "transformer.ln_f.weight", (hidden,)
    yield "transformer.ln_f.bias", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], hidden)


def t5(config: Mapping[str, Any]) -> Shapes:
    hidden = config["d_model"]
    yield "shared.weight", (config["vocab_size"], hidden)
    for stack, layers, attentions in (
        ("encoder", config["num_layers"], ("SelfAttention",)),
        ("decoder", config["num_decoder_layers"], ("SelfAttention", "EncDecAttention")),
    ):
        table = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield table, (config["relative_attention_num_buckets"], config["num_heads"])
        for number in range(layers):
            yield from t5_block(config, f"{stack}.block.{number}.layer", attentions)
        yield f"{stack}.final_layer_norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], hidden)


def t5_block(config: Mapping[str, Any], name: str, attentions: tuple[str, ...]) -> Shapes:
    hidden, inner, heads = config["d_model"], config["d_ff"], config["num_heads"] * config["d_kv"]
    for place, attention in enumerate(attentions):
        for part in "qkv":
            yield f"{name}.{place}.{attention}.{part}.weight", (heads, hidden)
        yield f"{name}.{place}.{attention}.o.weight", (hidden, heads)
        yield f"{name}.{place}.layer_norm.weight", (hidden,)
    last = f"{name}.{len(attentions)}"
    for part in ("wi_0", "wi_1") if config["feed_forward_proj"].startswith("gated-") else ("wi",):
        yield f"{last}.DenseReluDense.{part}.weight", (inner, hidden)
    yield f"{last}.DenseReluDense.wo.weight", (hidden, inner)
    yield f"{last}.layer_norm.weight", (hidden,)


SHAPES: Mapping[str, Callable[[Mapping[str, Any]], Shapes]] = {
    **dict.fromkeys(("llama", "qwen2", "qwen3", "mistral", "granite"), llama),
    "gemma2": gemma2,
    "mixtral": mixtral,
    "gpt2": gpt2,
    "t5": t5,
}
