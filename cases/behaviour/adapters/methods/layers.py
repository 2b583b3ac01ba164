"""Builders for calls about every method: two adapters on linear layers, their parts, and the expected weights."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.behaviour.adapters import newer_methods
from cases.behaviour.adapters.methods import formulas
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.reference import adapter_layers
from cases.reference.tolerance import relative, worst

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.behaviour.adapters.methods.formulas import Formula, Pair

NAMES = ("first", "second")
TARGETS = {"first": ["wide", "tall"], "second": ["tall"]}  # one layer has both
LENGTH = 32  # of the vectors of VB-LoRA, and a divisor of all dimensions


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method: its class in PEFT, its formula, the arguments of both adapters, and words in its parameters' names.

    The start values are ``times`` as large as usual, or lie around a number.
    """

    config: str
    formula: Formula
    marks: tuple[str, ...]
    both: Mapping[str, Any] = field(default_factory=dict)
    first: Mapping[str, Any] = field(default_factory=dict)
    second: Mapping[str, Any] = field(default_factory=dict)
    around: Mapping[str, float] = field(default_factory=dict)
    times: float = 1.0
    together: bool = True  # compare two active adapters with one after another

    def arguments(self, name: str) -> dict[str, Any]:
        return {**self.both, **(self.first if name == "first" else self.second)}

    def made(self, name: str, **more: Any) -> Any:
        import peft

        return getattr(peft, self.config)(**{"target_modules": TARGETS[name], **self.arguments(name), **more})


STEPS = {"tinit": 1, "tfinal": 1, "total_step": 10}
BLOCKS = {"r": 0, "oft_block_size": 8, "use_cayley_neumann": False}
BANK = {"num_vectors": 24, "vector_length": LENGTH, "topk": 2}
LOW, HIGH = {"r": 4, "alpha": 6}, {"r": 8, "alpha": 4}

