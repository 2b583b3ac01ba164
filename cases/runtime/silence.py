"""How long a rank may say nothing before it is taken for hung: short on GPUs, longer where silence is known to be work.

Every phase and every step is a sign of life. What a cell's ranks really needed is its metric ``longest_silence_s``:
the limits rest on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.space.options import Options

SILENCE_S = {"cpu": 60.0, "cuda": 15.0}  # a hang on GPUs has to be noticed within 20 s
PROBE_S = 60.0  # a probe tries one thing, and that may be a first compilation


@dataclass(frozen=True)
class Patience:
    """``why`` is said beside the limit when a rank was silent for longer; empty for the usual one."""

    silence_s: float
    why: str = ""


@dataclass(frozen=True)
class Rule:
    """Cases that are given longer than others."""

    concerns: Callable[[Options], bool]
    patience: Patience


RULES = (
    Rule(lambda o: o.torch_compile, Patience(240.0, "torch.compile says nothing while it compiles")),
    Rule(lambda o: o.flow == "api", Patience(60.0, "a call of the libraries says nothing until it is done")),
    Rule(lambda o: o.prequantised, Patience(60.0, "the checkpoint is quantised and saved first")),
)


def usual(device: str) -> Patience:
    return Patience(SILENCE_S[device])


def of(options: Options, device: str) -> Patience:
    """What a case is allowed: the longest of the rules that concern it, and never less than is usual."""
    allowed = [rule.patience for rule in RULES if rule.concerns(options)]
    return max([usual(device), *allowed], key=lambda each: each.silence_s)
