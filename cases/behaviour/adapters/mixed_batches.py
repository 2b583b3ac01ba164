"""Batches whose rows use different adapters: ``adapter_names`` in forward and generate.

Every row must have the logits of a model that has only the row's adapter
(https://huggingface.co/docs/peft/developer_guides/lora, "Inference with different LoRA adapters in the same batch").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import FIRST, NEAR, SECOND, Adapter
from cases.behaviour.generation import decoding
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.reference.tolerance import relative
from cases.space.options import GLOBAL_BATCH
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

MIXING = "Batches of several adapters"
BASE = "__base__"
NAMES = (["first", BASE, "second", "second", "first"] * GLOBAL_BATCH)[:GLOBAL_BATCH]


def rows(by_name: dict[str, Any]) -> Any:
    """A row of each adapter's logits, in the order of ``NAMES``."""
    import torch

    return torch.stack([by_name[name][row] for row, name in enumerate(NAMES)])


def expected(base: reference.Base, updates: dict[str, Any], **batch: Any) -> Any:
    """The logits of every row by the adapter of the row."""
    return rows({name: base.logits(update, **batch) for name, update in ({BASE: {}} | updates).items()})


def mixed(model: Any, **arguments: Any) -> Any:
    return reference.logits(model.eval(), adapter_names=NAMES, **arguments)


@call(MIXING, phase=Phase.FORWARD)
def mixed_batch(ctx: Context) -> Iterator[Check]:
    """Each row of a batch uses its own adapter, or none, and the active adapter stays the same."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND)
    updates = {adapter.name: base.of(adapter) for adapter in (FIRST, SECOND)}
    yield at_most("logits off", relative(mixed(model), expected(base, updates)), NEAR)
    yield at_most("logits off", relative(reference.logits(model), base.logits(updates["first"])), NEAR)


@call(MIXING, phase=Phase.FORWARD)
def mixed_padded_batch(ctx: Context) -> Iterator[Check]:
    """A padded batch of several adapters gives each row the logits of its own adapter."""
    import torch

    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND)
    lengths = torch.arange(GLOBAL_BATCH) % 3 + tiny.LENGTH - 4
    real = torch.arange(tiny.LENGTH) < lengths[:, None]
    ids = torch.where(real, tiny.batch(0), tiny.PADDING)
    found = mixed(model, input_ids=ids, attention_mask=real.long())
    wanted = expected(base, {each.name: base.of(each) for each in (FIRST, SECOND)}, ids=ids, real=real)
    yield at_most("logits of real tokens off", relative(found[real], wanted[real]), NEAR)


@call(MIXING, phase=Phase.FORWARD)
def mixed_embeddings(ctx: Context) -> Iterator[Check]:
    """Each row of a batch uses its own adapter of the embeddings."""
    second = Adapter(name="second", rank=8, alpha=4, targets=("embed_tokens", "v_proj"))
    first = Adapter(name="first", rank=4, alpha=12, targets=("embed_tokens",))
    base, model = reference.read(ctx), reference.adapted(ctx, first, second)
    updates = {adapter.name: base.of(adapter) for adapter in (first, second)}
    yield at_most("logits off", relative(mixed(model), expected(base, updates)), NEAR)


@call(MIXING, phase=Phase.FORWARD)
def mixed_transposed_layers(ctx: Context) -> Iterator[Check]:
    """Each row of a batch uses its own adapter of GPT-2's Conv1D layers."""
    adapters = gpt2_adapters()
    base, model = reference.read(ctx, "gpt2"), reference.adapted(ctx, *adapters, model="gpt2")
    updates = {adapter.name: base.of(adapter) for adapter in adapters}
    yield at_most("logits off", relative(mixed(model), expected(base, updates)), NEAR)


def gpt2_adapters() -> tuple[Adapter, Adapter]:
    more = {"fan_in_fan_out": True}
    return (
        Adapter(name="first", rank=4, alpha=12, targets=("c_attn",), more=more),
        Adapter(name="second", rank=8, alpha=4, targets=("c_attn", "mlp.c_proj"), more=more),
    )


