"""Silence timeouts: how long a rank may go without an event before the supervisor takes it for hung.

Every phase and every training step is an event. The metric ``longest_silence_s`` of a cell shows the time that its
ranks really needed; the timeouts rest on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.space.options import Options

SILENCE_S = {"cpu": 60.0, "cuda": 15.0, "cuda-gloo": 15.0}  # the harness has to notice a hang on GPUs within 20 s
# Calls that torch.compile compiles for a CPU; the first one on a machine compiles the headers, too.
COMPILING_CALLS = (
    "four_bit_blocksizes",
    "four_bit_codes",
    "four_bit_codes_of_small_blocks",
    "four_bit_odd_rows",
    "shapes_for_the_compiler",
)
# Calls that use BOFT, alone or among all methods. Where nvcc is installed, PEFT builds a CUDA kernel at its first use,
# also for a CPU, and all other ranks on the machine wait for it.
BUILDING_CALLS = ("by_method", "boft", "start_with_or_without_effect")  # parts of their names
PROBE_S = 60.0  # a probe tries one thing, and that may be a first compilation


@dataclass(frozen=True)
class SilenceTimeout:
    """A timeout in seconds. ``why`` explains a longer one than usual; reports of a hang show it."""

    silence_s: float
    why: str = ""


@dataclass(frozen=True)
class TimeoutRule:
    """A longer timeout for some cases."""

    applies: Callable[[Options], bool]
    timeout: SilenceTimeout


RULES = (
    TimeoutRule(
        lambda o: o.torch_compile or o.call in COMPILING_CALLS,
        SilenceTimeout(240.0, "torch.compile reports nothing while it compiles"),
    ),
    TimeoutRule(
        lambda o: any(each in o.call for each in BUILDING_CALLS),
        SilenceTimeout(240.0, "PEFT reports nothing while it builds BOFT's kernel"),
    ),
    TimeoutRule(
        lambda o: o.flow == "api", SilenceTimeout(60.0, "a call of the libraries reports nothing until it returns")
    ),
    TimeoutRule(lambda o: o.prequantised, SilenceTimeout(60.0, "the checkpoint is quantised and saved first")),
)


def usual(device: str) -> SilenceTimeout:
    return SilenceTimeout(SILENCE_S[device])


def timeout(options: Options, device: str) -> SilenceTimeout:
    """The longest timeout of the rules that apply to a case, and never less than the usual one."""
    longer = [rule.timeout for rule in RULES if rule.applies(options)]
    return max([usual(device), *longer], key=lambda each: each.silence_s)
