"""The parameters that the Trainer decays beside those of whole models: adapters, heads, and layers of a user's own.

``weight_decay`` applies to "all layers except all bias and LayerNorm weights"
(https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.weight_decay).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import stock_trainer
from cases.behaviour.trainers.optimisers import decays
from cases.model import architectures, tiny
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.apply.context import Context

GROUP = "Trainer: optimisers"
RATE, DECAY = 0.5, 0.25
# The base, and the arguments of LoraConfig; Qwen 2's q_proj and GPT-2's c_attn have biases.
ADAPTERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "lora": ("llama", {"target_modules": ["q_proj", "embed_tokens"]}),
    "biases of adapted layers": ("qwen", {"target_modules": ["q_proj"], "bias": "lora_only"}),
    "all biases": ("gpt2", {"target_modules": ["c_attn"], "bias": "all", "fan_in_fan_out": True}),
    "a saved head": ("llama", {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
    "saved norms": ("gpt2", {"target_modules": ["c_attn"], "modules_to_save": ["ln_f"], "fan_in_fan_out": True}),
}


def decayed(optimiser: Any) -> dict[int, float]:
    """The decay of each parameter that the optimiser holds."""
    return {id(p): group["weight_decay"] for group in optimiser.param_groups for p in group["params"]}


def compared(title: str, trainer: Any, norms: Sequence[str] = ()) -> Iterator[Check]:
    """Compare the decay of each trained parameter with the documented rule; ``norms`` are norms with other names."""
    found = decayed(trainer.create_optimizer())
    trained = {name: p for name, p in trainer.model.named_parameters() if p.requires_grad}
    wanted = {name: DECAY if decays(name) and not name.startswith(tuple(norms)) else 0.0 for name in trained}
    wrong = [name for name, p in trained.items() if found.get(id(p)) != wanted[name]]
    yield equal(f"parameters with another decay, {title}", ", ".join(wrong) or "none", "none")
    yield equal(f"frozen parameters that it holds, {title}", len(found.keys() - {id(p) for p in trained.values()}), 0)
    yield at_least(f"parameters that decay, {title}", sum(each > 0 for each in wanted.values()), 1)
    groups = [group["weight_decay"] for group in trainer.optimizer.param_groups]
    yield equal(f"decays of the groups, {title}", str(groups), str([DECAY, 0.0]))  # also of a group without parameters


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_decayed_adapters(ctx: Context) -> Iterator[Check]:
    """The Trainer decays A, B and saved heads of adapters, but neither trained biases nor norms, nor frozen weights."""
    from peft import LoraConfig, get_peft_model

    for title, (base, arguments) in ADAPTERS.items():
        config = LoraConfig(task_type="CAUSAL_LM", r=tiny.RANK, **arguments)
        model = get_peft_model(stock_trainer.model(ctx, base), config)
        yield from compared(title, stock_trainer.trainer(ctx, 1, of=model, weight_decay=DECAY))


@call(GROUP, phase=Phase.OPTIMIZER, requires=("llama_token_classes",))
def trainer_decayed_heads(ctx: Context) -> Iterator[Check]:
    """The Trainer decays the weight of a classifier's head, but not its bias."""
    from transformers import AutoModelForTokenClassification

    for base in ("llama", "gpt2"):
        chosen = stock_trainer.options(base)
        folder = architectures.checkpoint(chosen, ctx.cache)
        model = AutoModelForTokenClassification.from_pretrained(folder, num_labels=3)
        yield from compared(base, stock_trainer.trainer(ctx, 1, of=model, weight_decay=DECAY))


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_decayed_own_layers(ctx: Context) -> Iterator[Check]:
    """The Trainer finds the LayerNorms of a user's model by their class, whatever their names."""
    import torch

    parts = {"table": torch.nn.Embedding(5, 4), "scale": torch.nn.LayerNorm(4), "out": torch.nn.Linear(4, 3)}
    model = torch.nn.ModuleDict({**parts, "inner": torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))})
    yield from compared("own layers", stock_trainer.trainer(ctx, 1, of=model, weight_decay=DECAY), ("scale", "inner.1"))


@call(GROUP, phase=Phase.OPTIMIZER, requires=("model_qwen3",))
def trainer_decayed_query_norms(ctx: Context) -> Iterator[Check]:
    """The Trainer decays no norm of Qwen 3, whose queries and keys have norms of their own."""
    yield from compared(
        "qwen3", stock_trainer.trainer(ctx, 1, of=stock_trainer.model(ctx, "qwen3"), weight_decay=DECAY)
    )


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_decay_alone(ctx: Context) -> Iterator[Check]:
    """A step without gradients multiplies decayed weights by 1 - rate * decay, and leaves biases and norms as they are.

    https://arxiv.org/abs/1711.05101, algorithm 2: the decay is apart from the gradient.
    """
    import torch

    for base in ("qwen", "gpt2"):
        model = stock_trainer.model(ctx, base)
        trainer = stock_trainer.trainer(
            ctx, 1, of=model, weight_decay=DECAY, learning_rate=RATE, optim="adamw_torch", adam_epsilon=1.0
        )
        optimiser = trainer.create_optimizer()
        before = {name: p.detach().double().clone() for name, p in model.named_parameters()}
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimiser.step()
        factor = {True: 1 - RATE * DECAY, False: 1.0}
        off = {
            is_decayed: max(
                float((p.detach().double() - factor[is_decayed] * before[name]).abs().max())
                for name, p in model.named_parameters()
                if decays(name) is is_decayed
            )
            for is_decayed in (True, False)
        }
        yield at_most(f"decayed weights off, {base}", off[True], 1e-6)
        yield at_most(f"biases and norms off, {base}", off[False], 0.0)
