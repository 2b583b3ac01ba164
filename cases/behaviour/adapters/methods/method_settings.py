"""Which layers an adapter of any method is put on, and with which rank and scaling in each of them.

The expected layers and numbers are written by hand after the documentation of the configurations' fields, for example
https://huggingface.co/docs/peft/package_reference/loha#peft.LoHaConfig
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods import layers
from cases.behaviour.adapters.methods.layers import METHODS
from cases.behaviour.adapters.methods.method_merging import SAME
from cases.behaviour.starts.adapted_layers import SIZES
from cases.model import tiny
from cases.reference.tolerance import relative, worst
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.behaviour.adapters.methods.layers import Method
    from cases.space.verdict import Check

SETTINGS = "Layers of every method"
NAMES = tuple(f"model.layers.{number}.{name}" for number in range(2) for name in SIZES)
NEUTRAL = 1e-5  # relative: rotations by nothing are computed all the same
EFFECT = 1e-3
SMALL = replace(METHODS["oft"], times=0.1)  # angles for which eight terms of the series are exact enough
CLOSE = 1e-3


def stack() -> Any:
    """Two layers with two linear layers each, with the names that causal models have."""
    import torch

    def block() -> Any:
        return torch.nn.ModuleDict({name: torch.nn.Linear(inner, outer) for name, (outer, inner) in SIZES.items()})

    made = torch.nn.ModuleDict({"model": torch.nn.ModuleDict({"layers": torch.nn.ModuleList([block(), block()])})})
    tiny.fill(made)
    return made


def put_on(method: Method, **arguments: Any) -> Any:
    """The stack with an adapter, as the library starts it."""
    import peft
    import torch

    torch.manual_seed(0)
    chosen = {"target_modules": [*SIZES], **method.arguments("first"), **arguments}
    return peft.get_peft_model(stack(), getattr(peft, method.config)(**chosen), adapter_name="first").eval()


def applied(model: Any, name: str) -> Any:
    """The weight that a layer applies: float64, (out, in)."""
    import torch

    inner = SIZES[name.rpartition(".")[2]][1]
    rows = torch.cat([torch.zeros(1, inner), torch.eye(inner)])
    with torch.no_grad():
        found = layers.module(model, name)(rows).double()
    return (found[1:] - found[0]).T


def weights() -> dict[str, tuple[Any, Any]]:
    plain = stack()
    found = {name: plain.get_submodule(name) for name in NAMES}
    return {name: (layer.weight.detach().double(), layer.bias.detach().double()) for name, layer in found.items()}


def adapted(model: Any) -> set[str]:
    """The names of the layers with trained parameters."""
    found = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {layer for layer in NAMES if any(f".{layer}." in name for name in found)}


def difference(found: set[str], wanted: set[str]) -> str:
    return " ".join(sorted(found ^ wanted)) or "none"


def selected(key: str, placed: Mapping[str, Mapping[str, Any]], **arguments: Any) -> Iterator[Check]:
    """Compare the adapted layers, and the weight that each applies by the formula with its own numbers."""
    method = METHODS[key]
    model = layers.fill(put_on(method, **arguments), method)
    yield equal("layers adapted or left out by mistake", difference(adapted(model), {*placed}), "none")
    off = []
    for name, (weight, bias) in weights().items():
        wanted = weight
        if name in placed:
            numbers = {**method.arguments("first"), **placed[name]}
            wanted, _ = method.formula(weight, bias, layers.parts(model, method, name, "first"), numbers)
        off.append(relative(applied(model, name), wanted))
    yield at_most("weights off", worst(off), SAME)
    ranks = {name: rank(layers.parts(model, method, name, "first")) for name in placed}
    others = [name for name in placed if ranks[name] != placed[name].get("r", ranks[name])]
    yield equal("layers of another rank", " ".join(others) or "none", "none")


def rank(parts: Mapping[str, Any]) -> int:
    """The smallest dimension of the trained parts, which is the rank of those that have one."""
    return min(int(min(part.shape)) for name, part in parts.items() if name not in {"indices", "delora_lambda"})


PLACED = {
    "model.layers.0.wide": {"r": 4, "alpha": 20},
    "model.layers.0.tall": {"r": 2, "alpha": 6},
    "model.layers.1.wide": {"r": 4, "alpha": 6},
    "model.layers.1.tall": {"r": 8, "alpha": 24},
}
PATTERNS: Mapping[str, Any] = {
    "rank_pattern": {"model.layers.1.tall": 8, "tall": 2},
    "alpha_pattern": {r"0\.wide": 20, r".*\.1\.tall": 24},
}


@call(SETTINGS, phase=Phase.ADAPT)
def loha_patterns(_ctx: Context) -> Iterator[Check]:
    """LoHa's rank_pattern and alpha_pattern apply by name or expression; a layer may have one, both or none."""
    yield from selected("loha", PLACED, **PATTERNS)


