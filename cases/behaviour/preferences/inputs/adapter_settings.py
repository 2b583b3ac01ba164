"""Settings of TRL's trainers that leave what is computed as it is: recomputation, precision, precomputed references.

A trainer reads its rows in order, and an adapter has values other than zero.
"""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, kto, policies, preference, reward
from cases.behaviour.preferences.inputs.row_forms import known
from cases.behaviour.preferences.preference import FULL, GENTLE
from cases.reference import tolerance
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context

GROUP = "Preference losses"
ROUNDED = 0.05  # of a loss whose products are in bfloat16


def rows_of(kind: str) -> Any:
    if kind == "KTO":
        return kto.columns(kto.rows())
    if kind == "SFT":
        return ingredients.dataset(
            text=[policies.text(policies.tokens(length, length)).strip() for length in (5, 9, 3, 7)]
        )
    if kind == "Reward":
        return reward.columns(reward.pairs(), margins=False)
    return preference.columns(preference.pairs())


def adapted(ctx: Context, kind: str, *, held: Any = None, **chosen: Any) -> Any:
    """A trainer of one step of four rows, with an adapter of set values; ``held`` is the dtype of its base."""
    settings = {"per_device_train_batch_size": 4, "max_steps": 1, "learning_rate": 0.1, **chosen}
    if kind == "SFT":
        settings |= {"dataset_text_field": "text", "remove_unused_columns": True}
    if kind == "Reward":
        given = {"model": reward.model(ctx), "peft_config": alignment.lora(task_type="SEQ_CLS")}
        settings["max_length"] = 32
    else:
        given = alignment.fresh(ctx)
    if held is not None:
        given["model"] = given["model"].to(held)
    return alignment.fill(alignment.create(ctx, kind, settings, train_dataset=rows_of(kind), **given))


def recomputed(ctx: Context, kinds: Sequence[str]) -> Iterator[Check]:
    for kind in known(tuple(kinds)):
        plain = adapted(ctx, kind)
        plain.train()
        largest = max(float(each.abs().max()) for each in plain.micro_gradients[0].values())
        yield at_least(f"largest gradient, {kind}", largest, 1e-6)
        for reentrant in (True, False):
            settings = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}
            made = adapted(ctx, kind, **settings)
            made.train()
            off = tolerance.worst_tensor(made.micro_gradients[0], plain.micro_gradients[0])
            yield at_most(f"gradients off, {kind}, use_reentrant={reentrant}", off, alignment.SAME)
            off = alignment.off(made.micro_losses[0], plain.micro_losses[0])
            yield at_most(f"loss off, {kind}, use_reentrant={reentrant}", off, alignment.SAME)


@call(GROUP, phase=Phase.BACKWARD)
def pairs_recompute_adapted_layers(ctx: Context) -> Iterator[Check]:
    """gradient_checkpointing, with reentry or without, leaves an adapter's gradients in DPOTrainer and its kin."""
    yield from recomputed(ctx, ("DPO", "CPO", "ORPO"))


@call(GROUP, phase=Phase.BACKWARD)
def rows_recompute_adapted_layers(ctx: Context) -> Iterator[Check]:
    """gradient_checkpointing, with reentry or without, leaves an adapter's gradients in KTOTrainer and SFTTrainer."""
    yield from recomputed(ctx, ("KTO", "SFT"))


@call(GROUP, phase=Phase.BACKWARD)
def reward_recomputes_adapted_layers(ctx: Context) -> Iterator[Check]:
    """gradient_checkpointing, with reentry or without, leaves an adapter's gradients in RewardTrainer as they are."""
    yield from recomputed(ctx, ("Reward",))


def rounded(ctx: Context, kinds: Sequence[str]) -> Iterator[Check]:
    for kind in known(tuple(kinds)):
        os.environ.pop("ACCELERATE_MIXED_PRECISION", None)  # which earlier arguments with bf16=True leave behind
        plain, made = adapted(ctx, kind), adapted(ctx, kind, bf16=True)
        dtypes = {str(each.dtype) for each in made.model.parameters()}
        yield equal(f"dtypes of weights, {kind}", str(dtypes), "{'torch.float32'}")
        plain.train()
        made.train()
        off = alignment.off(made.micro_losses[0], plain.micro_losses[0])
        yield at_most(f"loss off in bfloat16, {kind}", off, ROUNDED)
        yield equal(f"loss rounded, {kind}", made.micro_losses[0] != plain.micro_losses[0], bound=True)
        dtypes = {str(each.dtype) for each in made.model.parameters()}
        yield equal(f"dtypes of weights afterwards, {kind}", str(dtypes), "{'torch.float32'}")


@call(GROUP, phase=Phase.FORWARD)
def trl_keeps_adapters_in_float32(ctx: Context) -> Iterator[Check]:
    """With bf16=True, adapters on a base that is not quantised, and the base, stay in float32 in each trainer."""
    yield from rounded(ctx, ("DPO", "CPO", "ORPO", "SFT", "Reward"))


@call(GROUP, phase=Phase.FORWARD)
def kto_keeps_adapters_in_float32(ctx: Context) -> Iterator[Check]:
    """With bf16=True, KTOTrainer trains an adapter, which stays in float32, on a base that is not quantised."""
    yield from rounded(ctx, ("KTO",))


def dtypes_of_base(model: Any) -> str:
    """The dtypes of the weights that are not trained."""
    return ", ".join(sorted({str(each.dtype) for each in model.parameters() if not each.requires_grad}))