@call(MIXING, phase=Phase.FORWARD, requires=("dora",))
def mixed_dora(ctx: Context) -> Iterator[Check]:
    """A batch with rows of a DoRA adapter is refused, or each row uses its own adapter."""
    import torch

    dora = Adapter(name="first", rank=4, alpha=12, more={"use_dora": True})
    base, model = reference.read(ctx), reference.adapted(ctx, dora, SECOND)
    magnitudes = {}
    with torch.no_grad():
        for name, parameter in tiny.named(model):
            if "lora_magnitude_vector" in name:
                layer = name.partition(".lora_magnitude_vector")[0]
                magnitudes[layer] = 1 + tiny.values(f"magnitude of {layer}", tuple(parameter.shape))
                parameter.copy_(magnitudes[layer])
    updates = {"first": dora_update(base, dora, magnitudes), "second": base.of(SECOND)}
    yield equal("layers with a magnitude", len(magnitudes), len(base.layers(dora.targets)))
    try:
        found = mixed(model)
    except ValueError as error:
        yield equal("the refusal names DoRA", "DoRA" in str(error), bound=True)
        return
    yield at_most("logits off", relative(found, expected(base, updates)), NEAR)


def dora_update(base: reference.Base, adapter: Adapter, magnitudes: dict[str, Any]) -> dict[str, Any]:
    """What DoRA (https://arxiv.org/abs/2402.09353) adds: m (W + s B A) / its row norms - W, magnitudes by layer."""
    added = {}
    for name, update in base.of(adapter).items():
        weight, magnitude = base.tensors[name], magnitudes[name.removesuffix(".weight")].double()
        direction = weight + update
        added[name] = magnitude[:, None] * direction / direction.norm(dim=1, keepdim=True) - weight
    return added


@call(MIXING, phase=Phase.FORWARD, requires=("lora_bias",))
def mixed_biases(ctx: Context) -> Iterator[Check]:
    """Each row of a batch uses the bias of its own adapter, scaled like the rest; fresh biases change nothing."""
    import torch

    plain = adapted_layers.base()
    fresh = adapted_layers.adapted(plain, adapted_layers.lora(lora_bias=True))
    numbers = [each.detach() for name, each in fresh.named_parameters() if name.endswith("lora_B.default.bias")]
    yield equal("biases at the start", len(numbers), len(adapted_layers.TARGETS))
    yield equal("biases that are not zero", sum(int(each.count_nonzero()) for each in numbers), 0)
    yield adapted_layers.unchanged(fresh, plain)
    biased = Adapter(name="first", rank=4, alpha=12, more={"lora_bias": True})
    base, model = reference.read(ctx, "qwen"), reference.adapted(ctx, biased, SECOND, model="qwen")
    update = base.of(biased)
    with torch.no_grad():
        for name, parameter in tiny.named(model):
            if name.endswith(".lora_B.first.bias"):
                parameter.copy_(tiny.values(name, tuple(parameter.shape)))
                layer = name.removesuffix(".lora_B.first.bias")
                update[f"{layer}.bias"] = biased.scaling * parameter.double().cpu()
    yield equal("biases", sum(name.endswith(".bias") for name in update), len(base.layers(biased.targets)))
    yield at_most(
        "logits off", relative(mixed(model), expected(base, {"first": update, "second": base.of(SECOND)})), NEAR
    )


@call(MIXING, phase=Phase.FORWARD)
def mixed_saved_heads(ctx: Context) -> Iterator[Check]:
    """Each row of a batch uses its own adapter's copy of a module in modules_to_save."""
    import torch

    heads = [Adapter(**{**vars(each), "more": {"modules_to_save": ["lm_head"]}}) for each in (FIRST, SECOND)]
    base, model = reference.read(ctx), reference.adapted(ctx, *heads)
    head = base.tensors["lm_head.weight"]
    updates = {adapter.name: base.of(adapter) for adapter in heads}
    with torch.no_grad():
        for name, parameter in tiny.named(model):
            if name in ("lm_head.first.weight", "lm_head.second.weight"):
                parameter.copy_(tiny.values(name, tuple(parameter.shape)))
                updates[name.split(".")[1]]["lm_head.weight"] = parameter.double().cpu() - head
    yield at_most("logits off", relative(mixed(model), expected(base, updates)), NEAR)


