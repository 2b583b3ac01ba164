"""Dropout inside models: attention weights, residuals and embeddings of Llama, GPT-2 and T5, and NEFTune's noise.

Weights are chosen so that the inputs of some layer show a mask: queries and keys of zero give uniform attention, and
values that are unit vectors give the attention weights themselves as output.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.dropout import masks
from cases.behaviour.dropout.randomness import GROUP
from cases.model import architectures, tiny
from cases.space.options import GLOBAL_BATCH, Options
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

LENGTH, ROWS = 32, 48  # positions, each a unit vector of a head; rows of a batch
ATTENTION, RESIDUAL, EMBEDDING = 0.1, 0.25, 0.4
ZERO = 1e-6  # what rounding leaves; kept elements are larger


def positions(width: int) -> Any:
    """Embeddings whose heads of ``LENGTH`` dimensions hold the unit vector of the position."""
    import torch

    return torch.eye(LENGTH).repeat(1, width // LENGTH).expand(ROWS, LENGTH, width).clone()


def inputs_of(module: Any) -> list[Any]:
    """The first inputs of each call of a module from now on."""
    seen: list[Any] = []
    module.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    return seen


def outputs_of(module: Any) -> list[Any]:
    seen: list[Any] = []
    module.register_forward_hook(lambda _, __, out: seen.append((out if hasattr(out, "detach") else out[0]).detach()))
    return seen


def attention(found: Any, rate: float, *, causal: bool = True, name: str = "attention") -> Iterator[Check]:
    """Compare attention weights with dropout of uniform ones; ``found``: (rows, positions, heads * positions)."""
    import torch

    allowed = torch.ones(LENGTH, LENGTH).tril() if causal else torch.ones(LENGTH, LENGTH)
    expected = allowed / allowed.sum(1, keepdim=True)
    weights = found.reshape(ROWS, LENGTH, -1, LENGTH).transpose(1, 2).reshape(-1, LENGTH, LENGTH)
    shown = weights[:, allowed.bool()]
    yield from masks.dropped(torch.where(shown.abs() < ZERO, 0.0, shown), expected[allowed.bool()], rate, name)
    if causal:
        yield equal(f"{name} to later positions", int((weights[:, ~allowed.bool()].abs() > ZERO).sum()), 0)


@call(GROUP, phase=Phase.FORWARD)
def attention_dropout_eager(ctx: Context) -> Iterator[Check]:
    """attention_dropout drops attention weights of Llama in training with attn_implementation=eager.

    https://huggingface.co/docs/transformers/model_doc/llama#transformers.LlamaConfig
    """
    yield from of_llama(ctx, "eager")


@call(GROUP, phase=Phase.FORWARD)
def attention_dropout_sdpa(ctx: Context) -> Iterator[Check]:
    """attention_dropout drops attention weights of Llama in training with attn_implementation=sdpa."""
    yield from of_llama(ctx, "sdpa")


def of_llama(_ctx: Context, implementation: str) -> Iterator[Check]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    width = 2 * LENGTH
    shape = {**architectures.LLAMA, "num_attention_heads": 2, "hidden_size": width, "num_hidden_layers": 1}
    config = LlamaConfig(**shape, **architectures.TOKENS, attention_dropout=RESIDUAL)
    config._attn_implementation = implementation  # noqa: SLF001 - as from_pretrained sets it
    model = LlamaForCausalLM(config)
    layer = model.model.layers[0]
    scale = math.sqrt(2 / width + config.rms_norm_eps)  # of the normalised unit vectors, one in each head
    with torch.no_grad():
        layer.input_layernorm.weight.fill_(scale)
        layer.self_attn.q_proj.weight.zero_()
        layer.self_attn.v_proj.weight.copy_(torch.eye(width))
    seen = inputs_of(layer.self_attn.o_proj)
    torch.manual_seed(6)
    with torch.no_grad():
        model.train()(inputs_embeds=positions(width))
        model.eval()(inputs_embeds=positions(width))
    yield from attention(seen[0], RESIDUAL)
    yield from attention(seen[1], 0.0, name="attention in evaluation")


@call(GROUP, phase=Phase.FORWARD)
def gpt2_dropout_eager(ctx: Context) -> Iterator[Check]:
    """attn_pdrop, resid_pdrop and embd_pdrop of GPT-2 each act at their place, with attn_implementation=eager.

    https://huggingface.co/docs/transformers/model_doc/gpt2#transformers.GPT2Config
    """
    yield from of_gpt2(ctx, "eager")


@call(GROUP, phase=Phase.FORWARD, requires=("sdpa_gpt2",))
def gpt2_dropout_sdpa(ctx: Context) -> Iterator[Check]:
    """attn_pdrop, resid_pdrop and embd_pdrop of GPT-2 each act at their place, with attn_implementation=sdpa."""
    yield from of_gpt2(ctx, "sdpa")


def of_gpt2(_ctx: Context, implementation: str) -> Iterator[Check]:
    """In the first pass the masks are at work; the second, in evaluation, shows what they act on."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    width = 2 * LENGTH
    rates = {"attn_pdrop": ATTENTION, "resid_pdrop": RESIDUAL, "embd_pdrop": EMBEDDING}
    config = GPT2Config(n_embd=width, n_layer=1, n_head=2, n_positions=LENGTH, vocab_size=tiny.VOCABULARY, **rates)
    config._attn_implementation = implementation  # noqa: SLF001 - as from_pretrained sets it
    model = GPT2LMHeadModel(config)
    block = model.transformer.h[0]
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.zero_()
        block.attn.c_attn.bias[2 * width :] = 1.0  # values of one: the outputs are the sums of dropped weights
        block.attn.c_proj.bias.fill_(2.0)
        block.mlp.c_proj.bias.fill_(3.0)
        model.transformer.wte.weight.fill_(4.0)
        model.transformer.wpe.weight.fill_(1.0)
    embedded, weighed = inputs_of(block.ln_1), inputs_of(block.attn.c_proj)
    attended, fed = outputs_of(block.attn), outputs_of(block.mlp)
    ids = torch.full((ROWS, LENGTH), 5)
    torch.manual_seed(7)
    with torch.no_grad():
        model.train()(input_ids=ids)
        model.eval()(input_ids=ids)
    for name, seen, rate, value in (
        ("embeddings", embedded, EMBEDDING, 5.0),
        ("attention's output", attended, RESIDUAL, 2.0),
        ("feed-forward's output", fed, RESIDUAL, 3.0),
    ):
        for mode, place, expected in (("", 0, rate), (" in evaluation", 1, 0.0)):
            found = seen[place].reshape(-1, width)
            yield from masks.dropped(found, torch.full_like(found, value), expected, f"{name}{mode}")
    yield from sums(weighed[0], ATTENTION, torch.arange(1, LENGTH + 1))
    yield at_most("attention in evaluation off", float((weighed[1] - 1).abs().max()), masks.SAME)


