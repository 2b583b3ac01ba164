"""What PEFT refuses: requests without a meaning, which must raise and leave the model as it is.

A refusal is an exception of the class that PEFT raises for it, with a message that names what is wrong. Any other
exception is an accident.
"""

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

    Action = Callable[[], Any]

GROUP = "Refusals of PEFT"


def refusal(action: Action, words: str, kind: type[Exception] = ValueError) -> str:
    """The words if the call raises this class, or one of PEFT's own below it, with a message that has them."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - any other exception is the finding
        own = isinstance(error, kind) and type(error).__module__.startswith("peft.")
        right = words in str(error) and (type(error) is kind or own)
        return words if right else f"{type(error).__name__}: {error}"[:200]
    return "accepted"


def refusals(model: Any, actions: Mapping[str, tuple[Action, str]]) -> Iterator[Check]:
    """Check that each call is refused with its words, and that the model then computes what it did before."""
    before = reference.logits(model)
    active, kept = str(model.active_adapters), sorted(model.peft_config)
    for title, (action, words) in actions.items():
        yield equal(title, refusal(action, words), words)
    yield equal("numbers of logits that differ afterwards", int((reference.logits(model) != before).sum()), 0)
    yield equal("active adapters afterwards", str(model.active_adapters), active)
    yield equal("adapters afterwards", str(sorted(model.peft_config)), str(kept))


@call(GROUP, phase=Phase.FORWARD)
def refused_mixed_batches(ctx: Context) -> Iterator[Check]:
    """adapter_names is refused with too few names, unknown names, in training, and while an adapter is merged.

    https://huggingface.co/docs/peft/developer_guides/lora, "Inference with different LoRA adapters in the same batch"
    """
    length = "Length of `adapter_names` should be the same as the number of inputs"
    lists = {
        "a name less than rows": (NAMES[:-1], length),
        "a name more than rows": ([*NAMES, "first"], length),
        "an unknown name": (["third", *NAMES[1:]], "non-existing adapter(s): third"),
        "names of all rows": (NAMES, "accepted"),
    }
    for title, (names, words) in lists.items():
        model = reference.adapted(ctx, FIRST, SECOND).eval()
        yield equal(title, mixed(model, names, words), words)
    model = reference.adapted(ctx, FIRST, SECOND).train()
    yield equal("names in training", mixed(model, NAMES, "in training mode"), "in training mode")
    model = reference.adapted(ctx, FIRST, SECOND).eval()
    model.merge_adapter(["first"])
    words = "when there are merged adapters"
    yield equal("names beside a merged adapter", mixed(model, NAMES, words), words)


def mixed(model: Any, names: list[str], words: str) -> str:
    return refusal(lambda: reference.logits(model, adapter_names=names), words)


@call(GROUP, phase=Phase.FORWARD)
def forward_after_refused_batch(ctx: Context) -> Iterator[Check]:
    """After adapter_names was refused, the model computes without them again."""
    model = reference.adapted(ctx, FIRST, SECOND).eval()
    before = reference.logits(model)
    yield equal("a name less than rows", mixed(model, NAMES[:-1], "Length of"), "Length of")
    yield equal("numbers of logits that differ afterwards", int((reference.logits(model) != before).sum()), 0)


@call(GROUP, phase=Phase.ADAPT)
def refused_adapters(ctx: Context) -> Iterator[Check]:
    """Unknown adapters cannot be activated, deleted or combined; a weight is wanted for each, of known kinds."""
    model = reference.adapted(ctx, FIRST, SECOND).eval()
    both = ["first", "second"]

    def combined(names: list[str], weights: list[float], kind: str, **more: Any) -> Action:
        return lambda: model.add_weighted_adapter(names, weights, "third", combination_type=kind, **more)

    ranks = "must have the same r value"
    yield from refusals(
        model,
        {
            "activating an unknown adapter": (lambda: model.set_adapter("third"), "third not found"),
            "deleting an unknown adapter": (lambda: model.delete_adapter("third"), "third does not exist"),
            "combining an unknown adapter": (combined(["first", "third"], [1.0, 1.0], "cat"), "third does not exist"),
            "combining other ranks linearly": (combined(both, [1.0, 1.0], "linear"), ranks),
            "combining in an unknown way": (combined(both, [1.0, 1.0], "sum"), "Invalid combination_type: sum"),
            "combining adapters of other ranks by ties": (combined(both, [1.0, 1.0], "ties", density=0.5), ranks),
        },
    )


@call(GROUP, phase=Phase.ADAPT)
def refused_configurations(ctx: Context) -> Iterator[Check]:
    """A configuration that names no layer, or contradicts itself, is refused."""
    from peft import LoraConfig, get_peft_model

    def made(**more: Any) -> Action:
        return lambda: get_peft_model(reference.loaded(ctx), LoraConfig(**{"target_modules": ["q_proj"], **more}))

    rank, absent = "`r` should be a positive integer value", "not found in the base model"
    actions: dict[str, tuple[Action, str]] = {
        "a rank of zero": (made(r=0), f"{rank} but the value passed is 0"),
        "a negative rank": (made(r=-4), f"{rank} but the value passed is -4"),
        "layers that do not exist": (made(target_modules=["query"]), absent),
        "an expression that matches nothing": (made(target_modules=r".*\.query"), absent),
        "an expression with layers_to_transform": (
            made(target_modules=r".*q_proj", layers_to_transform=[0]),
            "`layers_to_transform` cannot be used when `target_modules` is a str",
        ),
        "a pattern without layers": (made(layers_pattern="layers"), "`layers_to_transform` must also be specified"),
        "layers beyond the model": (made(layers_to_transform=[7]), "'layers_to_transform': [7]"),
        "an unknown start": (made(init_lora_weights="ones"), "Unknown initialization init_lora_weights='ones'"),
    }
    for title, (action, words) in actions.items():
        yield equal(title, refusal(action, words), words)
    words = "Requested bias: some"
    yield equal("an unknown kind of bias", refusal(made(bias="some"), words, NotImplementedError), words)


@call(GROUP, phase=Phase.ADAPT, requires=("lora_bias",))
def refused_biases(ctx: Context) -> Iterator[Check]:
    """lora_bias is refused with starts that leave no room for a bias, and with DoRA."""
    from peft import LoraConfig, get_peft_model

    def made(**more: Any) -> Action:
        chosen = {"target_modules": ["q_proj"], "lora_bias": True, **more}
        return lambda: get_peft_model(reference.loaded(ctx), LoraConfig(**chosen))

    yield equal("alone", refusal(made(), "accepted"), "accepted")
    kinds: dict[str, tuple[dict[str, Any], str]] = {
        "pissa": ({"init_lora_weights": "pissa"}, "lora_bias=True is only supported with init_lora_weights=True or"),
        "DoRA": ({"use_dora": True}, "lora_bias=True is not supported for DoRA"),
        "embeddings": ({"target_modules": ["embed_tokens"]}, "lora_bias=True is not supported for Embedding"),
    }
    for title, (more, words) in kinds.items():
        yield equal(title, refusal(made(**more), words), words)


@call(GROUP, phase=Phase.ADAPT, requires=("parameter_targets",))
def refused_parameter_targets(ctx: Context) -> Iterator[Check]:
    """LoRA on parameters refuses dropout, biases and DoRA, which its forward pass cannot apply."""
    from peft import LoraConfig, get_peft_model

    def made(**more: Any) -> Action:
        chosen = {"target_modules": [], "target_parameters": ["q_proj.weight"], "lora_dropout": 0.0, **more}
        return lambda: get_peft_model(reference.loaded(ctx), LoraConfig(**chosen))

    yield equal("alone", refusal(made(), "accepted"), "accepted")
    kinds: dict[str, tuple[dict[str, Any], str]] = {
        "dropout": ({"lora_dropout": 0.1}, "does not work with lora_dropout != 0"),
        "biases": ({"lora_bias": True}, "does not work with lora_bias=True"),
        "DoRA": ({"use_dora": True}, "does not work with use_dora=True"),
        "transposed weights": ({"fan_in_fan_out": True}, "does not work with fan_in_fan_out"),
        "parameters that do not exist": (
            {"target_parameters": ["q_proj.matrix"]},
            "no `target_parameters` found",
        ),
    }
    for title, (more, words) in kinds.items():
        yield equal(title, refusal(made(**more), words), words)