@call(MIXING, phase=Phase.INFER)
def mixed_generation(ctx: Context) -> Iterator[Check]:
    """Generation of a batch of several adapters gives each row the tokens of its own adapter."""
    import torch

    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND).eval()
    prompt = tiny.prompt()
    arguments = {
        "max_new_tokens": 2,
        "do_sample": False,
        "use_cache": True,
        "pad_token_id": tiny.PADDING,
        "eos_token_id": None,
    }
    device = next(model.parameters()).device
    found = model.generate(
        input_ids=prompt.to(device), attention_mask=torch.ones_like(prompt).to(device), adapter_names=NAMES, **arguments
    ).cpu()
    text, updates = prompt, {each.name: base.of(each) for each in (FIRST, SECOND)}
    for _ in range(2):
        text = torch.cat([text, expected(base, updates, ids=text)[:, -1:].argmax(-1)], dim=1)
    yield equal("shape", str(tuple(found.shape)), str(tuple(text.shape)))
    yield equal("rows with other tokens", int((found != text).any(1).sum()), 0)


BEAMS = (2, 3)
BEAM_TOKENS = 3
BEAM_NAMES = ["first", BASE, "second", "first"]


@call(MIXING, phase=Phase.INFER)
def mixed_beam_search(ctx: Context) -> Iterator[Check]:
    """Beam search of a batch of several adapters continues every beam of a row with the row's adapter.

    Sums of log-probabilities are compared with a search by its definition, on the model of each row's adapter.
    """
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND).eval()
    updates: dict[str, dict[str, Any]] = {BASE: {}, **{each.name: base.of(each) for each in (FIRST, SECOND)}}
    prompt = tiny.prompt().to(next(model.parameters()).device)
    for beams in BEAMS:
        found = model.generate(
            input_ids=prompt,
            attention_mask=prompt.new_ones(prompt.shape),
            adapter_names=BEAM_NAMES,
            num_beams=beams,
            num_return_sequences=beams,
            length_penalty=0.0,
            do_sample=False,
            max_new_tokens=BEAM_TOKENS,
            pad_token_id=tiny.PADDING,
            eos_token_id=None,
            return_dict_in_generate=True,
            output_scores=True,
        )
        wanted, others = (
            [
                each
                for row, name in zip(prompt.tolist(), names, strict=True)
                for each in searched(base, updates[name], row, beams)
            ]
            for names in (BEAM_NAMES, BEAM_NAMES[::-1])
        )
        scores = found.sequences_scores.tolist()
        yield at_most(f"scores of {beams} beams off", largest_difference(scores, wanted), 1e-4)
        yield at_least(f"scores of {beams} beams off those of other adapters", largest_difference(wanted, others), 0.01)


def searched(base: reference.Base, update: dict[str, Any], row: list[int], beams: int) -> list[float]:
    """The scores of the best continuations of a row, best first."""
    import torch

    def log_probabilities(rows: decoding.Rows) -> list[list[float]]:
        ids = torch.tensor([list(each) for each in rows])
        found: list[list[float]] = base.logits(update, ids=ids)[:, -1].log_softmax(-1).tolist()
        return found

    found = decoding.beam_search(
        log_probabilities,
        row,
        num_beams=beams,
        max_new_tokens=BEAM_TOKENS,
        ends=(),
        length_penalty=0.0,
        early_stopping=False,
    )
    return [each.score for each in found]


def largest_difference(one: list[float], other: list[float]) -> float:
    if len(one) != len(other):
        return float("inf")
    return max(abs(found - wanted) for found, wanted in zip(one, other, strict=True))