def kept_in_bfloat16(ctx: Context, kinds: Sequence[str]) -> Iterator[Check]:
    import torch

    for kind in known(tuple(kinds)):
        plain, made = adapted(ctx, kind), adapted(ctx, kind, held=torch.bfloat16)
        yield equal(f"dtypes of the base, {kind}", dtypes_of_base(made.model), "torch.bfloat16")
        plain.train()
        made.train()
        yield equal(f"dtypes of the base afterwards, {kind}", dtypes_of_base(made.model), "torch.bfloat16")
        off = alignment.off(made.micro_losses[0], plain.micro_losses[0])
        yield at_most(f"loss off on a base in bfloat16, {kind}", off, ROUNDED)
        still = sum(not bool(each.any()) for each in made.micro_gradients[0].values())
        yield equal(f"trained tensors without a gradient, {kind}", still, 0)


@call(GROUP, phase=Phase.FORWARD)
def trl_keeps_bases_in_bfloat16(ctx: Context) -> Iterator[Check]:
    """With peft_config, a base in bfloat16 that is not quantised stays in bfloat16 in each trainer, and trains."""
    yield from kept_in_bfloat16(ctx, ("DPO", "CPO", "ORPO", "SFT", "Reward"))


@call(GROUP, phase=Phase.FORWARD)
def kto_keeps_bases_in_bfloat16(ctx: Context) -> Iterator[Check]:
    """With peft_config, KTOTrainer leaves a base in bfloat16 that is not quantised as it is, and trains the adapter."""
    yield from kept_in_bfloat16(ctx, ("KTO",))


@call(GROUP, phase=Phase.OPTIMIZER)
def kto_precomputes_for_all_weights(ctx: Context) -> Iterator[Check]:
    """KTOTrainer's precompute_ref_log_probs without an adapter or ref_model takes the model before its training.

    Another training begins from the same log-probabilities.
    """
    both, data = policies.policies(ctx.cache, FULL), kto.rows()
    settings = {"beta": kto.BETA, "desirable_weight": kto.GOOD, "undesirable_weight": kto.BAD}
    settings |= {"per_device_train_batch_size": 4, "learning_rate": GENTLE, "precompute_ref_log_probs": True}
    made = alignment.create(ctx, "KTO", settings, model=ingredients.base(ctx), train_dataset=kto.columns(data))
    steps = policies.dealt(kto.mismatched(data, 4, 1), 4)
    expected = policies.train(both.trained, steps, kto.loss_of(both), GENTLE)
    yield from alignment.as_defined(alignment.trained(made), expected)
    before, names = len(made.train_dataset), set(made.train_dataset.column_names)
    batches = list(made.get_train_dataloader())
    yield equal("batches of another training", len(batches), 2)
    after = (len(made.train_dataset), set(made.train_dataset.column_names))
    yield equal("rows and columns of another training", after == (before, names), bound=True)


@call(GROUP, phase=Phase.FORWARD)
def kto_logs_either_kind(ctx: Context) -> Iterator[Check]:
    """KTOTrainer logs of an undesirable row as "rejected" what it logs of the same desirable row as "chosen"."""
    row = kto.rows()[0]
    both = policies.policies(ctx.cache, Options())
    ratio, learned = kto.ratio(both, row.prompt, row.completion)
    data = kto.columns([row, row]).remove_columns("label").add_column("label", [True, False])
    settings = {"beta": kto.BETA, "loss_type": "apo_zero_unpaired", "learning_rate": 0.0}
    settings |= {"per_device_train_batch_size": 1, "max_steps": 2}
    made = alignment.fill(alignment.create(ctx, "KTO", settings, train_dataset=data, **alignment.fresh(ctx)))
    made.train()
    entries = [entry for entry in made.state.log_history if "loss" in entry]
    kinds = ["chosen" if "logps/chosen" in entry else "rejected" for entry in entries]
    yield equal("kinds that are logged", ", ".join(sorted(kinds)), "chosen, rejected")
    by_kind = dict(zip(kinds, entries, strict=True))
    for name, value in {"logps": learned.item(), "rewards": kto.BETA * ratio.item(), "logits": None}.items():
        found = {kind: entry.get(f"{name}/{kind}", float("inf")) for kind, entry in by_kind.items()}
        yield at_most(f"{name} of both kinds apart", abs(found["chosen"] - found["rejected"]), alignment.SAME)
        yield at_least(f"{name} of both kinds, without their sign", abs(found["rejected"]), 1e-4)
        if value is not None:
            yield at_most(f"{name} off", alignment.off(found["rejected"], value), alignment.SAME)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("cpo_model_init",))
def trl_trains_fresh_models(ctx: Context) -> Iterator[Check]:
    """With model_init, trainers of preferences train the model that it makes at each start."""
    for kind in known(("CPO", "ORPO", "KTO", "DPO")):
        if "model_init" not in inspect.signature(alignment.named(f"{kind}Trainer").__init__).parameters:
            continue
        fresh: list[Any] = []

        def begin(fresh: list[Any] = fresh) -> Any:
            fresh.append(ingredients.base(ctx))
            return fresh[-1]

        settings = {"per_device_train_batch_size": 4, "max_steps": 1}
        given = {"model": ingredients.base(ctx), "model_init": begin, "train_dataset": rows_of(kind)}
        made = alignment.create(ctx, kind, settings, **given)
        before = len(fresh)
        made.train()
        yield equal(f"models made by a training, {kind}", len(fresh) - before, 1)
        yield equal(f"trains the last one, {kind}", made.model is fresh[-1], bound=True)