def sums(found: Any, rate: float, seen: Any) -> Iterator[Check]:
    """Compare sums of dropped uniform weights with k / n / (1 - rate), of which k of n are kept.

    ``seen`` is n, the number of positions that each position attends to. All dimensions of a head share a mask.
    """
    heads = found.reshape(ROWS, LENGTH, 2, LENGTH).double()
    spread = float((heads - heads[..., :1]).abs().max())
    yield at_most("difference of two dimensions of a head", spread, masks.SAME)
    counts = heads[..., 0] * (1 - rate) * seen.reshape(1, LENGTH, 1)
    yield at_most("number of kept weights off a whole one", float((counts - counts.round()).abs().max()), 1e-3)
    weights = counts.shape[0] * counts.shape[2] * int(seen.sum())
    yield at_most("share of attention dropped off", abs(1 - float(counts.sum()) / weights - rate), masks.bound(weights))


@call(GROUP, phase=Phase.FORWARD)
def t5_dropout(_ctx: Context) -> Iterator[Check]:
    """dropout_rate of T5 acts on embeddings, attention weights, both sublayers and the end of its stacks.

    https://huggingface.co/docs/transformers/model_doc/t5#transformers.T5Config; as in the paper, "dropout is applied
    within the feed-forward network, on the skip connection, on the attention weights, and at the input and output of
    the entire stack": https://arxiv.org/abs/1910.10683, section 2.1
    """
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    width = 2 * LENGTH
    shape = {"d_model": width, "d_kv": LENGTH, "num_heads": 2, "d_ff": 96, "num_layers": 1, "num_decoder_layers": 1}
    model = T5ForConditionalGeneration(
        T5Config(vocab_size=tiny.VOCABULARY, dropout_rate=RESIDUAL, decoder_start_token_id=0, **shape)
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(0.0 if any(mark in name for mark in (".q.", ".k.", "relative")) else 0.05)
    ids = torch.full((ROWS, LENGTH), 5)
    torch.manual_seed(8)
    for stack in (model.encoder, model.decoder):
        first = stack.block[0].layer[0]
        seen = {
            "embeddings": inputs_of(first),
            "hidden units": inputs_of(stack.block[0].layer[-1].DenseReluDense.wo),
            "last states": outputs_of(stack),
        }
        before, after = inputs_of(first.layer_norm), outputs_of(first)
        first.SelfAttention.register_forward_pre_hook(lambda _, args: (torch.ones_like(args[0]), *args[1:]))
        weighed = inputs_of(first.SelfAttention.o)
        with torch.no_grad():
            for mode in (True, False):
                model.train(mode)(input_ids=ids, decoder_input_ids=ids)
        name = "encoder" if stack is model.encoder else "decoder"
        seen["attention's output"] = [one - other for one, other in zip(after, before, strict=True)]
        parts = 1 + len(stack.block[0].layer)  # an element also ends as zero if all terms of its sum were dropped
        ends = 1 - (1 - RESIDUAL) * (1 - RESIDUAL**parts)
        for place, tensors in seen.items():
            yield from zeros(tensors, ends if place == "last states" else RESIDUAL, f"{place} of the {name}")
        others = torch.full((LENGTH,), LENGTH) if name == "encoder" else torch.arange(1, LENGTH + 1)
        yield from sums(weighed[0] / weighed[1], RESIDUAL, others)


def zeros(tensors: list[Any], rate: float, name: str) -> Iterator[Check]:
    """Compare the share of zeros in training, and in evaluation, where there are none."""
    for tensor, expected, mode in zip(tensors, (rate, 0.0), ("", " in evaluation"), strict=False):
        gone = (tensor.abs() < ZERO).double()
        yield at_most(
            f"share dropped off in {name}{mode}", abs(float(gone.mean()) - expected), masks.bound(gone.numel())
        )
    yield equal(f"passes seen in {name}", len(tensors), 2)


@call(GROUP, phase=Phase.FORWARD)
def neftune_in_training_only(ctx: Context) -> Iterator[Check]:
    """neftune_noise_alpha adds uniform noise up to alpha / sqrt(length * width) in training, none in evaluation.

    https://arxiv.org/abs/2310.05914, algorithm 1
    """
    import torch
    from transformers import Trainer, TrainingArguments

    alpha, model = 5.0, ingredients.base(ctx)
    strategy = "eval_strategy" if hasattr(TrainingArguments, "eval_strategy") else "evaluation_strategy"
    table = model.get_input_embeddings().weight.detach().clone()
    seen: dict[bool, list[float]] = {True: [], False: []}

    def note(layer: Any, args: Any, kwargs: Any) -> None:
        states = args[0] if args else kwargs["hidden_states"]
        noise = states.detach() - table[batches[-1]]
        seen[layer.training].extend(noise.flatten().tolist())

    batches: list[Any] = []
    model.register_forward_pre_hook(
        lambda _, args, named: batches.append((*args, named.get("input_ids"))[0]), with_kwargs=True
    )
    model.model.layers[0].register_forward_pre_hook(note, with_kwargs=True)
    for parameter in model.get_input_embeddings().parameters():
        parameter.requires_grad_(requires_grad=False)
    chosen = {"neftune_noise_alpha": alpha, strategy: "steps", "eval_steps": 1, "learning_rate": 0.0}
    rows = ingredients.rows(2)
    trainer = Trainer(
        model=model, args=ingredients.arguments(ctx, **chosen), train_dataset=rows, eval_dataset=rows[:GLOBAL_BATCH]
    )
    trainer.train()
    bound = alpha / math.sqrt(tiny.LENGTH * tiny.HIDDEN)
    noise = torch.tensor(seen[True])
    yield at_least("noise, in units of its bound", float(noise.abs().max()) / bound, 0.99)
    yield at_most("noise, in units of its bound", float(noise.abs().max()) / bound, 1 + 1e-4)
    below = float((noise.abs() < bound / 2).double().mean())
    yield at_most("share of noise below half its bound off", abs(below - 0.5), masks.bound(noise.numel()))
    yield at_most(
        "share of positive noise off", abs(float((noise > 0).double().mean()) - 0.5), masks.bound(noise.numel())
    )
    yield at_least("elements evaluated", len(seen[False]), 1)
    yield equal("noise in evaluation", max(map(abs, seen[False]), default=-1.0), 0.0)
    seen[True].clear()
    model.train()(input_ids=rows[0]["input_ids"][None])
    yield equal("noise after the training", max(map(abs, seen[True])), 0.0)


@call(GROUP, phase=Phase.FORWARD)
def router_jitter(ctx: Context) -> Iterator[Check]:
    """Mixtral's router_jitter_noise changes outputs in training only; in evaluation they are those without noise."""
    import torch
    from transformers import AutoModelForCausalLM

    folder = architectures.checkpoint(Options().but(flow="load", method="full", model="mixtral"), ctx.cache)
    ids, found = tiny.batch(0).to(ctx.place.device), {}
    for noise in (0.0, 0.1, 0.5):
        model = AutoModelForCausalLM.from_pretrained(folder, router_jitter_noise=noise).to(ctx.place.device)
        for mode in (True, False):
            torch.manual_seed(3)
            with torch.no_grad():
                found[noise, mode] = model.train(mode)(input_ids=ids).logits
    for noise in (0.1, 0.5):
        yield equal(
            f"logits that noise {noise} changes in evaluation", int((found[noise, False] != found[0.0, False]).sum()), 0
        )
        yield equal(f"noise {noise} acts in training", bool((found[noise, True] != found[0.0, True]).any()), bound=True)
