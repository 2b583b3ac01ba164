"""The loss that balances the experts of a mixture, in TRL's trainers: what router_aux_loss_coef adds to each loss.

https://huggingface.co/docs/trl/grpo_trainer; the auxiliary loss is that of Switch Transformer.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.behaviour.preferences import alignment, grpo, kto, pair_losses, policies, preference
from cases.behaviour.preferences.inputs.row_forms import known
from cases.behaviour.trainers import stock_trainer
from cases.model import tiny
from cases.reference.models import mixtral
from cases.reference.network import Batch
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Preference losses"
NEEDS = ("model_mixtral", "grpo", "grpo_router_aux_loss_coef")
SHARE = 0.5  # router_aux_loss_coef
SAME = 1e-5  # of a loss
SHORT = 1e-4  # relative: a difference of weights in float32


def balance(folder: Path, rows: Sequence[list[int]]) -> float:
    """The auxiliary loss of rows together, each read alone: float64. Padding does not count."""
    import torch

    network = building.network(folder)
    layers: list[list[Any]] = [[] for _ in range(network.config["num_hidden_layers"])]
    for row in rows:
        mixtral.logits(network, Batch(ids=torch.tensor([row])))
        for number, found in enumerate(layers):
            found.append(building.recorded(network, f"model.layers.{number}.block_sparse_moe.gate")[0])
    routed = torch.stack([torch.cat(each) for each in layers])[:, None]
    return float(mixtral.balance_loss(routed, network.config["num_experts_per_tok"]))


def first_loss(ctx: Context, folder: Path, kind: str, share: float, data: Any) -> tuple[float, Any]:
    """The loss of the first batch of a trainer with this coefficient, and what generated it, if something did."""
    model = building.loaded(ctx, folder)
    settings = {"max_steps": 1, "router_aux_loss_coef": share, "learning_rate": 0.0}
    if kind == "GRPO":
        made, rollouts = grpo.trainer(ctx, {"model": model, "temperature": 1.0, "beta": 0.0, **settings})
        made.train()
        return made.micro_losses[0], rollouts.calls[0]
    made = alignment.create(ctx, kind, {"per_device_train_batch_size": 4, **settings}, model=model, train_dataset=data)
    made.train()
    return made.micro_losses[0], None


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def auxiliary_losses(ctx: Context) -> Iterator[Check]:
    """router_aux_loss_coef adds the balance of experts over the tokens that the policy reads, times itself, once.

    For SFTTrainer, DPOTrainer, KTOTrainer and GRPOTrainer; 0 adds nothing.
    """
    pairs, judged = preference.pairs()[:4], kto.rows()[:4]
    texts = [policies.tokens(length, 900 + length) for length in (5, 9, 3, 7)]
    sets: dict[str, tuple[Any, list[list[int]]]] = {
        "SFT": (ingredients.dataset(text=[*map(policies.text, texts)]), [[*each, tiny.END] for each in texts]),
        "DPO": (preference.columns(pairs), [[*one, *other] for row in pairs for one, other in row.sequences]),
        "KTO": (kto.columns(judged), [[*row.prompt, *row.completion, tiny.END] for row in judged]),
        "GRPO": (None, []),
    }
    folder = Variant("mixtral").written(ctx, "policy")
    for kind, (data, rows) in sets.items():
        without, _ = first_loss(ctx, folder, kind, 0.0, data)
        found, calls = first_loss(ctx, folder, kind, SHARE, data)
        read = rows or [[*prompt, *completion] for prompt, completion in calls]
        wanted = SHARE * balance(folder, read)
        yield at_most(f"what the coefficient adds, off, {kind}", abs(found - without - wanted), SAME)


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mixtral", "sft_router_aux_loss_coef"))
def auxiliary_losses_accumulated(ctx: Context) -> Iterator[Check]:
    """With gradient accumulation, SFTTrainer adds router_aux_loss_coef times the mean balance of a step's batches."""
    texts = [policies.tokens(length, 900 + length) for length in (5, 9, 3, 7)]
    folder = Variant("mixtral").written(ctx, "policy")
    data = ingredients.dataset(text=[*map(policies.text, texts)])
    for batches in (1, 2, 4):
        size = len(texts) // batches
        settings = {"max_steps": 1, "learning_rate": 0.0, "gradient_accumulation_steps": batches}
        losses = []
        for share in (0.0, SHARE):
            chosen = {**settings, "per_device_train_batch_size": size, "router_aux_loss_coef": share}
            model = building.loaded(ctx, folder)
            made = alignment.create(ctx, "SFT", chosen, model=model, train_dataset=data)
            made.train()
            losses.append(sum(made.micro_losses))
        rows = [[*each, tiny.END] for each in texts]
        balances = [balance(folder, rows[begin : begin + size]) for begin in range(0, len(rows), size)]
        wanted = SHARE * policies.mean(balances)
        yield at_most(f"what the coefficient adds, off, {batches} batches", abs(losses[1] - losses[0] - wanted), SAME)


