"""Writes Python: calls in the layout of a formatter, and the imports that a file needs."""

from __future__ import annotations

import ast
import builtins
import json
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

WIDTH: Final = 96  # of a call on one line; the rest of the line is for the text before it

# The modules of a script's names. Callers add names whose module depends on the version.
MODULES: Final[Mapping[str, str]] = {
    **{name: name for name in ("bitsandbytes", "functools", "os", "tempfile", "torch")},
    "dist": "torch.distributed",
    "mp": "torch.multiprocessing",
    "dcp": "torch.distributed.checkpoint",
}
MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
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


@dataclass(frozen=True)
class CodeCall:
    """A call as a user writes it.

    ``arguments`` are expressions. The values of ``named`` are Python values, expressions (``Code``) or calls.
    """

    callee: str
    arguments: tuple[str, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)

    def but(self, **named: Any) -> CodeCall:
        """This call with some arguments added or changed."""
        return replace(self, named={**self.named, **named})

    def without(self, names: Iterable[str]) -> CodeCall:
        return replace(self, named={name: value for name, value in self.named.items() if name not in names})

    def differing(self, usual: Mapping[tuple[str, str], Any]) -> CodeCall:
        """This call and the calls in it without arguments of usual values, which are by callee and argument."""
        inner = {
            name: each.differing(usual) if isinstance(each, CodeCall) else each for name, each in self.named.items()
        }
        usual_names = [name for name, value in inner.items() if usual.get((self.callee, name), NEVER) == value]
        return replace(self, named=inner).without(usual_names)

    @property
    def written(self) -> list[str]:
        """The text of each argument."""
        return [*self.arguments, *(f"{key}={value_text(value)}" for key, value in self.named.items())]

    def __repr__(self) -> str:
        """The call on one line."""
        return f"{self.callee}({', '.join(self.written)})"

    def __str__(self) -> str:
        """The call on one line, or with as many arguments to a line as fit."""
        line = repr(self)
        if len(line) <= WIDTH and "\n" not in line:
            return line
        named = (
            f"{key}={each if isinstance(each, CodeCall) else value_text(each)}" for key, each in self.named.items()
        )
        inside = "".join(f"    {row},\n" for row in rows([*self.arguments, *named]))
        return f"{self.callee}(\n{inside})"

    def lines(self, target: str = "") -> list[str]:
        """The call with an argument a line, assigned to a variable if ``target`` names one."""
        start = f"{target} = {self.callee}" if target else self.callee
        return [f"{start}(", *(f"    {each}," for each in self.written), ")"] if self.written else [f"{start}()"]


NEVER: Final = object()  # equal to no value


def rows(arguments: Iterable[str]) -> Iterator[str]:
    """Arguments filled into lines; an argument of several lines shares none of them."""
    row = ""
    for each in arguments:
        together = f"{row}, {each}" if row else each
        if "\n" not in together and len(together) <= WIDTH:
            row = together
            continue
        if row:
            yield row
        row = each.replace("\n", "\n    ")
    if row:
        yield row


def value_text(value: Any) -> str:
    """The text of a value, with double quotes."""
    if isinstance(value, str) and not isinstance(value, Code):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        inside = ", ".join(map(value_text, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{value_text(key)}: {value_text(each)}' for key, each in value.items())}}}"
    return repr(value)


class Code(str):
    """An expression; as the value of an argument it has no quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def imports(body: str, further: Mapping[str, str]) -> str:
    """The import statements for every name that the body uses and does not bind; ``further`` adds modules of names."""
    members = {**{name: module for module, names in MEMBERS.items() for name in names}, **further}
    nodes = tuple(ast.walk(ast.parse(body)))
    missing = sorted(used_names(nodes) - bound_names(nodes) - set(dir(builtins)) - {"__name__", "__file__"})
    lines = {name: f"import {module}" for name, module in MODULES.items() if name == module}
    lines |= {name: f"import {module} as {name}" for name, module in MODULES.items() if name != module}
    plain = sorted((lines[name] for name in missing if name in lines), key=lambda line: line.split()[1])
    by_module: dict[str, list[str]] = {}
    for name in missing:
        if name not in lines:
            by_module.setdefault(members[name], []).append(name)
    own = [line for line in plain if line.split()[1] in sys.stdlib_module_names]
    others = [line for line in plain if line not in own]
    return "\n\n".join("\n".join(group) for group in (own, [*others, *froms(by_module)]) if group)


def froms(members: Mapping[str, list[str]]) -> Iterator[str]:
    for module in sorted(members):
        line = f"from {module} import {', '.join(members[module])}"
        if len(line) <= WIDTH + 4:
            yield line
        else:
            inside = "".join(f"    {row},\n" for row in rows(members[module]))
            yield f"from {module} import (\n{inside})"


def used_names(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def bound_names(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that the nodes bind: variables, parameters, functions and classes."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return names
