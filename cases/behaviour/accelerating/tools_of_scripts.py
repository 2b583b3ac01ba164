"""Tools of accelerate around a loop: trackers, the debug mode, weights cast layer by layer, and the environment.

https://huggingface.co/docs/accelerate/usage_guides/tracking, https://huggingface.co/docs/accelerate/package_reference
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.clipping import accelerator
from cases.behaviour.trainers import stock_trainer
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

GROUP = "accelerate: settings"
RAN = "accelerate: processes"
SAME = 1e-6


def tracker(heard: list[tuple[Any, ...]], name: str, *, main: bool) -> Any:
    """A tracker of a script's own, as the documentation shows one, that keeps what it gets."""
    from accelerate.tracking import GeneralTracker, on_main_process

    def keep(self: Any, event: str, *given: Any) -> None:
        heard.append((self.name, event, *given))

    parts = {
        "name": name,
        "requires_logging_directory": False,
        "main_process_only": main,
        "tracker": property(lambda _: heard),
        "store_init_configuration": on_main_process(lambda self, values: keep(self, "config", values)),
        "log": on_main_process(lambda self, values, step=None, **more: keep(self, "log", values, step, more)),
        "finish": on_main_process(lambda self: keep(self, "finish")),
    }
    return type(f"Tracker{name}", (GeneralTracker,), parts)()


@call(RAN, phase=Phase.OPTIMIZER, ranks=2)
def accelerate_trackers(ctx: Context) -> Iterator[Check]:
    """Trackers get the configuration, each log with its step and their own arguments, and the end, once.

    They run on the main process alone, unless they say otherwise; get_tracker finds them there by name.
    """
    heard: list[tuple[Any, ...]] = []
    own = [tracker(heard, "one", main=True), tracker(heard, "other", main=True)]
    made = accelerator(ctx, log_with=own)
    made.init_trackers("project", config={"rate": 0.1})
    made.log({"loss": 0.5}, step=3, log_kwargs={"other": {"commit": True}})
    made.log({"loss": 0.25})
    wanted: list[tuple[Any, ...]] = [
        ("one", "config", {"rate": 0.1}),
        ("other", "config", {"rate": 0.1}),
        ("one", "log", {"loss": 0.5}, 3, {}),
        ("other", "log", {"loss": 0.5}, 3, {"commit": True}),
        ("one", "log", {"loss": 0.25}, None, {}),
        ("other", "log", {"loss": 0.25}, None, {}),
    ]
    is_main = ctx.place.rank == 0
    yield equal("what trackers got", str(heard), str(wanted if is_main else []))
    if is_main:
        yield equal("tracker by name", made.get_tracker("other") is own[1], bound=True)
        yield equal("tracker's own object", made.get_tracker("one", unwrap=True) is heard, bound=True)
    for each in made.trackers:
        each.finish()
    ends = [("one", "finish"), ("other", "finish")] if is_main else []
    yield equal("what trackers got at the end", str(heard[len(wanted) if is_main else 0 :]), str(ends))


def raised(function: Callable[[], Any]) -> str:
    """The class of what a function raises, or nothing."""
    try:
        function()
    except Exception as error:  # noqa: BLE001 - its class is what is compared
        return type(error).__name__
    return ""


@call(RAN, phase=Phase.FORWARD, ranks=2)
def accelerate_debug_mode(ctx: Context) -> Iterator[Check]:
    """With ACCELERATE_DEBUG_MODE, operations refuse tensors of another shape on each rank, and no others.

    https://huggingface.co/docs/accelerate/basic_tutorials/troubleshooting#mismatched-tensor-shapes
    """
    import torch

    os.environ["ACCELERATE_DEBUG_MODE"] = "1"
    made = accelerator(ctx)
    rank = ctx.place.rank
    uneven, even = torch.ones(2 + rank), torch.full((2,), rank + 1.0)
    operations: dict[str, Callable[[Any], Any]] = {
        "gather": made.gather,
        "reduce": lambda tensor: made.reduce(tensor, "sum"),
        "gather of names": lambda tensor: made.gather({"values": tensor})["values"],
    }
    wanted = {"gather": [1.0, 1.0, 2.0, 2.0], "reduce": [3.0, 3.0], "gather of names": [1.0, 1.0, 2.0, 2.0]}
    for name, operation in operations.items():
        found = raised(lambda operation=operation: operation(uneven))  # type: ignore[misc]
        yield equal(f"what {name} of other shapes raises", found, "DistributedOperationException")
        yield equal(f"{name} of equal shapes", str(operation(even.clone()).tolist()), str(wanted[name]))
    padded = made.pad_across_processes(uneven)
    yield equal("pad_across_processes of other shapes", len(padded), 3)


def uneven() -> Any:
    """The network with weights that have more digits than bfloat16 keeps."""
    import torch

    made = networks.network()
    with torch.no_grad():
        for each in made.parameters():
            each.mul_(1.003)
    return made