@call(SETTINGS, phase=Phase.ADAPT)
def lokr_patterns(_ctx: Context) -> Iterator[Check]:
    """LoKr's rank_pattern and alpha_pattern apply by name or expression; a layer may have one, both or none."""
    yield from selected("lokr", PLACED, decompose_both=False, decompose_factor=-1, **PATTERNS)


@call(SETTINGS, phase=Phase.ADAPT, requires=("peft_DeloraConfig",))
def delora_patterns(_ctx: Context) -> Iterator[Check]:
    """DeLoRA's rank_pattern applies by name or expression, and the length is divided by the layer's own rank."""
    placed = {name: {"r": 4} for name in NAMES}
    placed |= {"model.layers.1.tall": {"r": 8}, "model.layers.0.wide": {"r": 2}}
    patterns: dict[str, Any] = {"rank_pattern": {"1.tall": 8, r".*0\.wide": 2}, "lambda_pattern": {"0.tall": 3.5}}
    yield from selected("delora", placed, **patterns)
    model = put_on(METHODS["delora"], **patterns)
    lengths = [float(layers.module(model, name).delora_lambda["first"]) for name in NAMES]
    yield equal("lengths", str(lengths), str([5.0, 3.5, 5.0, 5.0]))


@call(SETTINGS, phase=Phase.ADAPT, requires=("peft_FourierFTConfig",))
def fourierft_patterns(_ctx: Context) -> Iterator[Check]:
    """FourierFT's n_frequency_pattern gives layers another number of frequencies, by name or expression."""
    placed = {name: {"r": 300} for name in NAMES}
    placed |= {"model.layers.0.tall": {"r": 50}, "model.layers.1.wide": {"r": 70}}
    pattern = {"0.tall": 50, r"layers\.\d\.wid": 10, r"layers\.[1-9]\.wide": 70}
    yield from selected("fourierft", placed, n_frequency_pattern=pattern)


@call(SETTINGS, phase=Phase.ADAPT, requires=("peft_FourierFTConfig",))
def fourierft_seed(_ctx: Context) -> Iterator[Check]:
    """FourierFT's random_loc_seed chooses the frequencies, each of them once."""

    def places(seed: int) -> set[tuple[int, ...]]:
        model = put_on(METHODS["fourierft"], random_loc_seed=seed)
        return {tuple(pair) for pair in layers.module(model, NAMES[0]).indices["first"].T.tolist()}

    first, again, other = places(3), places(3), places(4)
    yield equal("frequencies", len(first), METHODS["fourierft"].first["n_frequency"])
    yield equal("frequencies that differ with the same seed", len(first ^ again), 0)
    yield at_most("share of frequencies that two seeds have in common", len(first & other) / len(first), 0.2)


@call(SETTINGS, phase=Phase.ADAPT, requires=("peft_C3AConfig",))
def c3a_patterns(_ctx: Context) -> Iterator[Check]:
    """C3A's block_size_pattern gives layers blocks of another size."""
    placed = {name: {"block_size": 16} for name in NAMES}
    placed |= {"model.layers.0.tall": {"block_size": 32}, "model.layers.1.wide": {"block_size": 8}}
    yield from selected("c3a", placed, block_size_pattern={"0.tall": 32, r"layers\.[1-9]\.wide": 8})


def with_field(*names: str) -> Iterator[tuple[str, Method]]:
    """The methods of this version whose configuration has the fields."""
    import peft

    for key, method in METHODS.items():
        config = getattr(peft, method.config, None)
        if config is not None and {*names} <= {each.name for each in fields(config)} and known(method):
            yield key, method


def known(method: Method) -> bool:
    """Whether this version takes the arguments of a method."""
    try:
        method.made("first")
    except TypeError:
        return False
    return True


def put_on_only(wanted: set[str], **arguments: Any) -> Iterator[Check]:
    """Compare the adapted layers of every method with these fields."""
    found = {key: adapted(put_on(method, **arguments)) for key, method in with_field(*arguments)}
    yield at_least("methods with the field", len(found), 5)
    for key, names in found.items():
        yield equal(f"layers adapted or left out by {key}", difference(names, wanted), "none")


