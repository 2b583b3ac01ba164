"""Adapters of other methods converted to LoRA: the best approximation of what they add, of a rank or of an energy.

https://huggingface.co/docs/peft/package_reference/lora_conversion
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.adapters.methods import layers
from cases.behaviour.adapters.methods.layers import METHODS
from cases.behaviour.adapters.methods.life_cycle import every
from cases.behaviour.starts import adapted_layers
from cases.behaviour.starts.adapted_layers import PEFT, TARGETS
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.behaviour.adapters.methods.layers import Method
    from cases.space.verdict import Check

GROUP = "Start values computed from the base"
RANK, ENERGY = 5, 0.9
EXACT = ("miss", "miss_mini")  # whose factors need no decomposition, and keep their own rank
PLAIN = ("lora", "dora")  # which are LoRA already
SAME = 1e-4  # relative: a decomposition in float32


def added(model: Any, method: Method) -> dict[str, Any]:
    """What the first adapter adds to each weight, by the formula of its method."""
    plain, wanted = layers.held(adapted_layers.base()), layers.expected(model, method, "first")
    return {name: wanted[name][0] - plain[name][0] for name in TARGETS}


def product(state: dict[str, Any], name: str) -> Any:
    a, b = (state[f"{PEFT}.{name}.lora_{side}.weight"].double() for side in "AB")
    return b @ a


def least(update: Any, rank: int) -> float:
    """The norm of what the best approximation of a rank leaves."""
    import torch

    return float(torch.linalg.svdvals(update)[rank:].norm())


def rank_of(update: Any, energy: float) -> int:
    """The smallest rank whose singular values have this share of the sum of all squares."""
    import torch

    squares = torch.linalg.svdvals(update).square()
    return int((squares.cumsum(0) < energy * squares.sum()).sum()) + 1


@call(GROUP, phase=Phase.SAVE, requires=("lora_conversion",))
def converted_methods(ctx: Context) -> Iterator[Check]:
    """convert_to_lora approximates what an adapter of any additive method adds as well as its rank or energy allows.

    Methods that do more than add to weights are refused, and files of save_as_lora load as LoRA.
    """
    from peft import PeftModel, convert_to_lora, save_as_lora

    done = []

    def story(key: str, method: Method) -> Iterator[Check]:
        model = layers.adapted(method, names=("first",))
        try:
            config, state = convert_to_lora(model, rank=RANK, adapter_name="first")
        except TypeError:  # refused
            return
        done.append(key)
        shares, found = convert_to_lora(model, rank=ENERGY, adapter_name="first")
        updates = added(model, method)
        for name, update in updates.items():
            left = float((update - product(state, name)).norm())
            best = 0.0 if key in EXACT else least(update, RANK)
            yield at_most(f"left of {key} over the least, {name}", (left - best) / float(update.norm()), SAME)
            if key not in EXACT:
                rank = found[f"{PEFT}.{name}.lora_A.weight"].shape[0]
                yield equal(f"rank of {key} for the energy, {name}", rank, rank_of(update, ENERGY))
                patterns = (
                    f"{shares.rank_pattern.get(name, shares.r)} {shares.alpha_pattern.get(name, shares.lora_alpha)}"
                )
                yield equal(f"rank and alpha of {key} in the settings, {name}", patterns, f"{rank} {rank}")
        save_as_lora(ctx.kept / key, model, rank=RANK, adapter_name="first")
        again = PeftModel.from_pretrained(adapted_layers.base(), ctx.kept / key).eval()
        plain = layers.held(adapted_layers.base())
        wanted = {name: plain[name][0] + product(state, name) for name in TARGETS}
        found_weights = adapted_layers.applied(again)
        worst = max(relative(found_weights[name], wanted[name]) for name in TARGETS)
        yield at_most(f"weights of {key} off, loaded", worst, SAME)
        yield equal(f"method of {key} afterwards", str(config.peft_type.value), "LORA")

    yield from every(story, *PLAIN)
    yield at_least("methods converted", len(done), 8)
    wrong = {"ia3", "oft", "boft", "hra", "road"} & {*done}
    yield equal("methods that multiply and are converted", " ".join(sorted(wrong)), "")


@call(GROUP, phase=Phase.SAVE, requires=("lora_conversion",))
def converted_settings(ctx: Context) -> Iterator[Check]:
    """A converted adapter keeps targets by expression and modules_to_save; ranks that make no sense are refused."""
    import torch
    from peft import FourierFTConfig, PeftModel, convert_to_lora, get_peft_model, save_as_lora

    method = METHODS["loha"]
    targets = r".*\.(wide|tall)|wide|tall"
    model = layers.adapted(method, names=("first",), target_modules=targets, modules_to_save=["words"])
    words = model.get_submodule(f"{PEFT}.words").modules_to_save["first"].weight
    with torch.no_grad():
        words.add_(1.0)
    for rank in (RANK, ENERGY):
        save_as_lora(ctx.kept / str(rank), model, rank=rank, adapter_name="first")
        again = PeftModel.from_pretrained(adapted_layers.base(), ctx.kept / str(rank)).eval()
        found = again.get_submodule(f"{PEFT}.words").modules_to_save["default"].weight
        yield equal(f"rows of a saved module that differ, {rank}", int((found != words).any(1).sum()), 0)
        _, state = convert_to_lora(model, rank=rank, adapter_name="first")
        plain, seen = layers.held(adapted_layers.base()), adapted_layers.applied(again)
        worst = max(relative(seen[name], plain[name][0] + product(state, name)) for name in TARGETS)
        yield at_most(f"weights off, targets by expression, {rank}", worst, SAME)
    for title, rank in {"none": 0, "an energy of more than all": 1.5, "more than the weights have": 1000}.items():
        yield equal(f"refused: rank, {title}", refusal(convert_to_lora, model, rank, "first"), "ValueError")
    biased = get_peft_model(
        adapted_layers.base(), FourierFTConfig(target_modules=[*TARGETS], n_frequency=9, bias="all")
    )
    yield equal("refused: trained biases", refusal(convert_to_lora, biased, RANK), "ValueError")
    yield equal("refused: no adapter", refusal(convert_to_lora, adapted_layers.base(), RANK), "TypeError")
