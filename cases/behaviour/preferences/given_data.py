"""Data and arguments that trainers of TRL accept in several forms, and the files that they write.

https://huggingface.co/docs/trl/dataset_formats
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, grpo, kto, policies, preference, rloo
from cases.behaviour.preferences.preference import GENTLE
from cases.space.options import Options
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Preference losses"
PACKAGES = {"TRL": "trl", "Transformers": "transformers", "PyTorch": "torch", "Datasets": "datasets"}


@call(GROUP, phase=Phase.FORWARD, requires=("kto_cast_labels",))
def kto_whole_number_labels(ctx: Context) -> Iterator[Check]:
    """KTOTrainer takes labels that a data set stores as 0 and 1 for undesirable and desirable rows."""
    from datasets import Value

    both, data = policies.policies(ctx.cache, Options()), kto.rows()
    given = kto.columns(data).cast_column("label", Value("int64"))
    settings = {"beta": kto.BETA, "desirable_weight": kto.GOOD, "undesirable_weight": kto.BAD}
    settings |= {"per_device_train_batch_size": 4, "data_seed": kto.SHUFFLED}
    made = alignment.create(ctx, "KTO", settings, train_dataset=given, **alignment.fresh(ctx))
    steps = policies.dealt(kto.mismatched(kto.in_order_of(made, data), 4, 1), 4)
    expected = policies.train(both.trained, steps, kto.loss_of(both), alignment.RATE)
    yield from alignment.as_defined(alignment.trained(alignment.fill(made)), expected)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def frozen_references_of_ranks(ctx: Context) -> Iterator[Check]:
    """DPOTrainer and KTOTrainer on two ranks take a ref_model whose weights a script froze, as with one rank."""
    chosen = {"learning_rate": GENTLE, "per_device_train_batch_size": 2}
    for kind, data in (("DPO", preference.columns(preference.pairs())), ("KTO", kto.columns(kto.rows()))):
        reference = ingredients.base(ctx)
        reference.requires_grad_(False)  # noqa: FBT003 - torch's argument
        made = alignment.create(ctx, kind, chosen, model=ingredients.base(ctx), ref_model=reference, train_dataset=data)
        found = alignment.trained(made)
        yield equal(f"steps, {kind}", len(found.losses), 2)
        start = alignment.weights(ingredients.base(ctx))
        moved = sum(bool((each != start[name]).any()) for name, each in found.after.items())
        yield equal(f"weights that move, {kind}", moved, len(start))
        frozen = [name for name, each in made.ref_model.named_parameters() if each.requires_grad]
        yield equal(f"weights of the reference that would train, {kind}", len(frozen), 0)


@dataclass
class Following(rloo.LeaveOneOutFollower):
    """Also the mean divergence per token that RLOOTrainer logs."""

    def loss(self, step: Any) -> tuple[Any, policies.Metrics]:
        is_new, rows = step
        value, metrics = super().loss(step)
        if is_new:
            for row in rows:
                ours, theirs = (
                    policies.frozen_log_probabilities(each, *row) for each in (self.both.policy, self.both.reference)
                )
                metrics.setdefault("kl", []).extend((ours - theirs).tolist())
        return value, metrics


@call(GROUP, phase=Phase.FORWARD, requires=("rloo",))
def rloo_divergence(ctx: Context) -> Iterator[Check]:
    """RLOOTrainer logs the mean log ratio per token of completions of different lengths, without their padding."""
    definition = rloo.LeaveOneOut(grpo.by_row, rloo.BETA)
    given: dict[str, Any] = {"beta": definition.beta, "temperature": 1.0, "normalize_advantages": False}
    made, rollouts = grpo.trainer(ctx, given, "RLOO")
    both = policies.policies(ctx.cache, Options())
    yield from grpo.followed(made, rollouts, definition, both, ("kl",), Following(both, definition).loss)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "rloo"))
def several_reward_functions(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer and RLOOTrainer take several reward functions without reward_processing_classes, or one for each.

    With reward_weights, their sum is weighted.
    """

    def half(completions: list[str], **_: Any) -> list[float]:
        return [score / 2 for score in grpo.word_score(completions)]

    for kind in ("GRPO", "RLOO"):
        for classes in (None, [None, None]):
            chosen = {"beta": 0.0, "temperature": 1.0, "reward_funcs": [grpo.word_score, half]}
            chosen["reward_weights"] = [1.0, 4.0]
            more = {} if classes is None else {"reward_processing_classes": classes}
            made, rollouts = grpo.trainer(ctx, chosen, kind, **more)
            made.train()
            wanted = [3.0 * grpo.score(ids) for step in rollouts.calls for _, ids in step]
            found = [entry["reward"] for entry in made.state.log_history if "reward" in entry]
            title = f"{kind}, reward_processing_classes={classes}"
            mean = sum(found) / max(1, len(found))
            yield equal(f"mean reward, {title}", round(mean, 4), round(sum(wanted) / len(wanted), 4))


@call(GROUP, phase=Phase.SAVE)
def card_of_a_trainer(ctx: Context) -> Iterator[Check]:
    """create_model_card of TRL's trainers writes the model, the data set, the method and the versions of packages."""
    from importlib.metadata import version

    for kind, data in (("DPO", preference.columns(preference.pairs())), ("SFT", ingredients.dataset(text=["w5 w6"]))):
        made = alignment.create(ctx, kind, {}, model=ingredients.base(ctx), train_dataset=data)
        made.create_model_card(model_name="tuned", dataset_name="corpus/of-words", tags=["tiny"])
        path = ctx.kept / "output" / "README.md"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        wanted = {
            "the name": "tuned",
            "the data set": "corpus/of-words",
            "a sentence about the data set": "on the [corpus/of-words]",
            "a tag": "- tiny",
            "the method": kind,
            "a start": "from transformers import pipeline",
        }
        wanted |= {package: f": {version(name)}" for package, name in PACKAGES.items()}
        lost = [name for name, words in wanted.items() if words not in text]
        yield equal(f"parts that the card lacks, {kind}", ", ".join(lost) or "none", "none")
        path.unlink(missing_ok=True)
