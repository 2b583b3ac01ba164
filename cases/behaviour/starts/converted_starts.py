"""PiSSA and OLoRA adapters that are saved as plain LoRA adapters of the original base.

https://huggingface.co/docs/peft/developer_guides/lora, "Converting LoRA"
"""

from __future__ import annotations

import copy
import itertools
import json
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.starts import adapted_layers
from cases.behaviour.starts.adapted_layers import ALPHA, RANK, SAME, SIZES, TARGETS
from cases.reference import tolerance
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Start values computed from the base"
NEEDS = ("pissa_start", "olora_start")
LOADED = 10 * SAME  # relative: a difference of two updates that the residual was computed with
FILES = {True: "adapter_model.safetensors", False: "adapter_model.bin"}
# Ranks and alphas of layers of their own; rsLoRA is refused with them.
PATTERNS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "ranks": {"rank_pattern": {"tall": 5}},
    "alphas": {"alpha_pattern": {"wide": 7}},
    "both": {"rank_pattern": {"tall": 5}, "alpha_pattern": {"tall": 3}},
}


def started(original: Any, folder: Path, **settings: Any) -> Any:
    """An adapted base whose start is saved as the documentation says, and which then moved."""
    import torch

    model = adapted_layers.adapted(original, adapted_layers.lora(**settings))
    start = model.peft_config["default"].init_lora_weights
    model.peft_config["default"].init_lora_weights = True
    model.save_pretrained(str(folder))
    model.peft_config["default"].init_lora_weights = start
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
    return model


def scaling(name: str, settings: Mapping[str, Any]) -> float:
    """The factor of a layer's update: alpha / r, or alpha / √r with use_rslora (https://arxiv.org/abs/2312.03732)."""
    rank = settings.get("rank_pattern", {}).get(name, RANK)
    alpha = settings.get("alpha_pattern", {}).get(name, ALPHA)
    return float(alpha / (rank**0.5 if settings.get("use_rslora") else rank))


def converted(ctx: Context, title: str, settings: Mapping[str, Any], *, safe: bool) -> Iterator[Check]:
    """Check an adapter that is saved as a plain one: its files, its settings, its update, and that the model stays."""
    from peft import PeftModel

    original = adapted_layers.with_spectrum()
    start, folder = ctx.kept / title / "start", ctx.kept / title / "plain"
    model = started(original, start, **settings)
    before = adapted_layers.applied(model)
    model.save_pretrained(str(folder), path_initial_model_for_weight_conversion=str(start), safe_serialization=safe)
    yield equal(f"adapters after saving, {title}", ", ".join(model.peft_config), "default")
    yield equal(f"rank and alpha kept, {title}", kept(model), f"{RANK} {ALPHA}")
    after = adapted_layers.applied(model)
    yield at_most(f"weights moved by saving, {title}", tolerance.worst_tensor(after, before), 0.0)
    written = json.loads((folder / "adapter_config.json").read_text())
    yield equal(f"weights file, {title}", (folder / FILES[safe]).exists(), bound=True)
    yield equal(f"rank written, {title}", written["r"], 2 * RANK)
    yield equal(f"start written, {title}", str(written["init_lora_weights"]), "True")
    ranks = {name: 2 * rank for name, rank in settings.get("rank_pattern", {}).items()}
    yield equal(f"ranks of layers written, {title}", str(written["rank_pattern"]), str(ranks))
    plain = PeftModel.from_pretrained(copy.deepcopy(original), str(folder)).eval()
    for name in TARGETS:
        factor = adapted_layers.layer(plain, name).scaling["default"]
        yield at_most(f"scaling off, {name}, {title}", abs(factor / scaling(name, settings) - 1), 1e-9)
        rank = 2 * settings.get("rank_pattern", {}).get(name, RANK)
        found = [tuple(adapted_layers.parts(plain, name, part).shape) for part in ("lora_A", "lora_B")]
        out, into = SIZES[name]
        yield equal(f"shapes, {name}, {title}", str(found), str([(rank, into), (out, rank)]))
    unmoved = tolerance.worst_tensor(adapted_layers.bases(plain), adapted_layers.originals(original))
    yield at_most(f"base below the plain adapter off, {title}", unmoved, 0.0)
    yield at_most(
        f"weights of the plain adapter off, {title}",
        tolerance.worst_tensor(adapted_layers.applied(plain), before),
        LOADED,
    )


def kept(model: Any) -> str:
    config = model.peft_config["default"]
    return f"{config.r} {config.lora_alpha}"


@call(GROUP, phase=Phase.SAVE, requires=NEEDS)
def converted_starts(ctx: Context) -> Iterator[Check]:
    """PiSSA and OLoRA adapters saved as LoRA keep what they apply, on the original base, with twice the rank.

    Their scaling is the same: alpha doubles with the rank, and with use_rslora grows by √2.
    """
    for start, stable, safe in itertools.product(("pissa", "olora"), (False, True), (True, False)):
        title = f"{start}, use_rslora={stable}, {FILES[safe].rpartition('.')[2]}"
        yield from converted(ctx, title, {"init_lora_weights": start, "use_rslora": stable}, safe=safe)


@call(GROUP, phase=Phase.SAVE, requires=NEEDS)
def converted_starts_by_pattern(ctx: Context) -> Iterator[Check]:
    """Ranks and alphas of single layers double too in a PiSSA or OLoRA adapter saved as LoRA; rsLoRA is refused."""
    for start, (name, pattern) in itertools.product(("pissa", "olora"), PATTERNS.items()):
        yield from converted(ctx, f"{start}, {name}", {"init_lora_weights": start, **pattern}, safe=True)
        if pattern:
            folder = ctx.kept / start / name
            model = started(adapted_layers.with_spectrum(), folder, init_lora_weights=start, use_rslora=True, **pattern)
            raised = refusal(
                model.save_pretrained, str(folder / "plain"), path_initial_model_for_weight_conversion=str(folder)
            )
            yield equal(f"refused, use_rslora, {start}, {name}", raised, "ValueError")
