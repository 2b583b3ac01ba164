"""Python as text: calls laid out as a formatter would, and the imports that a file needs."""

from __future__ import annotations

import ast
import builtins
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

WIDTH: Final = 96  # of a call on one line; what stands before it has the rest of the line

# Where a script's names come from; where a name's place depends on versions, the caller says so.
MODULES: Final[Mapping[str, str]] = {
    **{name: name for name in ("functools", "os", "tempfile", "torch")},
    "dist": "torch.distributed",
    "mp": "torch.multiprocessing",
    "dcp": "torch.distributed.checkpoint",
}
MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "bitsandbytes.optim": ("AdamW8bit", "PagedAdamW8bit"),
    "datasets": ("Dataset",),
    "peft": (
        *("LoraConfig", "LoHaConfig", "LoKrConfig", "IA3Config", "AdaLoraConfig", "VeraConfig"),
        *("PromptTuningConfig", "PrefixTuningConfig", "PeftModel", "get_peft_model"),
    ),
    "peft.utils.other": ("fsdp_auto_wrap_policy",),
    "safetensors.torch": ("load_file",),
    "tokenizers": ("Tokenizer",),
    "tokenizers.models": ("WordLevel",),
    "torch.distributed.checkpoint.state_dict": (
        *("StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict"),
        *("set_model_state_dict", "set_optimizer_state_dict"),
    ),
    "torch.distributed.device_mesh": ("init_device_mesh",),
    "torch.distributed.fsdp": (
        *("CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig", "MixedPrecision", "ShardingStrategy"),
        *("FullyShardedDataParallel", "StateDictType"),
    ),
    "torch.distributed.fsdp.wrap": ("size_based_auto_wrap_policy", "transformer_auto_wrap_policy"),
    "torch.nn.parallel": ("DistributedDataParallel",),
    "transformers": (
        *("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "BitsAndBytesConfig", "PreTrainedTokenizerFast"),
        *("Trainer", "TrainerCallback", "TrainingArguments", "default_data_collator"),
    ),
    "trl": ("SFTConfig", "SFTTrainer"),
}


def call(name: str, *arguments: str, **named: Any) -> str:
    """A call on one line, or with as many arguments to a line as fit; values as they print, ``Code`` as it is."""
    written = [*arguments, *(f"{key}={value_text(value)}" for key, value in named.items())]
    line = f"{name}({', '.join(written)})"
    if len(line) <= WIDTH and "\n" not in line:
        return line
    inside = "".join(f"    {row},\n" for row in rows(written))
    return f"{name}(\n{inside})"


def rows(arguments: Iterable[str]) -> Iterator[str]:
    """Arguments, filled into lines; one that has several lines has them for itself."""
    held = ""
    for each in arguments:
        together = f"{held}, {each}" if held else each
        if "\n" not in together and len(together) <= WIDTH:
            held = together
            continue
        if held:
            yield held
        held = each.replace("\n", "\n    ")
    if held:
        yield held


def value_text(value: Any) -> str:
    """As a formatter leaves it: with double quotes."""
    if isinstance(value, str) and not isinstance(value, Code):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        inside = ", ".join(map(value_text, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{value_text(key)}: {value_text(each)}' for key, each in value.items())}}}"
    return repr(value)


class Code(str):
    """An expression: as an argument's value it is written as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def imports(body: str, further: Mapping[str, str]) -> str:
    """The import statements for every name that the body uses and does not make; ``further`` names add to ours."""
    members = {**{name: module for module, names in MEMBERS.items() for name in names}, **further}
    wanted = sorted(used(body) - made(body) - set(dir(builtins)) - {"__name__", "__file__"})
    lines = {name: f"import {module}" for name, module in MODULES.items() if name == module}
    lines |= {name: f"import {module} as {name}" for name, module in MODULES.items() if name != module}
    plain = sorted((lines[name] for name in wanted if name in lines), key=lambda line: line.split()[1])
    found: dict[str, list[str]] = {}
    for name in wanted:
        if name not in lines:
            found.setdefault(members[name], []).append(name)
    own = [line for line in plain if "torch" not in line]  # the standard library's stand first, by themselves
    others = [line for line in plain if line not in own]
    return "\n\n".join("\n".join(group) for group in (own, [*others, *froms(found)]) if group)


def froms(members: Mapping[str, list[str]]) -> Iterator[str]:
    for module in sorted(members):
        line = f"from {module} import {', '.join(members[module])}"
        if len(line) <= WIDTH + 4:
            yield line
        else:
            inside = "".join(f"    {row},\n" for row in rows(members[module]))
            yield f"from {module} import (\n{inside})"


def used(body: str) -> set[str]:
    return {
        node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def made(body: str) -> set[str]:
    """Names that the body gives a value: by assignment, as a parameter, a function, a class or a loop's variable."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(body)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
    return found
