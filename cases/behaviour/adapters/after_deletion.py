"""Adapters after others were deleted or combined, and how LoRA's configurations fill themselves in."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import FIRST, NEAR, SECOND, Adapter
from cases.model import tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Several adapters"
THIRD = Adapter(name="third", rank=4, alpha=8, targets=FIRST.targets)


def trained_adapters(model: Any) -> str:
    names = {part for name, p in model.named_parameters() if p.requires_grad for part in name.split(".")}
    return " ".join(sorted(names & {"first", "second", "third"}))


@call(GROUP, phase=Phase.ADAPT)
def add_after_deletion(ctx: Context) -> Iterator[Check]:
    """After delete_adapter, the model and its layers agree on what is active, also once another adapter is added.

    The one that stays computes and trains on; the new one waits until it is activated.
    """
    base = reference.read(ctx)
    for gone, stays in (("first", SECOND), ("second", FIRST)):
        model = reference.adapted(ctx, FIRST, SECOND).eval()
        model.set_adapter(stays.name)
        model.delete_adapter(gone)
        yield equal(f"active without the {gone}", str(model.active_adapters), f"['{stays.name}']")
        yield equal(
            f"active of the tuner without the {gone}", str(model.base_model.active_adapters), f"['{stays.name}']"
        )
        model.add_adapter("third", THIRD.config())
        yield equal(f"active with the third, without the {gone}", str(model.active_adapters), f"['{stays.name}']")
        yield equal(f"trained with the third, without the {gone}", trained_adapters(model), stays.name)
        wanted = base.logits(base.of(stays))
        yield at_most(f"logits off, without the {gone}", relative(reference.logits(model), wanted), NEAR)
        layers = [module for module in model.modules() if stays.name in getattr(module, "lora_A", {})]
        active = {str(layer.active_adapters) for layer in layers}
        yield equal(f"active of layers, without the {gone}", str(active), str({f"['{stays.name}']"}))


@call(GROUP, phase=Phase.ADAPT)
def delete_beside_active_adapter(ctx: Context) -> Iterator[Check]:
    """Deleting an adapter that is not active changes neither what is active nor what is computed and trained."""
    model = reference.adapted(ctx, FIRST, SECOND, THIRD).eval()
    model.set_adapter("second")
    before, trained = reference.logits(model), reference.trained(model)
    for gone in ("first", "third"):
        model.delete_adapter(gone)
        yield equal(f"active without the {gone}", str(model.active_adapters), "['second']")
        off = relative(reference.logits(model), before)
        yield at_most(f"logits off, without the {gone}", off, 0.0)
        yield equal(
            f"trained weights, without the {gone}", reference.written(reference.trained(model) ^ trained), "none"
        )
    yield equal("adapters that are left", str(list(model.peft_config)), "['second']")


@call(GROUP, phase=Phase.ADAPT)
def combine_one_by_default(ctx: Context) -> Iterator[Check]:
    """add_weighted_adapter of one adapter scales it without a decomposition: A and B by the root of weight and scaling.

    The same for every way of combining, as for the default.
    """
    ways: Mapping[str, dict[str, Any]] = {
        "default": {},
        "svd": {"combination_type": "svd"},
        "cat": {"combination_type": "cat"},
    }
    for title, more in ways.items():
        model = reference.adapted(ctx, FIRST, SECOND).eval()
        model.add_weighted_adapter(["first"], [0.5], "third", **more)
        root = (0.5 * FIRST.alpha / FIRST.rank) ** 0.5
        state = dict(tiny.named(model))
        off = []
        for name, value in state.items():
            if ".third." in name and ".lora_" in name:
                off.append(relative(value.detach(), root * state[name.replace(".third.", ".first.")].detach()))
        yield at_most(f"sides off, {title}", max(off, default=float("inf")), reference.NEAR)
        given = model.peft_config["third"]
        yield equal(f"rank and alpha, {title}", f"{given.r} {given.lora_alpha}", f"{FIRST.rank} {FIRST.rank}")


@call(GROUP, phase=Phase.ADAPT, requires=("eva", "corda"))
def lora_configurations_fill_in(_ctx: Context) -> Iterator[Check]:
    """A start that needs settings gets its defaults, with a warning; settings of another start are ignored, with one.

    A start that has its settings, or needs none, warns of nothing.
    """
    from peft import LoraConfig
    from peft.tuners.lora.config import CordaConfig, EvaConfig

    def made(**more: Any) -> tuple[Any, list[str]]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            config = LoraConfig(target_modules=["q_proj"], **more)
        return config, [str(each.message) for each in seen]

    own: Mapping[str, tuple[str, Any]] = {"eva": ("eva_config", EvaConfig), "corda": ("corda_config", CordaConfig)}
    for start, (field, kind) in own.items():
        config, said = made(init_lora_weights=start)
        yield equal(f"settings of {start}", str(getattr(config, field)), str(kind()))
        yield equal(
            f"warnings of {start} without settings", sum(f"`{field}` is not specified" in each for each in said), 1
        )
        chosen = kind(rho=3.0) if start == "eva" else kind(corda_method="kpm")
        config, said = made(init_lora_weights=start, **{field: chosen})
        yield equal(f"settings given to {start}", getattr(config, field) == chosen, bound=True)
        yield equal(f"warnings of {start} with settings", len(said), 0)
        _, said = made(init_lora_weights=True, **{field: chosen})
        ignored = sum(f"`{field}` specified but will be ignored" in each for each in said)
        yield equal(f"warnings of the settings of {start} elsewhere", ignored, 1)
    config, said = made(init_lora_weights="gaussian")
    found = (config.eva_config, config.corda_config, said)
    yield equal("settings and warnings of another start", str(found), "(None, None, [])")
    config, said = made(loftq_config={"loftq_bits": 4})
    yield equal("LoftQ's settings elsewhere", str(config.loftq_config), "{}")
    yield equal("warnings of LoftQ's settings elsewhere", sum("`loftq_config` specified" in each for each in said), 1)
