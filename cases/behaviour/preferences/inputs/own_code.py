"""Models that TRL's trainers load by their path, also those with code of their own, with trust_remote_code.

https://huggingface.co/docs/transformers/custom_models, and "model_init_kwargs: Keyword arguments for from_pretrained,
used when the model argument is provided as a string".
"""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.models.building import Variant
from cases.behaviour.preferences import alignment, grpo
from cases.behaviour.preferences.inputs.adapter_settings import rows_of
from cases.behaviour.preferences.inputs.row_forms import known
from cases.model import architectures
from cases.reference import tolerance
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context

CODE = """
from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    model_type = "own"


class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""
CLASSES = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
KINDS, ROLLING = ("SFT", "DPO", "KTO"), ("GRPO", "RLOO")
WITHOUT_REFERENCE = ("CPO", "ORPO")


def written(ctx: Context) -> Path:
    """A checkpoint whose classes are in a file beside its weights."""
    folder = Variant("llama").written(ctx, "own")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"model_type": "own", "architectures": ["OwnForCausalLM"], "auto_map": CLASSES}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "modeling_own.py").write_text(CODE, encoding="utf-8")
    return folder


@call("Arguments of TRL", phase=Phase.LOAD)
def trl_loads_own_code(ctx: Context) -> Iterator[Check]:
    """TRL's trainers load a model with code of its own from its path, if model_init_kwargs trust that code."""
    folder = str(written(ctx))
    chosen = {"model_init_kwargs": {"trust_remote_code": True}, "per_device_train_batch_size": 4}
    made = {
        kind: alignment.create(ctx, kind, chosen, model=folder, train_dataset=rows_of(kind)) for kind in known(KINDS)
    }
    for kind in known(ROLLING):
        if "model_init_kwargs" in alignment.options_of(kind):
            made[kind], _ = grpo.trainer(ctx, {**chosen, "model": folder}, kind)
    for kind, trainer in made.items():
        yield equal(f"class of the model, {kind}", type(trainer.model).__name__, "OwnForCausalLM")


def takes_kwargs(kind: str) -> bool:
    """Return whether a trainer takes model_init_kwargs; earlier versions load a path with defaults alone, or none."""
    return "model_init_kwargs" in alignment.options_of(kind)


def tensors(model: Any) -> dict[str, Any]:
    return {name: parameter.detach().float() for name, parameter in model.named_parameters()}


@call("Arguments of TRL", phase=Phase.LOAD)
def trl_loads_paths(ctx: Context) -> Iterator[Check]:
    """TRL's trainers load a model from its path with the checkpoint's weights, and as model_init_kwargs say.

    Without model_init_kwargs, the settings are from_pretrained's defaults.
    """
    folder = str(architectures.plain_checkpoint(ctx.cache))
    wanted = tensors(ingredients.base(ctx))
    kinds = [*known((*KINDS, *WITHOUT_REFERENCE)), *(kind for kind in known(ROLLING) if takes_kwargs(kind))]
    for kind, named in product(kinds, (None, "eager")):
        if named is not None and not takes_kwargs(kind):
            continue
        given = {} if named is None else {"model_init_kwargs": {"attn_implementation": named}}
        chosen: dict[str, Any] = {"per_device_train_batch_size": 4, **given}
        if kind in ROLLING:
            made, _ = grpo.trainer(ctx, {"model": folder, **chosen, "per_device_train_batch_size": 8}, kind)
        else:
            made = alignment.create(ctx, kind, chosen, model=folder, train_dataset=rows_of(kind))
        title = f"{kind}, attention {named}"
        found = tensors(made.model)
        yield equal(f"class of the loaded model, {title}", type(made.model).__name__, "LlamaForCausalLM")
        yield at_most(f"weights off the checkpoint's, {title}", tolerance.worst_tensor(found, wanted), 0.0)
        attention = made.model.config._attn_implementation  # noqa: SLF001 - as transformers' documentation has it
        yield equal(f"attention, {title}", attention, named or "sdpa")
