"""add_weighted_adapter of (IA)³, which adds up the vectors of several adapters.

(IA)³ multiplies outputs, or inputs of feed-forward layers, by a vector (https://arxiv.org/abs/2205.05638); the method
is documented at https://huggingface.co/docs/peft/package_reference/ia3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.adapters.adapter_combining import COMBINING
from cases.behaviour.adapters.methods import layers
from cases.behaviour.adapters.methods.life_cycle import gives
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

WEIGHTS = ((0.5, 0.5), (2.0, -0.75), (1.0, 0.25))
BOTH = "tall"  # the layer that both adapters have; the documentation does not say what the other one gets
# How both adapters name their modules: as lists, or as expressions.
NAMED: Mapping[str, tuple[Any, Any, Any]] = {
    "lists": (["wide", "tall"], ["tall"], ["tall"]),
    "expressions": (r".*(wide|tall)", r".*tall", r".*tall"),
}


def adapted(named: tuple[Any, Any, Any]) -> Any:
    """A base with two adapters, filled; the second has one layer of the first's two."""
    import peft
    import torch

    first, second, feedforward = named
    configs = [peft.IA3Config(target_modules=each, feedforward_modules=feedforward) for each in (first, second)]
    model = peft.get_peft_model(adapted_layers.base(), configs[0], adapter_name="first")
    model.add_adapter("second", configs[1])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "ia3_l" in name:
                parameter.copy_(tiny.values(name, tuple(parameter.shape)) + 1.25)
    return model.eval()


def applied(weight: Any, bias: Any, scale: Any) -> tuple[Any, Any]:
    """The weight and bias with a vector of outputs, (out, 1), or of inputs, (1, in)."""
    return weight * scale, bias * scale[:, 0] if scale.shape[1] == 1 else bias


@call(COMBINING, phase=Phase.ADAPT, requires=("combined_vectors",))
def combine_vectors(ctx: Context) -> Iterator[Check]:
    """add_weighted_adapter of (IA)³ adapters has the weighted sum of their vectors, in the layers that all have.

    Lists of modules are united, expressions joined by "or"; the adapters stay as they were, and the new one is saved.
    """
    from peft import PeftModel

    plain = layers.held(adapted_layers.base())
    for (title, named), weights in ((pair, each) for pair in NAMED.items() for each in WEIGHTS):
        model = adapted(named)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        model.base_model.add_weighted_adapter(["first", "second"], [*weights], "both")
        model.set_adapter("both")
        vectors = adapted_layers.layer(model, BOTH).ia3_l
        scale = sum(w * vectors[name].detach().double() for w, name in zip(weights, ("first", "second"), strict=True))
        wanted = {BOTH: applied(*plain[BOTH], scale)}
        case = f"{title}, weights {weights}"
        yield gives(f"weights off, {case}", model, wanted)
        after = dict(model.named_parameters())
        changed = [name for name, each in before.items() if not after[name].equal(each)]
        yield equal(f"parameters changed, {case}", " ".join(changed) or "none", "none")
        united = model.peft_config["both"].target_modules
        joined = "|".join(f"({each})" for each in named[:2])
        found, expected = (united, joined) if title == "expressions" else (str(sorted(united)), str(sorted(named[0])))
        yield equal(f"target_modules, {case}", found, expected)
        model.save_pretrained(ctx.kept / case, selected_adapters=["both"])
        again = PeftModel.from_pretrained(adapted_layers.base(), ctx.kept / case / "both", adapter_name="one").eval()
        yield gives(f"weights off after loading, {case}", again, wanted)
    yield from refused()


def refused() -> Iterator[Check]:
    """Unknown adapters, and modules named by a list and by an expression, cannot be combined."""
    import peft

    model = adapted(NAMED["lists"])
    add = model.base_model.add_weighted_adapter
    yield equal("refused, an unknown adapter", refusal(add, ["first", "third"], [1.0, 1.0], "both"), "ValueError")
    other = peft.IA3Config(target_modules=r".*tall", feedforward_modules=["tall"])
    model.add_adapter("third", other)
    yield equal("refused, a list and an expression", refusal(add, ["first", "third"], [1.0, 1.0], "both"), "ValueError")
