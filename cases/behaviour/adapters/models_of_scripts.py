"""PEFT around models of a script, which are no transformers models: what their forward passes get and give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Adapters on a script's own model"
# The task, the name of its trained head, and the keywords of its labels.
TASKS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "SEQ_CLS": ("score", ("labels",)),
    "TOKEN_CLS": ("classifier", ("labels",)),
    "QUESTION_ANS": ("qa_outputs", ("start_positions", "end_positions")),
}


def model(task: str, config: Any) -> Any:
    """A model with a head that keeps the keywords of its last forward pass."""
    import torch

    class HeadedModel(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Linear(6, 5)
            setattr(self, TASKS[task][0], torch.nn.Linear(5, 3))
            self.config = config
            self.seen: dict[str, Any] = {}

        def forward(self, input_ids: Any = None, **named: Any) -> Any:
            self.seen = named
            return getattr(self, TASKS[task][0])(self.body(input_ids).tanh())

    made = HeadedModel()
    tiny.fill(made)
    return made


class ScriptConfig:
    """The configuration of a model that is not of transformers: only what the script needs."""

    model_type = "own"

    def __init__(self, **more: Any) -> None:
        vars(self).update(more)

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@call(GROUP, phase=Phase.FORWARD, requires=("configs_without_return_dict",))
def returned_forms_of_own_models(_ctx: Context) -> Iterator[Check]:
    """A classifier of a script gets return_dict by its configuration, True if that says nothing, or as the call says.

    The other keywords of the call reach it as they are, and None where nothing was given.
    """
    import torch
    from peft import LoraConfig, get_peft_model

    inputs = tiny.values("inputs", (2, 6))
    for task, (_, labels) in TASKS.items():
        configs: Mapping[str, tuple[Any, bool]] = {
            "without the field": (ScriptConfig(), True),
            "True": (ScriptConfig(return_dict=True), True),
            "False": (ScriptConfig(return_dict=False), False),
        }
        for title, (config, wanted) in configs.items():
            adapted = get_peft_model(model(task, config), LoraConfig(task_type=task, target_modules=["body"]))
            inside = adapted.get_base_model()
            adapted(inputs)
            yield equal(f"return_dict, {task}, {title}", str(inside.seen.get("return_dict")), str(wanted))
            adapted(inputs, return_dict=not wanted)
            yield equal(
                f"return_dict of the call, {task}, {title}", str(inside.seen.get("return_dict")), str(not wanted)
            )
        given = {
            "attention_mask": torch.ones(2, 6),
            "output_attentions": True,
            "output_hidden_states": False,
            **{name: torch.zeros(2, dtype=torch.long) for name in labels},
        }
        adapted(inputs, **given)
        lost = [name for name, value in given.items() if inside.seen.get(name) is not value]
        yield equal(f"keywords lost, {task}", " ".join(lost) or "none", "none")


@call(GROUP, phase=Phase.RELOAD)
def heads_of_own_models(ctx: Context) -> Iterator[Check]:
    """The head of a classifier is trained and saved with its adapter, and comes back on another copy of the model.

    Its names are PEFT's documented ones for the task; modules_to_save adds to them.
    """
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model

    inputs = tiny.values("inputs", (2, 6))
    for task, (head, _) in TASKS.items():
        config = ScriptConfig(return_dict=True, use_return_dict=True)
        adapted = get_peft_model(model(task, config), LoraConfig(task_type=task, target_modules=["body"]))
        trained = {name for name, p in adapted.named_parameters() if p.requires_grad and "lora_" not in name}
        kept = f"base_model.model.{head}.modules_to_save.default"
        yield equal(f"trained beside LoRA, {task}", str(sorted(trained)), str([f"{kept}.bias", f"{kept}.weight"]))
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if parameter.requires_grad:
                    parameter.copy_(tiny.values(tiny.canonical(name), tuple(parameter.shape)) + 0.25)
        for value in (None, True, False):
            adapted(inputs, **({} if value is None else {"return_dict": value}))
            seen = str(adapted.get_base_model().seen.get("return_dict"))
            yield equal(f"return_dict that {task} gets, {value} in the call", seen, str(value is not False))
        folder = ctx.kept / task
        adapted.save_pretrained(folder)
        again = PeftModel.from_pretrained(model(task, config), folder)
        off = relative(again(inputs).detach(), adapted(inputs).detach())
        yield at_most(f"outputs off after loading, {task}", off, 0.0)
        moved = relative(adapted(inputs).detach(), model(task, config)(inputs).detach())
        yield equal(f"the adapter has an effect, {task}", moved > adapted_layers.SAME, bound=True)
