"""Settings of TRL's trainers that must reach dropout, precomputed references, generation, templates and entropies.

https://huggingface.co/docs/trl documents each of them with its configuration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.data import chat_templates
from cases.behaviour.preferences import alignment, grpo, kto, policies, preference, reward
from cases.behaviour.preferences.grpo_variants import Exploring, entropies
from cases.behaviour.preferences.inputs.adapter_settings import rows_of
from cases.behaviour.preferences.inputs.row_forms import known
from cases.model import tiny
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.behaviour.preferences.grpo_variants import Rows
    from cases.reference.network import Network

GROUP = "Arguments of TRL"
PAIRED = ("DPO", "KTO", "CPO", "ORPO", "Reward")
GENERATING = ("GRPO", "RLOO")
REFERRING = ("DPO", "KTO")
DROPOUT = 0.4
STILL: dict[str, Any] = {"learning_rate": 0.0, "beta": 0.0, "max_steps": 1}
STEPS, FIRST, DELTA, LEAST, MOST = 4, 0.3, 0.15, 0.05, 0.55


def rates(model: Any) -> set[float]:
    import torch

    return {float(each.p) for each in model.modules() if isinstance(each, torch.nn.Dropout)}


def noisy(ctx: Context, kind: str) -> Any:
    """A model with dropout behind a layer, as released checkpoints of GPT-2 have it."""
    import torch

    base = reward.model(ctx) if kind == "Reward" else ingredients.base(ctx)
    layer = base.model.layers[0].mlp
    layer.down_proj = torch.nn.Sequential(layer.down_proj, torch.nn.Dropout(DROPOUT))
    return base


def with_dropout(ctx: Context, kind: str, *, disabled: bool) -> Any:
    """A trainer on such a model, and with such a reference if it takes one."""
    chosen: dict[str, Any] = {"disable_dropout": disabled}
    if kind in GENERATING:
        return grpo.trainer(ctx, {**STILL, **chosen, "model": noisy(ctx, kind)}, kind)[0]
    if kind == "Reward":
        chosen["max_length"] = 32
    more = {"ref_model": noisy(ctx, kind)} if kind in REFERRING else {}
    chosen["per_device_train_batch_size"] = 4
    return alignment.create(ctx, kind, chosen, train_dataset=rows_of(kind), model=noisy(ctx, kind), **more)


@call(GROUP, phase=Phase.LOAD)
def trl_disables_dropout(ctx: Context) -> Iterator[Check]:
    """disable_dropout switches the dropout of a trainer's model off, and of its reference; else it stays as it was."""
    for kind in (*known(PAIRED), *known(GENERATING)):
        if "disable_dropout" not in alignment.options_of(kind):
            continue
        for disabled in (True, False):
            made = with_dropout(ctx, kind, disabled=disabled)
            wanted = str({0.0} if disabled else {DROPOUT})
            yield equal(f"dropout of the model, {kind}, {disabled}", str(rates(made.model)), wanted)
            if kind in REFERRING:
                yield equal(f"dropout of the reference, {kind}, {disabled}", str(rates(made.ref_model)), wanted)


@call("Preference losses", phase=Phase.FORWARD, requires=("dpo_precompute_ref_batch_size",))
def precomputed_in_other_batches(ctx: Context) -> Iterator[Check]:
    """precompute_ref_batch_size of DPOTrainer and KTOTrainer changes no precomputed value, whatever rows share a batch.

    Rows have different lengths, so that the padding of a batch depends on its size.
    """
    more: dict[str, Any] = {"precompute_ref_log_probs": True, "remove_unused_columns": True}
    more["precompute_ref_batch_size"] = 3  # of batches of four
    yield from preference.compared(ctx, preference.each(preference.sigmoid), **more)
    if "precompute_ref_batch_size" in alignment.options_of("KTO"):
        yield from kto.compared(ctx, size=4, **more)


SAMPLING: Mapping[str, Any] = {
    "temperature": 0.8,
    "top_p": 0.9,
    "top_k": 11,
    "min_p": 0.05,
    "repetition_penalty": 1.2,
    "max_completion_length": grpo.LONGEST,
}
NAMES = {"max_completion_length": "max_new_tokens"}  # as GenerationConfig has them
OTHERS = {"length_penalty": 0.5, "no_repeat_ngram_size": 3, "top_k": 13}