@call(SETTINGS, phase=Phase.ADAPT)
def transform_layers_by_method(_ctx: Context) -> Iterator[Check]:
    """layers_to_transform adapts the listed layers of every method that has the field."""
    more: dict[str, Any] = {"target_modules": ["tall"], "layers_pattern": "layers"}
    yield from put_on_only({"model.layers.1.tall"}, layers_to_transform=[1, 7], **more)
    yield from put_on_only({"model.layers.0.tall"}, layers_to_transform=[0], **more)


@call(SETTINGS, phase=Phase.ADAPT)
def transform_layer_0_by_method(_ctx: Context) -> Iterator[Check]:
    """layers_to_transform may be the number 0, with layers_pattern too, for every method that has the field."""
    more: dict[str, Any] = {"target_modules": ["tall"], "layers_pattern": "layers"}
    yield from put_on_only({"model.layers.0.tall"}, layers_to_transform=0, **more)


@call(SETTINGS, phase=Phase.ADAPT, requires=("exclude_modules",))
def exclude_modules_by_method(_ctx: Context) -> Iterator[Check]:
    """exclude_modules leaves layers out by name or expression, for every method that has the field."""
    yield from put_on_only({NAMES[0], NAMES[3]}, exclude_modules=["model.layers.0.tall", "1.wide"])
    yield from put_on_only({NAMES[1]}, exclude_modules=r".*\.wide|model\.layers\.1\..*|.*\.tal")


@call(SETTINGS, phase=Phase.ADAPT)
def target_expressions_by_method(_ctx: Context) -> Iterator[Check]:
    """target_modules as a string is an expression for the whole name, as a list it has last names, for every method."""
    yield from put_on_only(
        {NAMES[1], NAMES[2]}, target_modules=r".*0\.tall|model\.layers\.1\.wide|model\.layers\.0\.wid"
    )
    yield from put_on_only({NAMES[1], NAMES[2], NAMES[3]}, target_modules=["tall", "1.wide", "all", "wide.weight"])


STARTS = ("init_weights", "init_lora_weights", "init_ia3_weights")


@call(SETTINGS, phase=Phase.ADAPT, requires=("peft_HRAConfig",))
def orthogonal_hra_start(_ctx: Context) -> Iterator[Check]:
    """HRA starts with no effect with apply_GS too.

    Without it, pairs of equal reflections cancel. The second of two equal vectors has no part that is orthogonal to
    the first.
    """
    model = put_on(METHODS["hra_orthogonal"])
    off = [relative(applied(model, name), weight) for name, (weight, _) in weights().items()]
    yield at_most("weights changed at the start", worst(off), NEUTRAL)


@call(SETTINGS, phase=Phase.FORWARD, requires=("skew_oft",))
def oft_series(_ctx: Context) -> Iterator[Check]:
    """OFT with use_cayley_neumann approximates the rotation that it has without.

    https://huggingface.co/docs/peft/conceptual_guides/oft calls the first approximate and the other exact.
    """
    method = METHODS["oft"]
    for series in (False, True):
        model = layers.fill(put_on(method, use_cayley_neumann=series, num_cayley_neumann_terms=8), SMALL)
        off = []
        for name, (weight, bias) in weights().items():
            parts = layers.parts(model, method, name, "first")
            wanted, _ = method.formula(weight, bias, parts, method.arguments("first"))
            off.append(relative(applied(model, name) - weight, wanted - weight))
        yield at_most(f"what the rotation does off, use_cayley_neumann={series}", worst(off), CLOSE)


@call(SETTINGS, phase=Phase.ADAPT)
def start_with_or_without_effect(_ctx: Context) -> Iterator[Check]:
    """The field for start values decides, for every method, whether the adapter changes the layers at the start."""
    plain = {name: weight for name, (weight, _) in weights().items()}
    seen = 0
    for field in STARTS:
        for key, method in with_field(field):
            if field in method.both or key == "hra_orthogonal":  # another kind of adapter; see orthogonal_hra_start
                continue
            if key == "beft":  # changes the bias alone
                continue
            seen += 1
            for neutral in (True, False):
                model = put_on(method, **{field: neutral})
                off = {name: relative(applied(model, name), weight) for name, weight in plain.items()}
                if neutral:
                    yield at_most(f"weights changed at the start by {key}", max(off.values()), NEUTRAL)
                else:
                    yield at_least(f"least effect of {key} on a layer", min(off.values()), EFFECT)
    yield at_least("methods with the field", seen, 5)