def one_step(batches: int) -> dict[str, Any]:
    """One step of plain SGD over four rows."""
    plain = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
    return {
        "max_steps": 1,
        "gradient_accumulation_steps": batches,
        "per_device_train_batch_size": 4 // batches,
        **plain,
    }


def router(model: Any) -> Any:
    """The weight that chooses the experts of the first layer."""
    return next(each for name, each in model.named_parameters() if name.endswith(".gate.weight"))


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mixtral",))
def router_losses_accumulated(ctx: Context) -> Iterator[Check]:
    """With gradient accumulation, the Trainer adds router_aux_loss_coef times the mean balance of a step's batches."""
    import torch

    folder = Variant("mixtral").written(ctx, "policy")
    for batches in (1, 2, 4):
        changes = []
        for share in (0.0, SHARE):
            model = building.loaded(ctx, folder, output_router_logits=True, router_aux_loss_coef=share)
            made = stock_trainer.trainer(ctx, 4, of=model, **one_step(batches))
            record, before = stock_trainer.observed(made), router(model).detach().clone()
            made.train()
            changes.append(before - router(model).detach())
        fresh = building.loaded(ctx, folder, output_router_logits=True).train()
        wanted = torch.zeros_like(changes[0])
        for batch in record.steps[0]:
            rows = {
                name: each.to(ctx.place.device)
                for name, each in stock_trainer.padded([stock_trainer.row(number) for number in batch]).items()
            }
            (gradient,) = torch.autograd.grad(fresh(**rows).aux_loss, router(fresh))
            wanted += SHARE * gradient / batches
        found = changes[1] - changes[0]
        yield at_most(f"what the coefficient adds to the router off, {batches} batches", relative(found, wanted), SHORT)


@call(GROUP, phase=Phase.FORWARD, requires=("model_mixtral",))
def pairs_balance_real_tokens(ctx: Context) -> Iterator[Check]:
    """Trainers of pairs add the balance of a mixture's experts over both texts of each pair; padding does not count.

    As configured: output_router_logits switches the loss on, router_aux_loss_coef of the model or, in later versions,
    of the trainer is its weight.
    """
    folder = Variant("mixtral").written(ctx, "pairs")
    rows = preference.pairs(pair_losses.LENGTHS)[:2]
    read = [[*one, *other] for row in rows for one, other in row.sequences]
    wanted = SHARE * balance(folder, read)
    for kind in known(("DPO", "CPO")):
        losses = []
        for share in (0.0, SHARE):
            model = building.loaded(ctx, folder)
            model.config.output_router_logits, model.config.router_aux_loss_coef = True, share
            settings = {"max_steps": 1, "learning_rate": 0.0, "per_device_train_batch_size": 2}
            own = "router_aux_loss_coef"
            settings |= {own: share} if own in alignment.options_of(kind) else {}
            made = alignment.create(ctx, kind, settings, model=model, train_dataset=preference.columns(rows))
            made.train()
            losses.append(made.micro_losses[0])
        yield at_most(f"what the coefficient adds, off, {kind}", abs(losses[1] - losses[0] - wanted), SAME)


@call(GROUP, phase=Phase.FORWARD, requires=("jetmoe",))
def mixtures_without_a_coefficient(ctx: Context) -> Iterator[Check]:
    """Nothing is added to the losses of a mixture whose configuration states no router_aux_loss_coef, as JetMoe's.

    While the policy is the reference, the loss of DPOTrainer is log 2, and that of KTOTrainer 1/2.
    """
    import torch
    from transformers import JetMoeConfig, JetMoeForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 1, "num_key_value_heads": 2}
    config = JetMoeConfig(vocab_size=tiny.VOCABULARY, kv_channels=8, num_local_experts=4, **sizes)
    model = JetMoeForCausalLM(config)
    sets = {"DPO": preference.columns(preference.pairs()[:4]), "KTO": kto.columns(kto.rows()[:4])}
    settings = {"max_steps": 1, "learning_rate": 0.0, "per_device_train_batch_size": 4}
    for kind, wanted in (("DPO", math.log(2)), ("KTO", 0.5)):
        models = {"model": copy.deepcopy(model), "ref_model": copy.deepcopy(model)}
        made = alignment.create(ctx, kind, settings, train_dataset=sets[kind], **models)
        made.train()
        yield at_most(f"loss of a mixture off, {kind}", abs(made.micro_losses[0] - wanted), SAME)
