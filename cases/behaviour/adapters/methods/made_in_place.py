"""Adapters of every method that a script puts into its own model, that load without memory, and that are saved alone.

https://huggingface.co/docs/peft/developer_guides/low_level_api
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods import layers
from cases.behaviour.adapters.methods.layers import METHODS, TARGETS
from cases.behaviour.adapters.methods.layers_in_use import FROZEN, SPARSE
from cases.behaviour.adapters.methods.life_cycle import LIVING, every, gives
from cases.behaviour.adapters.methods.states import trained
from cases.behaviour.starts import adapted_layers
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.behaviour.adapters.methods.layers import Method
    from cases.space.verdict import Check

# Methods whose layers use tensors that the whole adapted model owns; the layers of VB-LoRA have them as their own, too.
SHARED = ("vera", "vblora", "pvera")
BANK = ("vblora",)
COUNTS = ("ranknum",)  # buffers that no file holds: AdaLoRA's number of ranks
WRAPPED = "lora_magnitude_vector.weight"  # in a module of its own, which files do not name
ALONE = ("first",)
BUDGET = ("adalora",)  # PEFT trains one adapter of a model
WHOLE = 1e-4  # relative: an output that nothing dropped


def parts_of(model: Any, method: Method, adapter: str) -> dict[str, Any]:
    """The trained tensors of an adapter by the names in its file: without the adapter's name."""
    return {
        ".".join(word for word in name.split(".") if word != adapter).replace(WRAPPED, WRAPPED[:-7]): parameter.detach()
        for name, parameter in model.named_parameters()
        if adapter in name.split(".") and any(mark in name for mark in method.marks)
    }


