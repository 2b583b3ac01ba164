"""Prompt tuning, P-tuning and prefix tuning: what the virtual tokens are, where they stand, and what saving leaves.

Prompt tuning (https://arxiv.org/abs/2104.08691) and P-tuning (https://arxiv.org/abs/2103.10385) put embeddings before
those of the input; P-tuning computes them by an encoder. Prefix tuning (https://arxiv.org/abs/2101.00190) puts keys
and values before those of each layer.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import NEAR
from cases.model import tiny
from cases.reference import models as references
from cases.reference import twin
from cases.reference.network import Batch, Network
from cases.reference.tolerance import relative, worst_tensor
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

PROMPTING = "Prompts in use"
VIRTUAL, WIDTH = 5, 24  # virtual tokens; the width of an encoder
RATE, STEP = 0.5, 1e-4
NEW = 4  # generated tokens
PADDING = 3


@dataclass(frozen=True)
class Prompt:
    """A kind of prompt: PEFT's configuration and its arguments."""

    config: str
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_prefix(self) -> bool:
        return self.config == "PrefixTuningConfig"

    def made(self, task_type: str = "CAUSAL_LM") -> Any:
        import peft

        return getattr(peft, self.config)(task_type=task_type, num_virtual_tokens=VIRTUAL, **self.more)


ENCODER = {"encoder_hidden_size": WIDTH}
KINDS = {
    "prompt": Prompt("PromptTuningConfig"),
    "mlp": Prompt("PromptEncoderConfig", {"encoder_reparameterization_type": "MLP", **ENCODER}),
    "lstm": Prompt(
        "PromptEncoderConfig", {"encoder_reparameterization_type": "LSTM", "encoder_dropout": 0.0, **ENCODER}
    ),
    "prefix": Prompt("PrefixTuningConfig"),
    "projection": Prompt("PrefixTuningConfig", {"prefix_projection": True, **ENCODER}),
}


def prompted(ctx: Context, kind: Prompt, *names: str) -> Any:
    """The base with prompts of these names, the first of them active; their weights have the values of their names."""
    import peft
    import torch

    names = names or ("first",)
    made = peft.get_peft_model(reference.loaded(ctx), kind.made(), adapter_name=names[0])
    for name in names[1:]:
        made.add_adapter(name, kind.made())
    made.set_adapter(names[0])
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.startswith("prompt_encoder."):
                parameter.copy_(4 * tiny.values(name, tuple(parameter.shape)))
    return made.eval()


def encoded(encoder: Any, kind: Prompt) -> Any:
    """The virtual tokens of an encoder in float64, as the papers define them: (virtual, width)."""
    table = encoder.embedding.weight
    if kind.more.get("prefix_projection"):
        first, _, second = encoder.transform
        return (table @ first.weight.T + first.bias).tanh() @ second.weight.T + second.bias
    if kind.config != "PromptEncoderConfig":
        return table
    if hasattr(encoder, "lstm_head"):
        table = encoder.lstm_head(table[None])[0][0]
    layers = [layer for layer in encoder.mlp_head if hasattr(layer, "weight")]
    for place, layer in enumerate(layers):
        table = table @ layer.weight.T + layer.bias
        table = table.clamp_min(0) if place + 1 < len(layers) else table
    return table


def in_double(model: Any, name: str = "first") -> Any:
    """A copy of the encoder of a prompt in float64, on the CPU."""
    return copy.deepcopy(model.prompt_encoder[name]).double().cpu()


def expected(base: reference.Base, kind: Prompt, tokens: Any, ids: Any) -> Any:
    """The logits of unpadded ids behind virtual tokens."""
    network = Network(base.config, dict(base.tensors), base.transposed)
    if not kind.is_prefix:
        return references.logits(network, Batch(ids=ids, embeddings=tokens.expand(len(ids), -1, -1)))
    layers, groups = base.config["num_hidden_layers"], base.config["num_key_value_heads"]
    stacked = tokens.unflatten(1, (2 * layers, groups, -1)).permute(1, 2, 0, 3)
    pairs = stacked[:, None].expand(-1, len(ids), -1, -1, -1)
    prefix = [(pairs[2 * number], pairs[2 * number + 1]) for number in range(layers)]
    return references.logits(network, Batch(ids=ids, prefix=prefix))