METHODS: Mapping[str, Method] = {
    "lora": Method(
        config="LoraConfig",
        formula=formulas.of_weight(adapter_layers.lora),
        marks=("lora_",),
        first={"r": 4, "lora_alpha": 6},
        second={"r": 8, "lora_alpha": 4, "use_rslora": True},
    ),
    "dora": Method(
        config="LoraConfig",
        formula=formulas.of_weight(adapter_layers.dora),
        marks=("lora_",),
        both={"use_dora": True},
        first={"r": 4, "lora_alpha": 6},
        second={"r": 8, "lora_alpha": 4},
        around={"lora_magnitude_vector": 1.5},
        together=False,
    ),
    "adalora": Method(
        config="AdaLoraConfig",
        formula=formulas.adalora,
        marks=("lora_A", "lora_B", "lora_E"),
        both={"target_r": 2, **STEPS},
        first={"init_r": 4, "lora_alpha": 6},
        second={"init_r": 8, "lora_alpha": 4, "inference_mode": True},  # PEFT trains one adapter alone
        around={"lora_E": 1.0},
    ),
    "loha": Method(
        config="LoHaConfig",
        formula=formulas.of_weight(adapter_layers.loha),
        marks=("hada_",),
        times=2.0,
        first=LOW,
        second=HIGH,
    ),
    "lokr": Method(
        config="LoKrConfig",
        formula=formulas.lokr,
        marks=("lokr_",),
        first={"r": 4, "alpha": 6, "decompose_factor": 8, "decompose_both": True},
        second={"r": 32, "alpha": 16},
        times=2.0,
    ),
    "ia3": Method(
        config="IA3Config",
        formula=formulas.ia3,
        marks=("ia3_l",),
        first={"feedforward_modules": ["tall"]},
        second={"feedforward_modules": ["tall"]},
        around={"ia3_l": 1.25},
    ),
    "vera": Method(
        config="VeraConfig",
        formula=formulas.vera,
        marks=("vera_lambda_",),
        both={"r": 8, "d_initial": 0.5},
        times=4.0,
    ),
    "hra": Method(
        config="HRAConfig",
        formula=formulas.hra,
        marks=("hra_u",),
        first={"r": 4},
        second={"r": 6},
    ),
    "hra_orthogonal": Method(
        config="HRAConfig",
        formula=formulas.hra,
        marks=("hra_u",),
        both={"apply_GS": True},
        first={"r": 4},
        second={"r": 3},
    ),
    "boft": Method(
        config="BOFTConfig",
        formula=formulas.boft,
        marks=("boft_",),
        first={"boft_block_size": 8},
        second={"boft_block_size": 0, "boft_block_num": 6},
        around={"boft_s": 1.25},
        times=2.0,
    ),
    "oft": Method(
        config="OFTConfig",
        formula=formulas.oft,
        marks=("oft_R",),
        both=BLOCKS,
        second={"oft_block_size": 16, "block_share": True},
        times=2.0,
        together=False,  # see rotate_twice
    ),
    "fourierft": Method(
        config="FourierFTConfig",
        formula=formulas.fourierft,
        marks=("fourierft_spectrum",),
        first={"n_frequency": 300, "scaling": 4000.0},
        second={"n_frequency": 100, "scaling": 7000.0, "random_loc_seed": 5},
    ),
    "vblora": Method(
        config="VBLoRAConfig",
        formula=formulas.vblora,
        marks=("vblora_",),
        both=BANK,
        first={"r": 4},
        second={"r": 2, "topk": 3},
        times=4.0,
    ),
    "miss": Method(config="MissConfig", formula=formulas.miss, marks=("miss_block",), first={"r": 12}, second={"r": 7}),
    "miss_mini": Method(
        config="MissConfig",
        formula=formulas.miss,
        marks=("miss_block",),
        both={"init_weights": "mini"},
        first={"r": 12, "mini_r": 16},
        second={"r": 8, "mini_r": 32},
    ),
    "miss_bat": Method(
        config="MissConfig",
        formula=formulas.miss,
        marks=("miss_block",),
        both={"init_weights": "bat"},
        first={"r": 16},
        second={"r": 8},
    ),
    "bone": Method(config="BoneConfig", formula=formulas.miss, marks=("bone_block",), first={"r": 16}, second={"r": 8}),
    "shira": Method(
        config="ShiraConfig",
        formula=formulas.shira,
        marks=("shira_weight",),
        times=4.0,
        first={"r": 4},
        second={"r": 8},
    ),
    "c3a": Method(
        config="C3AConfig",
        formula=formulas.c3a,
        marks=("c3a_kernel",),
        first={"block_size": 16},
        second={"block_size": 32},
        times=64.0,
        together=False,  # see convolve_twice
    ),
    "road": Method(
        config="RoadConfig",
        formula=formulas.road,
        marks=("road_",),
        both={"variant": "road_1"},
        first={"group_size": 32},
        second={"group_size": 16},
        around={"road_alpha": 1.25, "road_theta": 0.0},
        times=2.0,
    ),
    "delora": Method(
        config="DeloraConfig",
        formula=formulas.delora,
        marks=("delora_",),
        first={"r": 4, "delora_lambda": 5},
        second={"r": 8, "delora_lambda": 9},
        around={"delora_lambda": 5.0},
    ),
    **{key: Method(**each) for key, each in newer_methods.NEWER.items()},
}


def adapted(method: Method, plain: Any = None, *, names: tuple[str, ...] = NAMES, **more: Any) -> Any:
    """A base with adapters, filled; the first is active, and the model is in evaluation mode."""
    import peft
    import torch

    torch.manual_seed(0)
    plain = adapted_layers.base() if plain is None else copy.deepcopy(plain)
    made = peft.get_peft_model(plain, method.made(names[0], **more), adapter_name=names[0])
    for name in names[1:]:
        made.add_adapter(name, method.made(name, **more))
    made.base_model.set_adapter(names[0])
    return fill(made, method).eval()


