"""The base below a prompt, below an adapter and below several of them, as a script gets it back.

https://huggingface.co/docs/peft/package_reference/peft_model, "get_base_model: Returns the base model".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import FIRST, NEAR, SECOND
from cases.behaviour.adapters.methods.prompts_in_use import KINDS, NEW, PROMPTING, prompted
from cases.model import tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check


def configurations() -> dict[str, Any]:
    """Each kind of prompt, LoRA with and without a task, and two adapters: configurations, the first one active."""
    import peft

    lora = {"r": 4, "target_modules": ["q_proj"]}
    found = {key: [kind.made()] for key, kind in KINDS.items()}
    found["two prompts"] = [KINDS["prompt"].made(), KINDS["prompt"].made()]
    found["LoRA without a task"] = [peft.LoraConfig(**lora)]
    found["LoRA of features"] = [peft.LoraConfig(task_type="FEATURE_EXTRACTION", **lora)]
    found["two LoRA"] = [FIRST.config(), SECOND.config()]
    found["(IA)³"] = [
        peft.IA3Config(task_type="CAUSAL_LM", target_modules=["q_proj"], feedforward_modules=[]),
    ]
    return found


@call(PROMPTING, phase=Phase.ADAPT)
def base_of_every_kind(ctx: Context) -> Iterator[Check]:
    """get_base_model gives the model that the script adapted, head included, for every kind of prompt and adapter.

    Below a prompt it computes as before, because nothing was put into it; below a fresh adapter, too. Its attributes
    are those of the adapted model, and the Trainer reads the arguments of its forward method.
    """
    import inspect

    import peft

    base = reference.read(ctx)
    for title, configs in configurations().items():
        original = reference.loaded(ctx)
        forward = str(inspect.signature(type(original).forward))
        model = peft.get_peft_model(original, configs[0], adapter_name="first")
        if configs[1:]:
            model.add_adapter("second", configs[1])
        found = model.get_base_model()
        yield equal(f"the script's own object, {title}", found is original, bound=True)
        yield equal(f"class, {title}", type(found).__name__, type(original).__name__)
        same = str(inspect.signature(type(found).forward)) == forward
        yield equal(f"the arguments of its forward method, {title}", same, bound=True)
        yield equal(f"configuration, {title}", model.config is original.config, bound=True)
        logits = reference.logits(found.eval())
        yield at_most(f"logits off, {title}", relative(logits, base.logits()), NEAR)
        yield equal(f"rows of logits, {title}", str(tuple(logits.shape[:2])), str(tuple(tiny.batch(0).shape)))
        for name in ("first", "second")[: len(configs)]:
            model.set_adapter(name)
            yield equal(f"the same with {name} active, {title}", model.get_base_model() is original, bound=True)


@call(PROMPTING, phase=Phase.INFER)
def base_writes_after_prompts(ctx: Context) -> Iterator[Check]:
    """After a text was generated behind a prompt, the model without its prompt generates what its base does."""
    ids = tiny.prompt()[:2]
    usual = {"attention_mask": ids.new_ones(ids.shape), "max_new_tokens": NEW, "do_sample": False}
    usual["use_cache"] = True  # which holds a prefix; the base's configuration has none
    for key, kind in KINDS.items():
        wanted = reference.loaded(ctx).eval().generate(input_ids=ids, **usual).tolist()
        model = prompted(ctx, kind)
        model.generate(input_ids=ids, **usual)
        with model.disable_adapter():
            found = model.generate(input_ids=ids, **usual).tolist()
        yield equal(f"tokens without the prompt, {key}", str(found), str(wanted))


@call(PROMPTING, phase=Phase.INFER)
def prefix_writes_without_cache(ctx: Context) -> Iterator[Check]:
    """Behind a prefix, generating without a cache gives the text that repeated passes of the model give."""
    import torch

    ids = tiny.prompt()[:2]
    model = prompted(ctx, KINDS["prefix"])
    wanted = ids
    with torch.no_grad():
        for _ in range(NEW):
            logits = model(input_ids=wanted, attention_mask=wanted.new_ones(wanted.shape)).logits
            wanted = torch.cat([wanted, logits[:, -1:].argmax(-1)], 1)
    for cached in (True, False):
        mask = ids.new_ones(ids.shape)
        found = model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=NEW, do_sample=False, use_cache=cached
        )
        yield equal(f"tokens, use_cache={cached}", str(found.tolist()), str(wanted.tolist()))