def of(base: reference.Base, model: Any, kind: Prompt, name: str = "first", ids: Any = None) -> Any:
    """The expected logits of a model's prompt."""
    tokens = encoded(in_double(model, name), kind).detach()
    return expected(base, kind, tokens, tiny.batch(0) if ids is None else ids)


def off(name: str, found: Any, wanted: Any) -> Check:
    """Compare the last logits: some kinds return those of virtual tokens too, and the reference as well."""
    length = min(found.shape[1], wanted.shape[1])
    return at_most(name, relative(found[:, -length:], wanted[:, -length:]), 2 * NEAR)


@call(PROMPTING, phase=Phase.FORWARD)
def prompt_by_kind(ctx: Context) -> Iterator[Check]:
    """Every kind of prompt computes the logits of its virtual tokens, of the active prompt, and none while disabled."""
    base = reference.read(ctx)
    for key, kind in KINDS.items():
        model = prompted(ctx, kind, "first", "second")
        for name in ("second", "first"):
            model.set_adapter(name)
            for training in (True, False):
                yield off(f"logits of {key} off", reference.logits(model.train(training)), of(base, model, kind, name))
        yield at_least(f"what {key} does", relative(reference.logits(model)[:, -tiny.LENGTH :], base.logits()), 0.01)
        with model.disable_adapter():
            yield off(f"logits of {key} off the base", reference.logits(model), base.logits())
        yield off(f"logits of {key} off", reference.logits(model), of(base, model, kind))


@call(PROMPTING, phase=Phase.BACKWARD)
def train_prompt_by_kind(ctx: Context) -> Iterator[Check]:
    """The loss of every kind of prompt counts the labels of real tokens alone, and a step trains all of its weights."""
    import torch

    base, ids = reference.read(ctx), tiny.batch(0)
    labels = ids.clone()
    labels[0, :5] = -100
    for key, kind in KINDS.items():
        model = prompted(ctx, kind).train()
        encoder = in_double(model).requires_grad_()
        logits = expected(base, kind, encoded(encoder, kind), ids)
        wanted = twin.cross_entropy(logits, labels[:, 1:] if kind.is_prefix else labels)
        wanted.backward()
        found = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss
        found.backward()
        yield at_most(f"loss of {key} off", abs(float(found) / float(wanted) - 1), 2 * NEAR)
        gradients = {name: p.grad.double() for name, p in model.prompt_encoder["first"].named_parameters()}
        exact = {name: parameter.grad for name, parameter in encoder.named_parameters()}
        yield at_most(f"gradients of {key} off", worst_tensor(gradients, exact), STEP)
        beside = [name for name, p in model.named_parameters() if p.requires_grad and "prompt_encoder" not in name]
        yield equal(f"trained beside {key}", " ".join(beside) or "none", "none")


@call(PROMPTING, phase=Phase.FORWARD)
def padded_prompt_by_kind(ctx: Context) -> Iterator[Check]:
    """Padding behind a text does not change the logits of the text, with every kind of prompt."""
    import torch

    base, short = reference.read(ctx), tiny.LENGTH - PADDING
    ids, mask = tiny.batch(0).clone(), torch.ones_like(tiny.batch(0))
    ids[1, short:], mask[1, short:] = tiny.PADDING, 0
    for key, kind in KINDS.items():
        model = prompted(ctx, kind)
        found = reference.logits(model, input_ids=ids, attention_mask=mask)[1:2]
        wanted = of(base, model, kind, ids=ids[1:2, :short])
        found, wanted = found[:, -tiny.LENGTH : -PADDING], wanted[:, -short:]
        yield at_most(f"logits of {key} off", relative(found, wanted), 2 * NEAR)


def written(model: Any, ids: Any, mask: Any, *, use_cache: bool = True) -> Any:
    """Tokens that a model generates greedily: (rows, new tokens)."""
    more = {
        "do_sample": False,
        "max_new_tokens": NEW,
        "min_new_tokens": NEW,
        "pad_token_id": tiny.PADDING,
        "use_cache": use_cache,
    }
    return model.generate(input_ids=ids, attention_mask=mask, **more)[:, -NEW:].cpu()


