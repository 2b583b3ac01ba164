"""The suite, with a fault planted in a working stack: each case is a real one that has to come out `wrong`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases import build, suite
from cases.suite import companions, impure, needed, preload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.job import Job
    from cases.options import Options

__all__ = ["CASES", "companions", "impure", "needed", "preload", "run"]


def doubled_gradient(model: Any) -> None:
    """As if one gradient were summed over two ranks instead of averaged."""
    name, parameter = next((n, p) for n, p in model.named_parameters() if p.requires_grad)
    assert "lora_A" in name  # one that DDP averages
    parameter.register_hook(lambda gradient: 2 * gradient)


def frozen_lora_b(model: Any) -> None:
    """As if an option were ignored: the other half of the adapter still learns, and the loss still falls."""
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.requires_grad_(requires_grad=False)


FAULTS: dict[str, Callable[[Any], None]] = {
    "train-lora-ddp-bf16": doubled_gradient,
    "train-lora-single-fp32": frozen_lora_b,
}
CASES = {name: suite.CASES[name] for name in FAULTS}


def run(job: Job, rank: int, companion: Callable[[str], Iterator[None]], say: Any) -> None:
    adapt = build.adapt

    def faulty(model: Any, options: Options) -> Any:
        adapted = adapt(model, options)
        FAULTS[job.name](adapted)
        return adapted

    build.adapt = faulty
    suite.run(job, rank, companion, say)
