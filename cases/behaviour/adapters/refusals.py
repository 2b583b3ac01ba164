"""What PEFT refuses: requests without a meaning, which must raise and leave the model as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import FIRST, SECOND
from cases.behaviour.adapters.mixed_batches import NAMES
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Refusals of PEFT"


def refusal(action: Callable[[], Any]) -> str:
    """Whether a call is refused by one of the classes that PEFT raises for bad arguments."""
    try:
        action()
    except (ValueError, KeyError, TypeError, NotImplementedError):
        return "refused"
    return "accepted"


def refusals(model: Any, actions: Mapping[str, Callable[[], Any]]) -> Iterator[Check]:
    """Check that each call is refused, and that the model then computes what it did before."""
    before = reference.logits(model)
    active, kept = str(model.active_adapters), sorted(model.peft_config)
    for title, action in actions.items():
        yield equal(title, refusal(action), "refused")
    yield equal("numbers of logits that differ afterwards", int((reference.logits(model) != before).sum()), 0)
    yield equal("active adapters afterwards", str(model.active_adapters), active)
    yield equal("adapters afterwards", str(sorted(model.peft_config)), str(kept))


@call(GROUP, phase=Phase.FORWARD)
def refused_mixed_batches(ctx: Context) -> Iterator[Check]:
    """adapter_names is refused with too few names, unknown names, in training, and while an adapter is merged.

    https://huggingface.co/docs/peft/developer_guides/lora, "Inference with different LoRA adapters in the same batch"
    """
    lists = {
        "a name less than rows": NAMES[:-1],
        "a name more than rows": [*NAMES, "first"],
        "an unknown name": ["third", *NAMES[1:]],
        "names of all rows": NAMES,
    }
    for title, names in lists.items():
        model = reference.adapted(ctx, FIRST, SECOND).eval()
        wanted = "accepted" if names is NAMES else "refused"
        yield equal(title, mixed(model, names), wanted)
    yield equal("names in training", mixed(reference.adapted(ctx, FIRST, SECOND).train(), NAMES), "refused")
    model = reference.adapted(ctx, FIRST, SECOND).eval()
    model.merge_adapter(["first"])
    yield equal("names beside a merged adapter", mixed(model, NAMES), "refused")


def mixed(model: Any, names: list[str]) -> str:
    return refusal(lambda: reference.logits(model, adapter_names=names))


@call(GROUP, phase=Phase.FORWARD)
def forward_after_refused_batch(ctx: Context) -> Iterator[Check]:
    """After adapter_names was refused, the model computes without them again."""
    model = reference.adapted(ctx, FIRST, SECOND).eval()
    before = reference.logits(model)
    yield equal("a name less than rows", mixed(model, NAMES[:-1]), "refused")
    yield equal("numbers of logits that differ afterwards", int((reference.logits(model) != before).sum()), 0)


@call(GROUP, phase=Phase.ADAPT)
def refused_adapters(ctx: Context) -> Iterator[Check]:
    """Unknown adapters cannot be activated, deleted or combined; a weight is wanted for each, of known kinds."""
    model = reference.adapted(ctx, FIRST, SECOND).eval()
    both = ["first", "second"]

    def combined(names: list[str], weights: list[float], kind: str, **more: Any) -> Callable[[], Any]:
        return lambda: model.add_weighted_adapter(names, weights, "third", combination_type=kind, **more)

    yield from refusals(
        model,
        {
            "activating an unknown adapter": lambda: model.set_adapter("third"),
            "deleting an unknown adapter": lambda: model.delete_adapter("third"),
            "combining an unknown adapter": combined(["first", "third"], [1.0, 1.0], "cat"),
            "combining other ranks linearly": combined(both, [1.0, 1.0], "linear"),
            "combining in an unknown way": combined(both, [1.0, 1.0], "sum"),
            "combining adapters of other ranks by ties": combined(both, [1.0, 1.0], "ties", density=0.5),
        },
    )


@call(GROUP, phase=Phase.ADAPT)
def refused_configurations(ctx: Context) -> Iterator[Check]:
    """A configuration that names no layer, or contradicts itself, is refused."""
    from peft import LoraConfig, get_peft_model

    def made(**more: Any) -> Callable[[], Any]:
        return lambda: get_peft_model(reference.loaded(ctx), LoraConfig(**{"target_modules": ["q_proj"], **more}))

    actions = {
        "a rank of zero": made(r=0),
        "a negative rank": made(r=-4),
        "layers that do not exist": made(target_modules=["query"]),
        "an expression that matches nothing": made(target_modules=r".*\.query"),
        "an expression with layers_to_transform": made(target_modules=r".*q_proj", layers_to_transform=[0]),
        "a pattern without layers": made(layers_pattern="layers"),
        "layers beyond the model": made(layers_to_transform=[7]),
        "an unknown start": made(init_lora_weights="ones"),
        "an unknown kind of bias": made(bias="some"),
    }
    for title, action in actions.items():
        yield equal(title, refusal(action), "refused")


@call(GROUP, phase=Phase.ADAPT, requires=("lora_bias",))
def refused_biases(ctx: Context) -> Iterator[Check]:
    """lora_bias is refused with starts that leave no room for a bias, and with DoRA."""
    from peft import LoraConfig, get_peft_model

    def made(**more: Any) -> Callable[[], Any]:
        chosen = {"target_modules": ["q_proj"], "lora_bias": True, **more}
        return lambda: get_peft_model(reference.loaded(ctx), LoraConfig(**chosen))

    yield equal("alone", refusal(made()), "accepted")
    for title, more in (("pissa", {"init_lora_weights": "pissa"}), ("DoRA", {"use_dora": True})):
        yield equal(title, refusal(made(**more)), "refused")
    yield equal("embeddings", refusal(made(target_modules=["embed_tokens"])), "refused")


@call(GROUP, phase=Phase.ADAPT, requires=("parameter_targets",))
def refused_parameter_targets(ctx: Context) -> Iterator[Check]:
    """LoRA on parameters refuses dropout, biases and DoRA, which its forward pass cannot apply."""
    from peft import LoraConfig, get_peft_model

    def made(**more: Any) -> Callable[[], Any]:
        chosen = {"target_modules": [], "target_parameters": ["q_proj.weight"], "lora_dropout": 0.0, **more}
        return lambda: get_peft_model(reference.loaded(ctx), LoraConfig(**chosen))

    yield equal("alone", refusal(made()), "accepted")
    kinds: dict[str, dict[str, Any]] = {
        "dropout": {"lora_dropout": 0.1},
        "biases": {"lora_bias": True},
        "DoRA": {"use_dora": True},
        "transposed weights": {"fan_in_fan_out": True},
        "parameters that do not exist": {"target_parameters": ["q_proj.matrix"]},
    }
    for title, more in kinds.items():
        yield equal(title, refusal(made(**more)), "refused")
