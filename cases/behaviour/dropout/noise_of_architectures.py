"""Attention dropout of each decoder, and the noise of Mixtral's router, against the same passes without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models.building import Variant
from cases.behaviour.models.returned_fields import known
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context

GROUP = "Dropout"
RATE, NOISE = 0.4, 0.3
ROWS, LENGTH = 3, 12
SURE = 5.0  # standard errors
SAME = 1e-5  # of attention weights in float32


def ids() -> Any:
    import torch

    return torch.randint(3, tiny.VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))


def loaded(folder: Path, implementation: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation=implementation)


@call(GROUP, phase=Phase.FORWARD)
def attention_dropout_of_decoders(ctx: Context) -> Iterator[Check]:
    """attention_dropout drops attention weights of each decoder in training and scales those it keeps, by the seed.

    In evaluation, nothing is dropped. With SDPA, outputs show it.
    """
    import torch

    for model in filter(known, ("llama", "qwen", "qwen3", "mistral", "mixtral")):
        folder = Variant(model, {"attention_dropout": RATE}).written(ctx, "dropout")
        eager = loaded(folder, "eager")
        with torch.no_grad():
            whole = eager.eval()(ids(), output_attentions=True).attentions[0]
            torch.manual_seed(3)
            dropped = eager.train()(ids(), output_attentions=True).attentions[0]
        seen = whole > 0
        count = int(seen.sum())
        share = float((dropped[seen] == 0).float().mean())
        error = (RATE * (1 - RATE) / count) ** 0.5
        yield at_most(f"share of dropped weights off, {model}", abs(share - RATE), SURE * error)
        kept = seen & (dropped != 0)
        off = float((dropped[kept] * (1 - RATE) - whole[kept]).abs().max())
        yield at_most(f"kept weights off, {model}", off, SAME)
        for implementation in ("eager", "sdpa"):
            made = loaded(folder, implementation)
            found = {}
            for name, seed, training in (("one", 1, True), ("again", 1, True), ("other", 2, True), ("plain", 1, False)):
                torch.manual_seed(seed)
                with torch.no_grad():
                    found[name] = made.train(training)(ids()).logits
            title = f"{model}, {implementation}"
            yield equal(f"the same seed, {title}", torch.equal(found["one"], found["again"]), bound=True)
            yield equal(f"another seed, {title}", torch.equal(found["one"], found["other"]), bound=False)
            yield equal(f"evaluation, {title}", torch.equal(found["one"], found["plain"]), bound=False)


@call(GROUP, phase=Phase.FORWARD, requires=("model_mixtral",))
def router_noise_of_mixtral(ctx: Context) -> Iterator[Check]:
    """router_jitter_noise multiplies what a block of Mixtral reads in training by numbers within the noise around 1."""
    import torch
    from transformers import AutoConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    folder = Variant("mixtral", {"router_jitter_noise": NOISE}).written(ctx, "noise")
    config = AutoConfig.from_pretrained(folder)
    config._experts_implementation = "eager"  # noqa: SLF001 - a block alone has no model that chooses it
    block = MixtralSparseMoeBlock(config)
    with torch.no_grad():
        for number, each in enumerate(block.parameters()):
            each.copy_(tiny.values(f"weight {number}", tuple(each.shape)))
    states = tiny.values("states", (2, 5, config.hidden_size)) + 1.0
    for training in (True, False):
        torch.manual_seed(7)
        factors = torch.empty_like(states).uniform_(1 - NOISE, 1 + NOISE) if training else torch.ones_like(states)
        with torch.no_grad():
            wanted = block.eval()((states * factors).clone())
            torch.manual_seed(7)
            given = states.clone()
            found = block.train(training)(given)
        one, other = (each[0] if isinstance(each, tuple) else each for each in (found, wanted))
        yield at_most(f"outputs off, training={training}", float((one - other).abs().max()), SAME)
        yield equal(
            f"inputs within the noise, training={training}", bool((given / states - 1).abs().max() <= NOISE), bound=True
        )