def regret(base: reference.Base, model: Any, kind: Prompt, prompts: list[Any], tokens: Any) -> float:
    """By how much tokens behind a prompt miss the most probable ones."""
    return missed(lambda text: of(base, model, kind, ids=text), prompts, tokens)


def missed(logits_of: Callable[[Any], Any], prompts: list[Any], tokens: Any) -> float:
    """How much smaller the logit of a token is than the largest, relative to the spread: 0 for greedy decoding."""
    import torch

    largest = 0.0
    for prompt, row in zip(prompts, tokens, strict=True):
        text = torch.cat([prompt, row])[None]
        logits = logits_of(text)[0, -NEW - 1 : -1].clone()
        logits[:, tiny.END] = -torch.inf
        spread = logits[logits.isfinite()].std()
        chosen = logits.gather(1, row[:, None])[:, 0]
        largest = max(largest, float(((logits.amax(1) - chosen) / spread).max()))
    return largest


@call(PROMPTING, phase=Phase.INFER)
def generate_by_kind(ctx: Context) -> Iterator[Check]:
    """A text behind every kind of prompt is continued by its most probable tokens."""
    import torch

    base, ids = reference.read(ctx), tiny.prompt()[:2]
    for key, kind in KINDS.items():
        model = prompted(ctx, kind)
        tokens = written(model, ids, torch.ones_like(ids))
        yield at_most(f"regret of {key}", regret(base, model, kind, [*ids], tokens), 1e-3)


@call(PROMPTING, phase=Phase.INFER)
def generate_without_cache(ctx: Context) -> Iterator[Check]:
    """A text behind virtual embeddings is continued by its most probable tokens without a cache too."""
    import torch

    base, ids = reference.read(ctx), tiny.prompt()[:2]
    for key in ("prompt", "mlp", "lstm"):
        kind = KINDS[key]
        model = prompted(ctx, kind)
        tokens = written(model, ids, torch.ones_like(ids), use_cache=False)
        yield at_most(f"regret of {key}", regret(base, model, kind, [*ids], tokens), 1e-3)


@call(PROMPTING, phase=Phase.INFER)
def generate_after_disabling(ctx: Context) -> Iterator[Check]:
    """Within disable_adapter, the base continues a text; afterwards, every kind of prompt is before the text again."""
    import torch

    base, ids = reference.read(ctx), tiny.prompt()[:2]
    for key, kind in KINDS.items():
        model = prompted(ctx, kind)
        with model.disable_adapter():
            tokens = written(model, ids, torch.ones_like(ids))
        yield at_most(f"regret of the base, {key}", missed(lambda text: base.logits(ids=text), [*ids], tokens), 1e-3)
        tokens = written(model, ids, torch.ones_like(ids))
        yield at_most(f"regret of {key}", regret(base, model, kind, [*ids], tokens), 1e-3)


def generated_padded(ctx: Context, *keys: str) -> Iterator[Check]:
    """Compare the tokens of two texts, one of them padded on the left, with the most probable ones of each alone."""
    import torch

    base, ids = reference.read(ctx), tiny.prompt()[:2].clone()
    mask = torch.ones_like(ids)
    ids[1, :PADDING], mask[1, :PADDING] = tiny.PADDING, 0
    for key in keys:
        kind = KINDS[key]
        model = prompted(ctx, kind)
        tokens = written(model, ids, mask)
        yield at_most(f"regret of {key}", regret(base, model, kind, [ids[0], ids[1, PADDING:]], tokens), 1e-3)


@call(PROMPTING, phase=Phase.INFER)
def generate_padded_behind_prefix(ctx: Context) -> Iterator[Check]:
    """A text that is padded on the left gets the tokens that it gets alone, with prefix tuning."""
    yield from generated_padded(ctx, "prefix", "projection")


@call(PROMPTING, phase=Phase.INFER)
def generate_padded_behind_prompt(ctx: Context) -> Iterator[Check]:
    """A text that is padded on the left gets the tokens that it gets alone, with prompt tuning and P-tuning.

    The padding is between the virtual tokens and the text, and must not count as a distance. PEFT warns that it ignores
    positions.
    """
    yield from generated_padded(ctx, "prompt", "mlp", "lstm")