@call(GROUP, phase=Phase.FORWARD, requires=("layerwise_casting",))
def accelerate_casts_layers(_ctx: Context) -> Iterator[Check]:
    """attach_layerwise_casting_hooks stores layers in one dtype and computes in another, but for layers that it skips.

    https://huggingface.co/docs/accelerate/package_reference/big_modeling#accelerate.big_modeling.attach_layerwise_casting_hooks
    """
    import torch
    from accelerate.big_modeling import attach_layerwise_casting_hooks

    inputs, _ = networks.data(0)
    kinds: dict[str, tuple[dict[str, Any], set[str]]] = {
        "all layers": ({}, {"first", "second", "third", "fourth"}),
        "without a name": ({"skip_modules_pattern": ("^second$", "fourth")}, {"first", "third"}),
        "without a class": ({"skip_modules_classes": (torch.nn.Linear,)}, set()),
    }
    for stored in (torch.bfloat16, torch.float8_e4m3fn):
        for title, (chosen, cast) in kinds.items():
            model, exact, unrounded = (uneven() for _ in range(3))
            with torch.no_grad():
                for name, each in exact.named_parameters():
                    if name.partition(".")[0] in cast:
                        each.copy_(each.to(stored).float())
            attach_layerwise_casting_hooks(model, stored, torch.float32, **chosen)
            for when in ("before", "after"):
                dtypes = {n for n, p in model.named_parameters() if p.dtype is stored}
                owners = {name.partition(".")[0] for name in dtypes}
                yield equal(f"layers stored in {stored}, {title}, {when}", str(sorted(owners)), str(sorted(cast)))
                yield equal(f"parameters stored in {stored}, {title}, {when}", len(dtypes), 2 * len(cast))
                found = model(inputs).detach()
            wanted = exact(inputs).detach()
            off = float((found - wanted).abs().max())
            yield at_most(f"outputs off, stored in {stored}, {title}", off, SAME * float(wanted.abs().max()))
            if cast:
                rounded = float((wanted - unrounded(inputs).detach()).abs().max())
                yield at_least(f"outputs that storing in {stored} changes, {title}", rounded, 1e-4)


@call(GROUP, phase=Phase.LOAD, requires=("clean_environment",))
def accelerate_environments(ctx: Context) -> Iterator[Check]:
    """patch_environment, clear_environment and purge_accelerate_environment leave the environment as it was.

    https://huggingface.co/docs/accelerate/package_reference/utilities#accelerate.utils.patch_environment
    """
    from accelerate.utils import clear_environment, patch_environment, purge_accelerate_environment

    os.environ.update({"FTM_OLD": "old", "ACCELERATE_OLD": "old"})
    before = dict(os.environ)
    with patch_environment(ftm_old="new", ftm_number=3):
        yield equal("values within patch_environment", os.environ["FTM_OLD"] + os.environ["FTM_NUMBER"], "new3")
    yield equal("environment after patch_environment", dict(os.environ) == before, bound=True)
    with clear_environment():
        yield equal("variables within clear_environment", len(os.environ), 0)
        os.environ["FTM_OLD"] = "new"
    yield equal("environment after clear_environment", dict(os.environ) == before, bound=True)

    def changes() -> str:
        os.environ.update({"ACCELERATE_OLD": "new", "ACCELERATE_NEW": "new"})
        stock_trainer.arguments(ctx, bf16=True)
        return "returned"

    yield equal("what a purged function returns", purge_accelerate_environment(changes)(), "returned")
    yield equal("environment after purge_accelerate_environment", dict(os.environ) == before, bound=True)
    for function in (lambda: patched(patch_environment, "new"), purge_accelerate_environment(failing)):
        yield equal("what a failure raises", raised(function), "KeyError")
        yield equal("environment after a failure", dict(os.environ) == before, bound=True)


def failing() -> None:
    os.environ["ACCELERATE_NEW"] = "new"
    raise KeyError


def patched(patch: Any, value: str) -> None:
    with patch(ftm_old=value):
        raise KeyError


@call(GROUP, phase=Phase.LOAD)
def accelerate_reads_environments(_ctx: Context) -> Iterator[Check]:
    """Words for yes and no, and the first variable of several that is set, are read from the environment."""
    from accelerate.utils import get_int_from_env, parse_choice_from_env, parse_flag_from_env, str_to_bool

    for truth, every in ((1, "y yes t true on 1 True YES On"), (0, "n no f false off 0 False NO Off")):
        for word in every.split():
            yield equal(f"{word} as a truth", int(str_to_bool(word)), truth)
            os.environ["FTM_FLAG"] = word
            yield equal(f"{word} as a flag", parse_flag_from_env("FTM_FLAG", default=not truth), bool(truth))
    yield equal("what another word raises", raised(lambda: str_to_bool("maybe")), "ValueError")
    for default in (True, False):
        yield equal(f"a flag that is not set, {default}", parse_flag_from_env("FTM_NONE", default=default), default)
    os.environ.update({"FTM_SECOND": "0", "FTM_THIRD": "7", "FTM_CHOICE": "fp16"})
    found = [get_int_from_env(["FTM_FIRST", *more], 5) for more in (("FTM_SECOND", "FTM_THIRD"), ("FTM_THIRD",), ())]
    yield equal("first numbers that are set", str(found), "[0, 7, 5]")
    choices = [parse_choice_from_env("FTM_CHOICE"), parse_choice_from_env("FTM_NONE", "bf16")]
    yield equal("choices", str([*choices, parse_choice_from_env("FTM_NONE")]), "['fp16', 'bf16', 'no']")
