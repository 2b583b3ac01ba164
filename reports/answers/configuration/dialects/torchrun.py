"""Rules for launchers that start processes and configure nothing else: ``torchrun`` and DeepSpeed's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.answers.configuration.dialects import LAUNCHER, AtLeast, Dialect, Rule, UnmeasuredSetting
from reports.answers.configuration.dialects.unmeasured import not_looked_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from cases.space.options import Value

PROCESSES = "nproc_per_node"
PER_DEVICE = ("auto", "gpu", "cpu")  # one process per device


def defaults(_values: Mapping[str, Value], _versions: Mapping[str, Version]) -> dict[str, Value]:
    return {}


RULES = (
    Rule("strategy", "ddp", {PROCESSES: (AtLeast(2), *PER_DEVICE)}),
    Rule("strategy", "ddp", {"nnodes": AtLeast(2)}),
    Rule("strategy", "single", {PROCESSES: (1, None)}),
    Rule("world_size", 4, {PROCESSES: 4}),
)
TORCHRUN = Dialect(
    name="torchrun",
    role=LAUNCHER,
    marks=frozenset({PROCESSES, "nnodes", "rdzv_endpoint"}),
    rules=RULES,
    defaults=defaults,
    not_judged=not_looked_at(("nnodes", "several machines")),
)
DEEPSPEED_LAUNCHER = Dialect(
    name="deepspeed launcher",
    role=LAUNCHER,
    marks=frozenset(),
    rules=RULES,
    defaults=defaults,
    not_judged=(UnmeasuredSetting("launcher", "DeepSpeed"), *not_looked_at(("nnodes", "several machines"))),
)
