"""The script of a case makes the calls that the case made when it ran: ``record_calls.py`` recorded these."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from matrix.run.execute import Suite
from matrix.versions import sets
from reports.answers.scripts import edits
from reports.answers.scripts.calls import OPTIMIZERS, TINY, optimizer
from reports.answers.scripts.edits import Stack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cases.space.options import Options

FOLDER: Final = Path(__file__).parent / "recorded"
RECORDED: Final = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
ENDED: Final = [(version_set, name) for version_set, ends in RECORDED.items() for name in ends["ended"]]
FAILED: Final = [(version_set, name) for version_set, ends in RECORDED.items() for name in ends["failed"]]
OPTIONS: Final = {name: case.options for name, case in Suite().cases.items()}
PINS: Final = {each.key: {"python": each.python, **each.pins} for each in sets.load()}

LOADS = "a second stage loads what the script saves"
INFERS = "a case infers after its training, to compare"
TRAINER = "the harness directs the trainer"
# Calls of a case that its script does not make, with the flows of these cases and the reason.
OTHER_CALLS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "torch.distributed.checkpoint.load": (("save_reload", "resume"), LOADS),
    "set_model_state_dict": (("save_reload", "resume"), LOADS),
    "set_optimizer_state_dict": (("save_reload", "resume"), LOADS),
    "PeftModel.from_pretrained": (("save_reload",), LOADS),
    "model.from_pretrained": (("save_reload",), LOADS),
    "FullStateDictConfig(offload_to_cpu=True, rank0_only=False)": (("resume",), LOADS),
    "FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=False)": (("resume",), LOADS),
    "model.eval": (("save_reload", "merge", "merge_reload"), INFERS),
    "model.merge_adapter": (("merge",), "a case also merges for a time"),
    "model.unmerge_adapter": (("merge",), "a case also merges for a time"),
    "model.set_requires_gradient_sync(True)": ((), "FSDP2 exchanges gradients without this call too"),
    "GradScalerKwargs": ((), "the scale of the first step suits the tiny model"),
}
# Calls of a script that its case does not make: the harness makes the quantised checkpoint before the case starts.
PREQUANTISED: Final = ("BitsAndBytesConfig", "AutoModelForCausalLM.from_pretrained", "model.save_pretrained")
# Arguments of a case that its script leaves out, or the reverse.
OTHER_ARGUMENTS: Final[Mapping[tuple[str, str], str]] = {
    **{(callee, name): "the value suits the tiny model" for callee in OPTIMIZERS.values() for name in TINY},
    ("torch.amp.GradScaler", "init_scale"): "the value suits the tiny model",
    ("ShardedGradScaler", "init_scale"): "the value suits the tiny model",
    ("model.compile", "backend"): "the harness counts graphs, and generates no C++ on the CPU",
    ("Accelerator", "cpu"): "a user has the device in the environment",
    ("Accelerator", "kwargs_handlers"): "the calls in it are compared",
    ("Accelerator", "step_scheduler_with_optimizer"): "a script has no scheduler",
    **{
        ("model.generate", name): "a user has these in the batch and the generation config"
        for name in ("attention_mask", "do_sample", "input_ids", "max_new_tokens", "min_new_tokens", "use_cache")
    },
    **{
        (callee, name): TRAINER
        for callee in ("TrainingArguments", "SFTConfig")
        for name in (
            *("completion_only_loss", "dataloader_pin_memory", "disable_tqdm", "learning_rate", "logging_steps"),
            *("max_steps", "report_to", "save_steps", "use_cpu"),
        )
    },
    ("trainer.train", "resume_from_checkpoint"): TRAINER,
}
# Arguments whose values are the user's own; "" are the arguments without a name.
OTHER_VALUES: Final[Mapping[tuple[str, str], str]] = {
    ("DistributedDataParallel", "device_ids"): "the recordings are of the CPU",
    ("FullyShardedDataParallel", "param_init_fn"): "a script has a lambda instead of the function of the case",
    ("AutoModelForCausalLM.from_config", ""): "an object in a recording, and the call that reads it in a script",
    ("model.resize_token_embeddings", ""): "a user has a tokenizer",
    ("accelerator.prepare", ""): "a script has no scheduler",
    **{
        (callee, name): "a user has data and a tokenizer"
        for callee in ("Trainer", "SFTTrainer")
        for name in ("processing_class", "tokenizer", "train_dataset")
    },
}

# Contexts that a case enters for a whole stage, and calls of several stages. A trainer creates its optimiser late.
UNORDERED: Final = ("sdpa_kernel", "model.train", "model.eval")
NO_FLOW: Final = (("none",), "")
# Expressions of a script, and how the recorder writes the same objects.
WORDS: Final = {
    "[p for p in model.parameters() if p.requires_grad]": "parameters",
    "model.parameters()": "parameters",
    "device.type": "device",
    "MODEL": "PATH",
    "last": "False",
    "layer": "model",
    "merged": "model",
    "whole": "model",
    "model.module": "model",
    "loss": "tensor",
    **dict.fromkeys(("'quantised'", "'output'", "'merged'"), "PATH"),
}
OBJECTS: Final = {
    "model.module": "model",
    "merged": "model",
    "whole": "model",
    "accelerator.unwrap_model(model)": "model",
    "scaler.scale(loss)": "loss",
}


class ScriptCall:
    """A call: its callee, its arguments, and its keyword arguments by name."""

    def __init__(self, node: ast.Call, variables: dict[str, str]) -> None:
        self.callee = callee(node)
        self.arguments = [text(each, variables) for each in node.args]
        self.named = {each.arg: text(each.value, variables) for each in node.keywords if each.arg}


def calls_in(lines: Iterable[str]) -> list[ScriptCall]:
    """The calls of a script in the order in which Python makes them."""
    tree = ast.parse("\n".join(lines))
    variables = {
        node.targets[0].id: f"{callee(node.value)}(...)"
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call)
    }
    variables |= {name: name for name in ("model", "optimizer", "state", "weights")}  # whatever made them
    return [ScriptCall(node, variables) for node in calls_of(tree)]


def calls_of(node: ast.AST) -> Iterator[ast.Call]:
    """Calls inside a call come before it."""
    for child in ast.iter_child_nodes(node):
        yield from calls_of(child)
    if isinstance(node, ast.Call) and not isinstance(node.func, ast.Call):
        yield node


def callee(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        owner = ast.unparse(node.func.value)
        return f"{OBJECTS.get(owner, owner)}.{node.func.attr}"
    return ast.unparse(node.func)


def text(node: ast.expr, variables: dict[str, str]) -> str:
    written = ast.unparse(node)
    if written in WORDS or isinstance(node, ast.Name):
        return WORDS.get(written, variables.get(written, written))
    if isinstance(node, ast.Call):
        inside = ", ".join(
            [
                *(text(each, variables) for each in node.args),
                *(f"{each.arg}={ast.unparse(each.value)}" for each in node.keywords),
            ]
        )
        return f"{callee(node)}({inside if callee(node) == 'functools.partial' else '...'})"
    if isinstance(node, ast.List):
        return f"[{', '.join(text(each, variables) for each in node.elts)}]"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return json.dumps(node.value)
    return "state" if written.startswith("{'model': state") else written.replace("'", '"')


def script(version_set: str, name: str) -> list[ScriptCall]:
    stack = Stack(pins=PINS[version_set], options=OPTIONS[name], set=version_set)
    return calls_in(edits.files(stack)["train.py"])


def recorded(version_set: str, name: str) -> list[dict[str, Any]]:
    ends = RECORDED[version_set]
    found: list[dict[str, Any]] = {**ends["ended"], **ends["failed"]}[name]
    return found


def compared(callee: str, arguments: list[str], named: dict[str, str]) -> str:
    """The part of a call that a case and its script have in common."""
    values = [] if (callee, "") in OTHER_VALUES else arguments
    for name, value in sorted(named.items()):
        if (callee, name) not in OTHER_ARGUMENTS:
            shown = "state" if name == "state_dict" else "..." if (callee, name) in OTHER_VALUES else value
            values = [*values, f"{name}={shown}"]
    return f"{callee}({', '.join(values)})".replace("(...)", "")


def calls_of_case(version_set: str, name: str) -> list[str]:
    return [compared(call["callee"], call["arguments"], call["named"]) for call in recorded(version_set, name)]


def calls_of_script(version_set: str, name: str) -> list[str]:
    return [compared(call.callee, call.arguments, call.named) for call in script(version_set, name)]


def is_other(call: str, options: Options) -> bool:
    """The harness makes this call, and no script does."""
    if call.startswith("DistributedDataParallelKwargs("):
        return options.strategy != "ddp"  # a case always has these; they mean nothing without DDP
    flows, _reason = OTHER_CALLS.get(call, OTHER_CALLS.get(call.partition("(")[0], NO_FLOW))
    return not flows or options.flow in flows


WATCHED: Final = {
    call["callee"]
    for ends in RECORDED.values()
    for cases in ends.values()
    for calls in cases.values()
    for call in calls
}


@pytest.mark.parametrize(("version_set", "name"), [*ENDED, *FAILED])
def test_a_script_makes_every_call_of_its_case(version_set: str, name: str) -> None:
    written = calls_of_script(version_set, name)
    made = calls_of_case(version_set, name)
    assert [call for call in made if call not in written and not is_other(call, OPTIONS[name])] == []


@pytest.mark.parametrize(("version_set", "name"), ENDED)
def test_a_case_makes_every_watched_call_of_its_script(version_set: str, name: str) -> None:
    made = calls_of_case(version_set, name)
    watched = [call for call in calls_of_script(version_set, name) if call.partition("(")[0] in WATCHED]
    if OPTIONS[name].prequantised:
        watched = [call for call in watched if call.partition("(")[0] not in PREQUANTISED]
    assert [call for call in watched if call not in made] == []


@pytest.mark.parametrize(("version_set", "name"), ENDED)
def test_a_script_makes_the_calls_in_the_order_of_its_case(version_set: str, name: str) -> None:
    written = list(dict.fromkeys(calls_of_script(version_set, name)))
    made = list(dict.fromkeys(calls_of_case(version_set, name)))
    unordered = [*UNORDERED, *(OPTIMIZERS.values() if OPTIONS[name].front_end in ("trainer", "sft") else ())]
    shared = [call for call in made if call in written and call.partition("(")[0] not in unordered]
    assert [call for call in written if call in shared] == shared


@pytest.mark.parametrize(("version_set", "name"), ENDED)
def test_a_reproducer_has_the_optimiser_of_its_case(version_set: str, name: str) -> None:
    if "optim" in OPTIONS[name].stated:
        call = optimizer(OPTIONS[name])
        (made,) = [each for each in recorded(version_set, name) if each["callee"] == call.callee]
        assert made["named"] == {key: str(value) for key, value in sorted(call.named.items())}