def fill(model: Any, method: Method) -> Any:
    """Give the parts of every adapter the values that belong to their names."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(mark in name for mark in method.marks):
                parameter.copy_(value(tiny.canonical(name), parameter, method))
    return model


def value(name: str, like: Any, method: Method) -> Any:
    import torch

    found = tiny.values(name, tuple(like.shape))
    around = next((centre for part, centre in method.around.items() if part in name), None)
    if around is not None:
        return found + around
    if "vblora_logits" in name:  # the best vectors must be distinct in every dtype
        return found.argsort(-1).argsort(-1) / torch.tensor(8.0)
    return found * method.times


def module(model: Any, name: str) -> Any:
    """A layer of an adapted model, or of one whose adapters were unloaded."""
    import peft

    return adapted_layers.layer(model, name) if isinstance(model, peft.PeftModel) else model.get_submodule(name)


def parts(model: Any, method: Method, name: str, adapter: str) -> dict[str, Any]:
    """The parts of an adapter in a layer, by their names in PEFT, and the frozen numbers that the formula needs."""
    found = {}
    for key, parameter in module(model, name).named_parameters():
        words = key.split(".")
        if adapter in words and any(mark in key for mark in method.marks):
            found[part_of(key, adapter)] = parameter.detach().double().clone()
    return found | frozen(model, method, name, adapter)


def part_of(key: str, adapter: str) -> str:
    """The name of a part from that of a parameter, with further words where a part has several tensors."""
    first, *others = key.split(".")
    short = "block" if first.endswith("_block") else first
    return "_".join([short, *(word for word in others if word not in (adapter, "weight"))])


def frozen(model: Any, method: Method, name: str, adapter: str) -> dict[str, Any]:
    if method.config == "VeraConfig":
        return {f"vera_{side}": getattr(model.base_model, f"vera_{side}")[adapter].double() for side in "AB"}
    if method.config == "VBLoRAConfig":
        return {"vblora_vector_bank": model.base_model.vblora_vector_bank[adapter].detach().double()}
    if method.config == "FourierFTConfig":
        return {"indices": module(model, name).indices[adapter]}
    if method.config == "ShiraConfig":
        return {"indices": module(model, name).shira_indices[adapter]}
    if method.config == "DeloraConfig" and name in adapted_layers.TARGETS:  # of the base below all adapters
        return {"norms": held(adapted_layers.base())[name][0].norm(dim=0)}
    return newer_methods.frozen(model.base_model, module(model, name), adapter)


def held(model: Any) -> dict[str, Pair]:
    """The weights (out, in) and biases that the base layers hold: float64."""
    found = {}
    for name in adapted_layers.TARGETS:
        inside = module(model, name)
        inside = inside.get_base_layer() if hasattr(inside, "get_base_layer") else inside
        found[name] = (adapted_layers.stored(inside).detach().double().clone(), inside.bias.detach().double().clone())
    return found


def expected(model: Any, method: Method, *adapters: str, plain: Any = None) -> dict[str, Pair]:
    """The weight and bias of each layer by the formula, of adapters one after another."""
    found = held(adapted_layers.base() if plain is None else plain)
    for adapter in adapters:
        for name in TARGETS[adapter]:
            pieces = parts(model, method, name, adapter)
            found[name] = method.formula(*found[name], pieces, method.arguments(adapter))
    return found


def applied(model: Any) -> dict[str, Pair]:
    """The weights and biases that the layers apply, by their forward pass: float64."""
    import torch

    found = {}
    with torch.no_grad():
        for name in adapted_layers.TARGETS:
            layer = module(model, name)
            inside = layer if hasattr(layer, "in_features") else layer.get_base_layer()  # early LyCORIS layers lack it
            inner = inside.in_features
            rows = layer(torch.cat([torch.zeros(1, inner), torch.eye(inner)])).double()
            found[name] = ((rows[1:] - rows[0]).T, rows[0])
    return found


def off(found: Mapping[str, Pair], wanted: Mapping[str, Pair]) -> float:
    """The largest relative distance of a weight or a bias."""
    return worst(relative(a, b) for name in wanted for a, b in zip(found[name], wanted[name], strict=True))
