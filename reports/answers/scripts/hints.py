"""The line of code that gives an option a value, for settings that no configuration file has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cases.space.options import IllegalError, Options, applies, values
from reports.answers.scripts import calls, strategy_calls
from reports.answers.scripts.calls import ApiVersions
from reports.answers.scripts.python_text import value_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.space.options import Value
    from reports.answers.scripts.python_text import CodeCall

# Points of the option space, such that every option applies to one of them.
POINTS: Final = tuple(
    Options().but(**changes)
    for changes in (
        {"torch_dtype": "bf16"},
        {"strategy": "ddp"},
        {"strategy": "fsdp1"},
        {"strategy": "fsdp2"},
        {"quant": "nf4", "torch_dtype": "bf16"},
    )
)
# accelerate has the arguments of FSDP1 in a plugin, which calls one of them by another name.
PLUGIN: Final[Mapping[str, str]] = {"mixed_precision": "mixed_precision_policy"}


def in_code(option: str, value: Value) -> str:
    """The argument of a call that gives an option a value; the option itself if no argument does."""
    for point in POINTS:
        if applies(option, point):
            for call, name in arguments_with(point, option, value):
                return line(call, name)
    return f"{option}={value}"


def arguments_with(point: Options, option: str, value: Value) -> Iterator[tuple[CodeCall, str]]:
    """The arguments that another value of the option would change, each with its call."""
    for other in values(option):
        try:
            wanted, changed = point.but(**{option: value}), point.but(**{option: other})
        except IllegalError:
            continue
        before: dict[str, Mapping[str, Any]] = {each.callee: each.named for each in option_calls(changed)}
        for call in option_calls(wanted):
            for name, each in call.named.items():
                if call.callee in before and before[call.callee].get(name, ...) != each:
                    yield call, name


def option_calls(options: Options) -> Iterator[CodeCall]:
    """The calls whose arguments follow from options."""
    newest = ApiVersions({})
    if options.quant != "none":
        yield calls.quantization(options)
    yield calls.load(options, newest, "MODEL")
    if options.method != "full":
        yield calls.adapter(options)
        yield calls.adapted(options, newest)
    if options.gradient_checkpointing != "off":
        yield calls.checkpointing(options)
    if options.strategy == "ddp":
        yield strategy_calls.ddp(options)
    elif options.strategy == "fsdp1":
        yield strategy_calls.fsdp1(options)
    elif options.strategy == "fsdp2":
        yield strategy_calls.fully_shard("model", options)
    yield calls.optimizer(options)


def line(call: CodeCall, name: str) -> str:
    text = value_text(call.named[name])
    if call.callee == "FullyShardedDataParallel":
        return f"fsdp_plugin.{PLUGIN.get(name, name)} = {text}"
    return f"{call.callee}(..., {name}={text})"