def tensors(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    found: dict[str, Any] = load_file(folder / "adapter_model.safetensors")
    return found


def differing(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The names that one side lacks, and those of tensors with other bits."""
    both = found.keys() & wanted.keys()
    return " ".join(sorted({*found} ^ {*wanted} | {n for n in both if not found[n].equal(wanted[n])})) or "none"


def is_frozen_part(key: str, name: str) -> bool:
    """Whether a tensor belongs to a file beside the trained ones, because nothing else determines it."""
    return any(part in name for part in FROZEN.get(key, ()))


@call(LIVING, phase=Phase.SAVE)
def file_of_one_by_method(ctx: Context) -> Iterator[Check]:
    """The file of a model's only adapter holds its trained tensors bit by bit, and no other, for every method.

    Also if they are views in another order of memory, as those of decompositions are; PEFT 0.18 and older refuse them.
    The state of the adapted model has the base's tensors beside them, under their names in the base layers.
    """
    import peft

    takes_views = tuple(map(int, peft.__version__.split(".")[:2])) >= (0, 21)

    def story(key: str, method: Method) -> Iterator[Check]:
        model, folder = layers.adapted(method, names=ALONE), ctx.kept / key
        for parameter in model.parameters():
            if takes_views and parameter.requires_grad and parameter.dim() > 1:
                parameter.data = parameter.data.transpose(0, 1).contiguous().transpose(0, 1)
        model.save_pretrained(folder)
        wanted = parts_of(model, method, "first")
        found = {name: each for name, each in tensors(folder / "first").items() if not is_frozen_part(key, name)}
        yield equal(f"tensors of {key} in the file or not", differing(found, wanted), "none")
        adapted = {name.replace(".base_layer.", ".") for name in adapted_layers.base().state_dict()}
        state = {
            name.removeprefix("base_model.model.").replace(".base_layer.", ".")
            for name in model.state_dict()
            if "first" not in name.split(".")
        }
        yield equal(f"tensors of the state beside {key}", " ".join(sorted(state ^ adapted)) or "none", "none")
        own = {name for name in model.state_dict() if "first" in name.split(".") and not is_frozen_part(key, name)}
        own = {name for name in own if not any(count in name for count in COUNTS)}
        yield equal(f"tensors of {key} in the state", " ".join(sorted(own ^ trained(model))) or "none", "none")

    yield from every(story, *BANK)


def injected(method: Method) -> Any:
    import peft
    import torch

    torch.manual_seed(0)
    return peft.inject_adapter_in_model(method.made("first"), adapted_layers.base(), "first")


def put_in_place(key: str, method: Method) -> Iterator[Check]:
    """Inject an adapter, and compare what is trained, what the layers apply, and the state, with those of PeftModel."""
    import peft

    whole = layers.adapted(method, names=ALONE)
    wanted = layers.expected(whole, method, "first")
    model = layers.fill(injected(method), method).eval()
    yield equal(f"class of the model with {key}", type(model).__name__, type(adapted_layers.base()).__name__)
    names = {name.removeprefix("base_model.model.") for name in trained(whole)}
    yield equal(f"trained or frozen by {key}", " ".join(sorted(trained(model) ^ names)) or "none", "none")
    yield gives(f"weights of {key} off, injected", model, wanted)
    state = peft.get_peft_model_state_dict(model, adapter_name="first")
    found = {name: each for name, each in state.items() if not is_frozen_part(key, name)}
    own = parts_of(model, method, "first")
    yield equal(f"tensors of {key} in its state", differing(found, own), "none")
    other = injected(method).eval()
    peft.set_peft_model_state_dict(other, state, adapter_name="first")
    yield gives(f"weights of {key} off, by its state", other, wanted)
    if hasattr(peft, "DeloraConfig"):  # PEFT before 0.18 knows the names of injected adapters alone
        prefixed = injected(method).eval()
        peft.set_peft_model_state_dict(prefixed, peft.get_peft_model_state_dict(whole, adapter_name="first"), "first")
        yield gives(f"weights of {key} off, by the state of a PeftModel", prefixed, wanted)


@call(LIVING, phase=Phase.ADAPT)
def inject_by_method(_ctx: Context) -> Iterator[Check]:
    """inject_adapter_in_model puts the layers of every method into a script's own model, trained, and nothing else.

    get_peft_model_state_dict has their tensors, which set_peft_model_state_dict puts into another model.
    """
    yield from every(put_in_place, *SHARED, *BUDGET)


@call(LIVING, phase=Phase.ADAPT)
def inject_adalora(_ctx: Context) -> Iterator[Check]:
    """As inject_by_method, of AdaLoRA."""
    yield from put_in_place("adalora", METHODS["adalora"])


def load_again(ctx: Context, key: str, method: Method) -> Iterator[Check]:
    """Save adapters of both shapes, load each without memory, and compare with what was saved."""
    from peft import PeftModel

    for name in TARGETS if key not in BUDGET else ALONE:
        model, folder = layers.adapted(method, names=(name,)), ctx.kept / key
        wanted = layers.expected(model, method, name)
        model.save_pretrained(folder)
        is_trainable = name == "second" or key in BUDGET
        more = {"adapter_name": "one", "is_trainable": is_trainable, "low_cpu_mem_usage": True}
        loaded = PeftModel.from_pretrained(adapted_layers.base(), folder / name, **more)
        yield gives(f"weights off, {key}, {name}", loaded.eval(), wanted)
        yield equal(f"tensors on meta, {key}, {name}", on_meta(loaded), "none")
        yield equal(f"has trained parameters, {key}, {name}", bool(trained(loaded)), is_trainable)
        if key in BUDGET:
            return
        loaded.load_adapter(folder / name, adapter_name="other", low_cpu_mem_usage=True)
        loaded.set_adapter("other")
        yield gives(f"weights off, {key}, {name}, loaded second", loaded.eval(), wanted)
        yield equal(f"tensors on meta, {key}, {name}, loaded second", on_meta(loaded), "none")


def on_meta(model: Any) -> str:
    found = [*model.named_parameters(), *model.named_buffers()]
    return " ".join(sorted(name for name, each in found if each.is_meta)) or "none"


@call(LIVING, phase=Phase.RELOAD, requires=("low_cpu_mem_usage",))
def load_without_memory_by_method(ctx: Context) -> Iterator[Check]:
    """low_cpu_mem_usage=True loads a first and a second adapter as they were saved, for every method.

    Nothing of them stays on the meta device, and they are trained or not as is_trainable says.
    """
    yield from every(lambda key, method: load_again(ctx, key, method), *SPARSE, *BUDGET)


@call(LIVING, phase=Phase.RELOAD, requires=("low_cpu_mem_usage",))
def load_adalora_without_memory(ctx: Context) -> Iterator[Check]:
    """As load_without_memory_by_method, of AdaLoRA."""
    yield from load_again(ctx, "adalora", METHODS["adalora"])


# The field of each method's dropout.
DROPOUTS = {
    "lora": ("lora_dropout",),
    "adalora": ("lora_dropout",),
    "loha": ("rank_dropout", "module_dropout"),
    "lokr": ("rank_dropout", "module_dropout"),
    "vera": ("vera_dropout",),
    "vblora": ("vblora_dropout",),
    "boft": ("boft_dropout",),
    "miss": ("miss_dropout",),
    "delora": ("module_dropout",),
    "randlora": ("randlora_dropout",),
    "hira": ("hira_dropout",),
    "gralora": ("gralora_dropout",),
    "psoft": ("psoft_dropout",),
    "deft": ("deft_dropout",),
}
RATE = 0.375
PASSES = 24  # all of them keep a module with a probability of 1e-5
LAYER = "tall"  # which both adapters have


@call("Dropout of other methods", phase=Phase.FORWARD)
def dropout_of_each_by_method(_ctx: Context) -> Iterator[Check]:
    """Each of two adapters on a layer has its own dropout: one drops, the other does not, whichever came first."""

    def story(key: str, method: Method) -> Iterator[Check]:
        for dropping in TARGETS if key not in BUDGET else ALONE:  # AdaLoRA's second adapter is made for inference
            for field in DROPOUTS[key]:
                model = two(method, dropping, field)
                for active in TARGETS if key not in BUDGET else ALONE:
                    model.base_model.set_adapter(active)
                    title = f"{field} of {key}, {dropping} drops, {active} active"
                    yield equal(f"some pass drops, {title}", drops(model, method, active), active == dropping)

    yield from every(story, *(METHODS.keys() - DROPOUTS.keys()))


def two(method: Method, dropping: str, field: str) -> Any:
    """A model with two adapters, one of which has a dropout."""
    import peft
    import torch

    torch.manual_seed(0)
    first, second = (method.made(name, **{field: RATE if name == dropping else 0.0}) for name in TARGETS)
    model = peft.get_peft_model(adapted_layers.base(), first, adapter_name="first")
    model.add_adapter("second", second)
    return layers.fill(model, method)


def drops(model: Any, method: Method, active: str) -> bool:
    """Whether a pass in training gives other outputs than the formula."""
    import torch

    weight, bias = layers.expected(model, method, active)[LAYER]
    given = torch.randn(4, weight.shape[1], generator=torch.Generator().manual_seed(1))
    wanted, layer = given.double() @ weight.T + bias, layers.module(model.train(), LAYER)
    with torch.no_grad():
        return any(relative(layer(given), wanted) > WHOLE for _ in range(PASSES))
