"""The linear layers that quantisation leaves as they are, by the names of a list such as llm_int8_skip_modules.

https://huggingface.co/docs/transformers/quantization/bitsandbytes
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Quantised models"
LAYERS = 12  # numbers of one digit and of two
PARTS = ("gate", "gate_proj", "fc1")
# What is left out by whole names, as every version has it: the list, and what the names of layers begin with.
NAMED: Mapping[str, tuple[list[str], tuple[str, ...]]] = {
    "a layer": (["layers.1"], ("layers.1.",)),
    "the last layer": (["layers.11"], ("layers.11.",)),
    "two layers": (["layers.0", "layers.10"], ("layers.0.", "layers.10.")),
    "a part of a layer": (["layers.1.gate"], ("layers.1.gate/",)),
    "the head": (["lm_head"], ("lm_head/",)),
    "a layer and the head": (["layers.3", "lm_head"], ("layers.3.", "lm_head/")),
    "every layer": (["layers"], ("layers.",)),
    "another name": (["layer"], ()),
    "nothing": ([], ()),
}
# What a version with one rule for all quantisations leaves out: of names, the ones it converts.
CONVERTED: Mapping[str, tuple[list[str] | None, Mapping[str, bool]]] = {
    "no list": (None, {"lm_head": True, "layers.1.fc1": True}),
    "an empty list": ([], {"lm_head": True}),
    "a number": (
        ["model.layers.1"],
        {
            "model.layers.1": False,
            "model.layers.1.fc1": False,
            "model.layers.10": True,
            "model.layers.11.fc1": True,
            "model.layers.2": True,
            "model.layers": True,
        },
    ),
    "a name within": (
        ["mlp.gate"],
        {"mlp.gate": False, "mlp.gate.up": False, "mlp.gate_proj": True, "mlp.gates": True, "layers.0.mlp.gate": False},
    ),
    "an end": (["fc1"], {"model.decoder.layers.23.fc1": False, "fc1": False, "fc10": True, "layers.0.fc1.down": True}),
    "an expression": (
        [r"layers\.\d+\.fc1"],
        {"layers.3.fc1": False, "layers.13.fc1": False, "layers.3.fc12": True, "layers.x.fc1": True},
    ),
    "any layer": (["layer.*"], {"layer.11.attn": False, "layers.3": False, "lm_head": True}),
    "one of two": (
        ["layers.1|layers.2"],
        {"layers.1.fc1": False, "layers.2": False, "layers.12": True, "layers.21": True},
    ),
    "several": (["lm_head", "layers.4"], {"lm_head": False, "layers.4.gate": False, "layers.5.gate": True}),
}


def network() -> Any:
    import torch

    def layer() -> Any:
        return torch.nn.ModuleDict({name: torch.nn.Linear(8, 8) for name in PARTS})

    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList(layer() for _ in range(LAYERS))
    model.lm_head = torch.nn.Linear(8, 8)
    return model


def left_out(model: Any) -> str:
    """The names of the linear layers that are still torch's own."""
    import torch

    return " ".join(name for name, module in model.named_modules() if type(module) is torch.nn.Linear)


@call(GROUP, phase=Phase.LOAD, requires=("bitsandbytes_4bit",))
def modules_left_out_by_name(_ctx: Context) -> Iterator[Check]:
    """A name in llm_int8_skip_modules leaves out that module and what is in it, not others that begin with its letters.

    The layers beside layers.1 are layers.10 and layers.11, too.
    """
    from transformers import BitsAndBytesConfig
    from transformers.integrations import replace_with_bnb_linear

    for bits in (4, 8):
        for title, (names, begins) in NAMED.items():
            config = BitsAndBytesConfig(**{f"load_in_{bits}bit": True})
            model = network()
            every = left_out(model).split()
            replace_with_bnb_linear(model, modules_to_not_convert=list(names), quantization_config=config)
            wanted = [name for name in every if f"{name}/".startswith(begins)]
            yield equal(f"left out, {title}, {bits} bits", left_out(model), " ".join(wanted))


@call(GROUP, phase=Phase.LOAD, requires=("one_rule_of_names",))
def modules_left_out_by_rule(_ctx: Context) -> Iterator[Check]:
    """Names to leave out match whole parts of a module's name from its begin, or its end, and may be expressions."""
    from transformers.quantizers.quantizers_utils import should_convert_module

    for title, (names, wanted) in CONVERTED.items():
        for name, expected in wanted.items():
            yield equal(f"converts {name}, {title}", bool(should_convert_module(name, names)), expected)
