"""PEFT's optimisers for adapters: the groups, rates and decay of LoRA+."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import Adapter
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Optimisers of PEFT"
RATE, RATIO, OF_EMBEDDINGS, DECAY = 0.0625, 8.0, 0.015625, 0.25
USUAL_OF_EMBEDDINGS = 1e-6  # documented default of loraplus_lr_embedding
ADAPTERS: Mapping[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "linear": ("llama", ("q_proj", "down_proj"), {}),
    "embeddings": ("llama", ("embed_tokens", "v_proj"), {}),
    "all linear and embeddings": ("llama", ("embed_tokens", "q_proj", "k_proj", "up_proj", "lm_head"), {}),
    "transposed": ("gpt2", ("c_attn", "wte"), {"fan_in_fan_out": True}),
    "saved head": ("llama", ("embed_tokens", "q_proj"), {"modules_to_save": ["lm_head"]}),
}
SETTINGS: Mapping[str, tuple[dict[str, float], float, float]] = {  # arguments, rate of embeddings, decay
    "defaults": ({}, USUAL_OF_EMBEDDINGS, 0.0),
    "all set": ({"loraplus_lr_embedding": OF_EMBEDDINGS, "loraplus_weight_decay": DECAY}, OF_EMBEDDINGS, DECAY),
}


def rate_of(name: str, embeddings: float) -> float:
    """B learns ``RATIO`` times as fast as A (https://arxiv.org/abs/2402.12354); embeddings have a rate of their own."""
    if ".lora_embedding_" in name:
        return embeddings
    return RATE * RATIO if ".lora_B." in name else RATE


def wrong(found: Mapping[str, float], wanted: Mapping[str, float]) -> str:
    return " ".join(sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))) or "none"


@call(GROUP, phase=Phase.OPTIMIZER, requires=("loraplus",))
def loraplus_groups(ctx: Context) -> Iterator[Check]:
    """create_loraplus_optimizer gives A, B and adapters of embeddings their own rates, and all of them the decay."""
    import torch
    from peft.optimizers import create_loraplus_optimizer

    for kind, (base, targets, more) in ADAPTERS.items():
        model = reference.adapted(ctx, Adapter(name="first", rank=4, alpha=8, targets=targets, more=more), model=base)
        names = {id(p): name for name, p in model.named_parameters()}
        trained = {name for name, p in model.named_parameters() if p.requires_grad}
        for setting, (arguments, embeddings, decay) in SETTINGS.items():
            made = create_loraplus_optimizer(
                model, torch.optim.AdamW, lr=RATE, loraplus_lr_ratio=RATIO, betas=(0.5, 0.75), eps=0.125, **arguments
            )
            held = [(names[id(p)], group) for group in made.param_groups for p in group["params"]]
            title = f"{kind}, {setting}"
            yield equal(f"parameters held twice, {title}", len(held) - len({name for name, _ in held}), 0)
            rates = {name: group["lr"] for name, group in held}
            yield equal(f"wrong rates, {title}", wrong(rates, {n: rate_of(n, embeddings) for n in trained}), "none")
            decays = {name: group["weight_decay"] for name, group in held}
            yield equal(f"wrong decays, {title}", wrong(decays, dict.fromkeys(trained, decay)), "none")
            others = {str((group["betas"], group["eps"])) for group in made.param_groups}
            yield equal(f"other arguments, {title}", str(others), "{'((0.5, 0.75), 0.125)'}")


@call(GROUP, phase=Phase.OPTIMIZER, requires=("loraplus",))
def loraplus_step(ctx: Context) -> Iterator[Check]:
    """A step of LoRA+ with gradient descent moves each parameter by its own rate times its gradient."""
    import torch
    from peft.optimizers import create_loraplus_optimizer

    targets = ("embed_tokens", "q_proj", "v_proj")
    model = reference.adapted(ctx, Adapter(name="first", rank=4, alpha=8, targets=targets)).train()
    made = create_loraplus_optimizer(
        model, torch.optim.SGD, lr=RATE, loraplus_lr_ratio=RATIO, loraplus_lr_embedding=OF_EMBEDDINGS
    )
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    before = {name: p.detach().double() for name, p in trained.items()}
    ids = torch.arange(3, 19, device=ctx.place.device)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    gradients = {name: p.grad.double() for name, p in trained.items()}
    made.step()
    for part in (".lora_A.", ".lora_B.", ".lora_embedding_A", ".lora_embedding_B"):
        errors = [
            float((before[name] - rate_of(name, OF_EMBEDDINGS) * gradients[name] - p.detach().double()).abs().max())
            for name, p in trained.items()
            if part in name
        ]
        yield equal(f"parameters of {part.strip('.')}", len(errors), 1 if "embedding" in part else 4)
        yield at_most(f"weights of {part.strip('.')} off", max(errors), 1e-6)
        norms = [float(gradients[name].abs().max()) for name in trained if part in name]
        yield equal(f"gradients of {part.strip('.')} that are zero", sum(norm == 0 for norm in norms), 0)
