"""Calls of the libraries' APIs in user scripts: APIs that versions removed, renamed or silently changed.

A call is a function that runs a few lines and yields checks. The decorator ``call`` registers it as the case
``api-<name>``. An exception of the libraries is a finding; checks catch what raises nothing. At import, the modules of
this package need only the standard library and ``cases``.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check, Phase

    Body = Callable[[Context], Iterator[Check]]

MODULES = (  # of this package, each with its calls
    "adapters",
    "adapting",
    "advice",
    "devices",
    "fsdp2",
    "loading",
    "merging",
    "quantised",
    "quantised_training",
    "replicating",
    "saving",
    "sharded",
    "sharded_adapters",
    "sharded_saving",
    "sharding",
    "tokenizers",
    "trainers",
    "trl_trainers",
)


@dataclass(frozen=True)
class Call:
    """``group`` is the heading in a report, ``requires`` names requirements of ``cases.probes``."""

    name: str
    body: Body
    group: str
    why: str
    phase: Phase
    ranks: int
    requires: tuple[str, ...]


CALLS: dict[str, Call] = {}


def call(group: str, *, phase: Phase, ranks: int = 1, requires: tuple[str, ...] = ()) -> Callable[[Body], Body]:
    """Register a function as a call; the first line of its docstring says what a user learns from it."""

    def register(body: Body) -> Body:
        if body.__name__ in CALLS:
            raise ValueError(f"two calls are named {body.__name__}")
        why = (body.__doc__ or "").strip().splitlines()[0].rstrip(".")
        CALLS[body.__name__] = Call(body.__name__, body, group, why, phase, ranks, requires)
        return body

    return register


def run(ctx: Context) -> None:
    """Run the call that a case names, and report its checks."""
    importlib.import_module(f"{__name__}.{module_of(ctx.options.call)}")
    chosen = CALLS[ctx.options.call]
    ctx.reporter.phase(chosen.phase)
    ctx.reporter.checks(list(chosen.body(ctx)))


def module_of(name: str) -> str:
    """The name of the module that defines a call. Searches the text, so that a rank imports no other calls."""
    defined = f"\ndef {name}("
    texts = ((module, Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")) for module in MODULES)
    return next(module for module, text in texts if defined in text)


def requirements(name: str) -> tuple[str, ...]:
    """The names of the requirements of a call; none if no call has this name."""
    return CALLS[name].requires if name in CALLS else ()


def load() -> dict[str, Call]:
    """Every call by name."""
    for module in MODULES:
        importlib.import_module(f"cases.api.{module}")
    return CALLS
