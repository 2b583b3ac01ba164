"""Saving prompts in the middle of training, and loading them under other names."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.adapters_in_use import descend
from cases.behaviour.adapters.methods.prompts_in_use import KINDS, PROMPTING, VIRTUAL, of, off, prompted
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.model import tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.behaviour.adapters.methods.prompts_in_use import Prompt
    from cases.space.verdict import Check


def trained(model: Any) -> list[str]:
    return sorted(name for name, parameter in model.named_parameters() if parameter.requires_grad)


def seen(model: Any) -> list[Any]:
    """What saving must leave: the mode of each module, the trained parameters, and the field for inference."""
    modes = [module.training for module in model.modules()]
    return [modes, trained(model), [config.inference_mode for config in model.peft_config.values()]]


def saved_in_training(ctx: Context, key: str, made: Callable[[], Any]) -> Iterator[Check]:
    """Compare a model that is saved between two steps with one that is not."""
    saved, other = made(), made()
    for model in (saved, other):
        descend(model)
    before, logits = seen(saved), reference.logits(saved)
    saved.save_pretrained(ctx.kept / key)
    for what, one, again in zip(("modes", "trained", "inference_mode"), before, seen(saved), strict=True):
        yield equal(f"{what} of {key} as before", one == again, bound=True)
    yield equal(f"inference_mode of {key}", any(before[2]), bound=False)
    yield at_most(f"logits of {key} off", float((reference.logits(saved) - logits).abs().max()), 0.0)
    for model in (saved, other):
        descend(model)
    changed = reference.changed(reference.state(saved), reference.state(other))
    yield equal(f"weights of {key} that differ after a step", reference.written(changed), "none")


def in_training(ctx: Context, kind: Prompt) -> Any:
    return prompted(ctx, kind).train()


@call(PROMPTING, phase=Phase.SAVE)
def save_prompts_in_training(ctx: Context) -> Iterator[Check]:
    """Saving a prompt in the middle of training changes neither the model nor its next step, for every kind."""
    for key, kind in KINDS.items():
        yield from saved_in_training(ctx, key, partial(in_training, ctx, kind))


@call(PROMPTING, phase=Phase.SAVE)
def save_heads_in_training(ctx: Context) -> Iterator[Check]:
    """Saving an adapter with a trained head in the middle of training changes neither the model nor its next step."""
    adapter = reference.Adapter(name="first", rank=4, alpha=12, more={"modules_to_save": ["lm_head"]})
    yield from saved_in_training(ctx, "lora", lambda: reference.adapted(ctx, adapter, reference.SECOND).train())


def reloaded(ctx: Context, kind: Prompt) -> tuple[Any, Any]:
    """A model with two prompts, and one that has loaded the second of them as "one"."""
    from peft import PeftModel

    model, folder = prompted(ctx, kind, "first", "second"), saved(ctx, kind)
    model.save_pretrained(folder)
    again = PeftModel.from_pretrained(reference.loaded(ctx), folder / "second", adapter_name="one")
    again.load_adapter(folder / "first", adapter_name="other")
    return model, again


def saved(ctx: Context, kind: Prompt) -> Path:
    return ctx.kept / next(key for key, each in KINDS.items() if each == kind)


@call(PROMPTING, phase=Phase.RELOAD)
def reload_prompts(ctx: Context) -> Iterator[Check]:
    """Every kind of prompt is loaded for inference under another name, untrained, and switched."""
    base = reference.read(ctx)
    for key, kind in KINDS.items():
        model, again = reloaded(ctx, kind)
        for name, original in (("one", "second"), ("other", "first")):
            again.set_adapter(name)
            wanted = of(base, model, kind, original)
            yield off(f"logits of {key} off", reference.logits(again.eval()), wanted)
            yield off(f"logits of {key} off in training", reference.logits(again.train()), wanted)
        yield equal(f"loaded tensors of {key}", sum("prompt_encoder" in n for n, _ in again.named_parameters()), 2)


@call(PROMPTING, phase=Phase.RELOAD)
def reload_to_train_prompts(ctx: Context) -> Iterator[Check]:
    """A prompt goes on training where it was saved, or loading with is_trainable=True refuses.

    Files hold the encoded prompt alone. A new encoder in front of it would start from another prompt.
    """
    base = reference.read(ctx)
    for key, kind in KINDS.items():
        model, again = reloaded(ctx, kind)
        wanted = of(base, model, kind, "second")
        for way in ("from_pretrained", "load_adapter"):
            try:
                found = trained_again(ctx, way, again, kind)
            except ValueError:  # a refusal
                found = wanted
            yield off(f"logits of {key} after {way} off", found, wanted)


@call(PROMPTING, phase=Phase.RELOAD, requires=("model_t5",))
def reload_prompts_of_t5(ctx: Context) -> Iterator[Check]:
    """A prompt of an encoder-decoder has virtual tokens for both of its parts, which its file keeps.

    "total_virtual_tokens": https://huggingface.co/docs/peft/package_reference/prompt_tuning.
    """
    import peft
    import torch

    folder = Variant("t5").written(ctx, "base")
    ids, answers = tiny.batch(0), tiny.batch(1)[:, :6]
    for key in ("prompt", "mlp", "lstm"):
        torch.manual_seed(0)
        model = peft.get_peft_model(building.loaded(ctx, folder), KINDS[key].made(task_type="SEQ_2_SEQ_LM")).eval()
        model.save_pretrained(ctx.kept / f"t5-{key}")
        again = peft.PeftModel.from_pretrained(building.loaded(ctx, folder), ctx.kept / f"t5-{key}").eval()
        with torch.no_grad():
            plain, found, reread = (
                each(input_ids=ids, decoder_input_ids=answers).logits
                for each in (building.loaded(ctx, folder), model, again)
            )
        state = peft.get_peft_model_state_dict(model)["prompt_embeddings"]
        yield equal(f"virtual tokens in the file, {key}", state.shape[0], 2 * VIRTUAL)
        yield at_least(f"what the prompt does, {key}", float((found[:, -6:] - plain).abs().max()), 1e-4)
        yield at_most(f"logits of the loaded prompt off, {key}", relative(reread, found), 2 * reference.NEAR)


def trained_again(ctx: Context, way: str, again: Any, kind: Prompt) -> Any:
    """The logits in training of the second prompt, loaded to be trained."""
    from peft import PeftModel

    folder = saved(ctx, kind) / "second"
    if way == "load_adapter":
        again.load_adapter(folder, adapter_name="trained", is_trainable=True)
        again.set_adapter("trained")
    else:
        again = PeftModel.from_pretrained(reference.loaded(ctx), folder, is_trainable=True)
    return reference.logits(again.train())
