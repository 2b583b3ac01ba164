"""EVA on layers that get the same input, as the projections of queries, keys and values do, and on several batches.

https://arxiv.org/abs/2410.07170
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.starts.component_starts import GROUP
from cases.behaviour.starts.data_layers import identity, roundoff
from cases.behaviour.starts.decomposed_starts import off
from cases.model import tiny
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

NAMES = ("query", "key", "value", "alone")
RANK, WIDTH, ROWS = 4, 24, 20


def base() -> Any:
    """Three layers with the input of the model, and one with their sum."""
    import torch

    class Layers(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            for name in NAMES:
                setattr(self, name, torch.nn.Linear(WIDTH, WIDTH, bias=False))

        def forward(self, inputs: Any) -> Any:
            return self.alone(self.query(inputs) + self.key(inputs) + self.value(inputs))

    made = Layers()
    tiny.fill(made)
    return made.eval()


def batches(count: int) -> list[dict[str, Any]]:
    """Rows whose directions have distinct spreads; EVA repeats the batches until its components converge."""
    import torch

    spread = 0.8 ** torch.arange(WIDTH)
    return [{"rows": tiny.values(f"batch {number}", (ROWS, WIDTH)) * spread} for number in range(count)]


def started(count: int, **eva: Any) -> Any:
    import torch
    from peft import EvaConfig, LoraConfig, get_peft_model, initialize_lora_eva_weights

    config = LoraConfig(r=RANK, target_modules=[*NAMES], init_lora_weights="eva", eva_config=EvaConfig(rho=1.0, **eva))
    torch.manual_seed(0)
    model = get_peft_model(base(), config)
    initialize_lora_eva_weights(
        model,
        batches(count),
        forward_fn=lambda model, batch: model(batch["rows"]),
        prepare_model_inputs_fn=None,
        prepare_layer_inputs_fn=None,
        show_progress_bar=False,
    )
    return model


def components(rows: Any) -> dict[str, tuple[Any, Any]]:
    """The principal directions of each layer's inputs and their singular values, float64."""
    import torch

    weights = {name: base().get_submodule(name).weight.detach().double() for name in NAMES}
    summed = rows @ (weights["query"] + weights["key"] + weights["value"]).T
    found = {}
    for name in NAMES:
        each = summed if name == "alone" else rows
        _, values, right = torch.linalg.svd(each - each.mean(0), full_matrices=False)
        found[name] = (right, values)
    return found


def as_components(model: Any, found: dict[str, tuple[Any, Any]], *, whiten: bool) -> Iterator[Check]:
    for name, (right, values) in found.items():
        a = model.base_model.model.get_submodule(name).lora_A["default"].weight.detach().double()
        yield equal(f"rank of {name}", len(a), RANK)
        if len(a) != RANK:
            continue
        lengths = a.norm(dim=1)
        within = roundoff(values, 0, RANK)
        along = (a @ right[:RANK].T).abs() / lengths[:, None]
        yield off(f"order of lora_A off, {name}", {name: along}, {name: identity(RANK)}, within)
        wanted = values[:RANK] ** -0.5 if whiten else lengths.new_ones(RANK)
        even = {name: lengths / lengths.norm()}
        yield off(f"lengths of lora_A off, {name}", even, {name: wanted / wanted.norm()}, within)


@call(GROUP, phase=Phase.ADAPT, requires=("eva",))
def eva_of_equal_inputs(_ctx: Context) -> Iterator[Check]:
    """EVA gives layers with the same input the same components, and another layer those of its own input."""
    model = started(1)
    yield from as_components(model, components(batches(1)[0]["rows"].double()), whiten=False)


@call(GROUP, phase=Phase.ADAPT, requires=("eva",))
def eva_whitens_equal_inputs(_ctx: Context) -> Iterator[Check]:
    """With whiten=True, EVA divides each component once by the root of its singular value, in every layer.

    PEFT 0.14 to 0.21 divide the components that layers with the same input share in place, once for each layer.
    """
    model = started(1, whiten=True)
    yield from as_components(model, components(batches(1)[0]["rows"].double()), whiten=True)