@call(GROUP, phase=Phase.INFER, requires=("rloo", "grpo_generation_kwargs"))
def rollouts_get_sampling_settings(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer and RLOOTrainer sample by their settings, each of which generation_kwargs may replace or add to.

    They end at the tokeniser's end token, also if the model's own settings say something else.
    """
    for kind in GENERATING:
        for more in ({}, OTHERS):
            given = {**STILL, **SAMPLING, **({"generation_kwargs": more} if more else {})}
            made, rollouts = grpo.trainer(ctx, given, kind)
            seen: list[Any] = []

            def generate(*rows: Any, seen: list[Any] = seen, rollouts: Any = rollouts, **settings: Any) -> Any:
                seen.append(settings)
                return rollouts.generate(*rows, **settings)

            made.model.generation_config.top_k = 99
            made.model.generate = generate
            made.train()
            wanted = {NAMES.get(name, name): value for name, value in SAMPLING.items()} | more
            for name, value in {**wanted, "do_sample": True, "pad_token_id": tiny.PADDING}.items():
                found = getattr(seen[0]["generation_config"], name)
                yield equal(f"{name} of a generation, {kind}, {len(more)} others", found, value)
            ends = seen[0]["generation_config"].eos_token_id
            ends = list(ends) if isinstance(ends, (list, tuple, set)) else [ends]
            yield equal(f"end tokens of a generation, {kind}, {len(more)} others", str(ends), str([tiny.END]))


@call(GROUP, phase=Phase.FORWARD, requires=("rloo", "grpo_generation_batch_size"))
def rollouts_of_a_batch_size(ctx: Context) -> Iterator[Check]:
    """generation_batch_size rows are generated at once and dealt to as many batches as they make."""
    for kind in GENERATING:
        for size, steps in ((2 * grpo.GENERATIONS, 4), (grpo.GENERATIONS, 2), (4 * grpo.GENERATIONS, 4)):
            given = {**STILL, "per_device_train_batch_size": grpo.GENERATIONS, "generation_batch_size": size}
            made, rollouts = grpo.trainer(ctx, {**given, "max_steps": steps}, kind)
            made.train()
            found = [len(rows) for rows in rollouts.calls]
            number = steps * grpo.GENERATIONS // size
            yield equal(f"rows of each generation, {kind}, {size}", str(found), str([size] * number))
            yield equal(f"batches of a generation, {kind}, {size}", made.args.steps_per_generation, size // 4)


TEMPLATE = "{% if loud %}w77 {% endif %}" + chat_templates.TEMPLATE


@call("Chat templates", phase=Phase.FORWARD, requires=("rloo", "grpo_chat_template_kwargs"))
def rollouts_get_template_settings(ctx: Context) -> Iterator[Check]:
    """chat_template_kwargs of GRPOTrainer and RLOOTrainer reach the template of conversational prompts."""
    talks = [chat_templates.TALK[:2], chat_templates.SHORT[:1]] * 2
    for kind in GENERATING:
        for more in ({}, {"loud": True}):
            made, rollouts = grpo.trainer(
                ctx,
                {
                    **STILL,
                    "max_steps": 2,
                    "reward_funcs": lambda completions, **_: [0.0] * len(completions),
                    "columns": {"prompt": [chat_templates.messages(talk) for talk in talks]},
                    **({"chat_template_kwargs": more} if more else {}),
                },
                kind,
                tokenizer=chat_templates.tokenizer(TEMPLATE),
            )
            made.train()
            found = {tuple(prompt) for rows in rollouts.calls for prompt, _ in rows}
            begin = [77] if more else []
            answer = chat_templates.ROLES["assistant"]
            wanted = {(*begin, *chat_templates.ids_of(talk), answer) for talk in talks}
            yield equal(f"prompts, {kind}, {more}", str(sorted(found)), str(sorted(wanted)))


@dataclass(frozen=True)
class Adapting(Exploring):
    """A bonus whose factor rises while the entropy is at most its target, and falls above it.

    Section 4 of https://arxiv.org/abs/2505.22312, and the documentation of GRPOConfig: by entropy_coef_delta a step,
    within its bounds, and without effect after a step whose entropy was above the target. No entropy is known before
    the first step, which has no bonus.
    """

    target: float = 0.0
    factors: list[float] = field(default_factory=lambda: [FIRST])
    known: list[float] = field(default_factory=lambda: [math.inf])

    def bonus(self, policy: Network, rows: Rows) -> Any:
        found = entropies(policy, rows)
        mean = sum(each.sum() for each in found) / sum(len(each) for each in found)
        now, is_low = self.factors[-1], float(mean) <= self.target
        applied = now if self.known[-1] <= self.target else 0.0
        self.known.append(float(mean))
        self.factors.append(min(now + DELTA, MOST) if is_low else max(now - DELTA, LEAST))
        return applied * mean


@call("Preference losses", phase=Phase.OPTIMIZER, requires=("grpo", "grpo_use_adaptive_entropy"))
def grpo_adapts_entropy_bonus(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's use_adaptive_entropy raises and lowers entropy_coef by the entropy of each step, within bounds."""
    for target in (10.0, 0.1):
        definition = Adapting(grpo.by_row, target=target)
        given = {"use_adaptive_entropy": True, "entropy_coef": FIRST, "entropy_coef_delta": DELTA, "max_steps": STEPS}
        given |= {"entropy_coef_min": LEAST, "entropy_coef_max": MOST, "entropy_target": target}
        made, rollouts = grpo.trainer(ctx, {"beta": 0.0, "temperature": 1.0, "loss_type": "grpo", **given})
        both = policies.policies(ctx.cache, Options())
        yield from grpo.followed(made, rollouts, definition, both, ("reward",))
        logged = [entry["entropy_coef"] for entry in made.state.log_history if "entropy_coef" in entry]
        yield equal(f"factors logged, target {target}", len(logged), STEPS)
        off = max(abs(one - other) for one, other in zip(logged, definition.factors[1:], strict=False))
        yield at_most(f"factors off, target {target}", off, 1e-6)
