"""The life of adapters of every method: added, switched, disabled, saved, loaded under another name, and deleted.

An adapter computes what its parts say by the method's formula, whatever happened to it and to the others.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods import layers, states
from cases.behaviour.adapters.methods.layers import METHODS, NAMES
from cases.behaviour.adapters.methods.method_merging import SAME
from cases.behaviour.adapters.methods.method_settings import known
from cases.behaviour.adapters.methods.states import by_mistake, trained
from cases.behaviour.starts import adapted_layers
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context
    from cases.behaviour.adapters.methods.layers import Method
    from cases.space.verdict import Check

LIVING = "Life of adapters of every method"
ALONE = ("adalora",)  # PEFT trains one adapter of a model


def every(story: Callable[[str, Method], Iterator[Check]], *without: str) -> Iterator[Check]:
    """Tell a story about each method of this version. An exception ends the story of one method."""
    import peft

    told = 0
    for key, method in METHODS.items():
        if key in without or not hasattr(peft, method.config) or not known(method):
            continue
        told, error = told + 1, "none"
        try:
            yield from story(key, method)
        except Exception as raised:  # noqa: BLE001 - the finding is any error of the library
            error = f"{type(raised).__name__}: {raised}"[:120]
        yield equal(f"error of {key}", error, "none")
    yield at_least("methods", told, 5)


def gives(name: str, model: Any, wanted: Any) -> Check:
    return at_most(name, layers.off(layers.applied(model), wanted), SAME)


@call(LIVING, phase=Phase.ADAPT)
def add_and_switch_by_method(_ctx: Context) -> Iterator[Check]:
    """add_adapter neither activates nor trains the new adapter, and set_adapter does both, for every method."""

    def story(key: str, method: Method) -> Iterator[Check]:
        model = layers.adapted(method, names=("first",))
        model.add_adapter("second", method.made("second"))
        layers.fill(model, method)
        for name in ("first", "second", "first"):
            yield gives(f"weights of {key} off", model, layers.expected(model, method, name))
            yield equal(f"trained or frozen by mistake by {key}", by_mistake(model, method, [name]), "none")
            model.set_adapter("second" if name == "first" else "first")

    yield from every(story, *ALONE)


@call(LIVING, phase=Phase.FORWARD)
def disable_by_method(_ctx: Context) -> Iterator[Check]:
    """disable_adapter gives the base and freezes nothing for good, nested and after an exception, for every method."""

    def story(key: str, method: Method) -> Iterator[Check]:
        model = layers.adapted(method)
        plain = layers.held(adapted_layers.base())
        wanted, names = layers.expected(model, method, "first"), trained(model)
        with contextlib.suppress(KeyError), model.disable_adapter():
            with model.disable_adapter():
                yield gives(f"weights of {key} off while disabled", model, plain)
            yield gives(f"weights of {key} off while disabled", model, plain)
            raise KeyError
        yield gives(f"weights of {key} off", model, wanted)
        yield equal(
            f"trained or frozen by mistake by {key}", " ".join(sorted(trained(model) ^ names)) or "none", "none"
        )

    yield from every(story)


@call(LIVING, phase=Phase.ADAPT)
def delete_by_method(_ctx: Context) -> Iterator[Check]:
    """delete_adapter removes every part of one adapter and leaves the other as it was, for every method.

    If it was active, the other one takes its place, and its configuration is the active one; the PeftModel of
    releases before 0.18 goes on to name the deleted one.
    """
    import peft

    def story(key: str, method: Method) -> Iterator[Check]:
        for gone, stays in (NAMES, NAMES[::-1]):
            model = layers.adapted(method)
            wanted = layers.expected(model, method, stays)
            follows = hasattr(peft, "DeloraConfig")  # PEFT 0.18
            model.set_adapter(gone if follows and gone == NAMES[1] else stays)
            model.delete_adapter(gone)
            yield equal(f"active adapter of {key} without the {gone}", str(model.active_adapter), stays)
            own = model.active_peft_config is model.peft_config[stays]
            yield equal(f"the active configuration of {key} is that of the {stays}", own, bound=True)
            left = {name for name in model.state_dict() if gone in name.split(".")}
            yield equal(f"parts of {key} left", " ".join(sorted(left)) or "none", "none")
            yield gives(f"weights of {key} off", model, wanted)
            yield from states.reported(f"{key} without the {gone}", model, method, [stays], adapters=[stays])

    yield from every(story)


@call(LIVING, phase=Phase.RELOAD)
def reload_by_method(ctx: Context) -> Iterator[Check]:
    """Adapters are saved without their names and loaded under others, trained or not, for every method."""

    def story(key: str, method: Method) -> Iterator[Check]:
        from peft import PeftModel
        from safetensors import safe_open

        model, folder = layers.adapted(method), ctx.kept / key
        wanted = {name: layers.expected(model, method, name) for name in NAMES}
        model.save_pretrained(folder)
        for name in NAMES:
            with safe_open(folder / name / "adapter_model.safetensors", "pt") as file:
                named = [each for each in file.keys() if {*NAMES} & {*each.split(".")}]  # noqa: SIM118 - no dictionary
            yield equal(f"names of adapters in the files of {key}", " ".join(named) or "none", "none")
        again = PeftModel.from_pretrained(adapted_layers.base(), folder / "second", adapter_name="one")
        yield equal(f"trained of {key} after loading", " ".join(sorted(trained(again))) or "none", "none")
        yield gives(f"weights of {key} off after loading", again.eval(), wanted["second"])
        again.load_adapter(folder / "first", adapter_name="other", is_trainable=True)
        yield gives(f"weights of {key} off after loading the other", again.eval(), wanted["second"])
        for name, trainable in (("one", False), ("other", True)):
            made = "first" if trainable else "second"
            off = states.settings_off(again.peft_config[name], method, made)
            yield equal(f"settings off of the {name} of {key}", off, "none")
            found = again.peft_config[name].inference_mode
            yield equal(f"inference_mode of the {name} of {key}", found, bound=not trainable)
        again.set_adapter("other")
        yield gives(f"weights of the other of {key} off", again.eval(), wanted["first"])
        yield equal(f"trained or frozen by mistake by {key}", by_mistake(again, method, ["other"]), "none")

    yield from every(story, "vera", "randlora", "pvera")


@call(LIVING, phase=Phase.RELOAD, requires=("vera_of_two_sizes",))
def reload_smaller_vera(ctx: Context) -> Iterator[Check]:
    """A VeRA adapter of smaller layers, trained beside one of larger layers, loads alone and computes the same."""
    yield from reloaded_alone(ctx, "vera")


@call(LIVING, phase=Phase.RELOAD, requires=("peft_RandLoraConfig",))
def reload_smaller_randlora(ctx: Context) -> Iterator[Check]:
    """A RandLoRA adapter of smaller layers, trained beside one of larger layers, loads alone and computes the same."""
    yield from reloaded_alone(ctx, "randlora")


@call(LIVING, phase=Phase.RELOAD, requires=("peft_PveraConfig",))
def reload_smaller_pvera(ctx: Context) -> Iterator[Check]:
    """A PVeRA adapter of smaller layers, trained beside one of larger layers, loads alone and computes the same."""
    yield from reloaded_alone(ctx, "pvera")


def reloaded_alone(ctx: Context, key: str) -> Iterator[Check]:
    """Load the adapter of fewer layers into a base without others."""
    from peft import PeftModel

    method = METHODS[key]
    model = layers.adapted(method)
    wanted = layers.expected(model, method, "second")
    model.save_pretrained(ctx.kept / "saved")
    again = PeftModel.from_pretrained(adapted_layers.base(), ctx.kept / "saved" / "second", adapter_name="one")
    yield gives("weights off after loading", again.eval(), wanted)


@call(LIVING, phase=Phase.SAVE)
def save_in_training_by_method(ctx: Context) -> Iterator[Check]:
    """Saving in the middle of training leaves the weights, modes and configuration as they were, for every method."""
    import torch

    def seen(model: Any, adapter: str) -> list[Any]:
        config = {name: str(value) for name, value in vars(model.peft_config[adapter]).items()}
        config.pop("base_model_name_or_path")  # saving fills it in
        return [config, trained(model), [module.training for module in model.modules()]]

    def story(key: str, method: Method) -> Iterator[Check]:
        model = layers.adapted(method, names=("first",)).train()
        before, state = seen(model, "first"), {name: value.clone() for name, value in model.state_dict().items()}
        model.save_pretrained(ctx.kept / key)
        after = model.state_dict()
        changed = [
            name for name in state.keys() | after.keys() if name not in after or not after[name].equal(state[name])
        ]
        yield equal(f"weights of {key} changed", " ".join(sorted(changed)) or "none", "none")
        for what, one, other in zip(("settings", "trained", "modes"), before, seen(model, "first"), strict=True):
            yield equal(f"{what} of {key} are the same", one == other, bound=True)
        torch.manual_seed(1)
        given = torch.randn(4, adapted_layers.SIZES["wide"][1])
        layers.module(model, "wide")(given).square().sum().backward()
        reached = {name for name, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())}
        wide = {name for name in trained(model) if ".wide." in name}
        yield equal(f"parts of {key} without a gradient", " ".join(sorted(wide - reached)) or "none", "none")

    yield from every(story)
