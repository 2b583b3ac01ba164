"""A suite for the bisection: the verdict of its cases depends on the versions of trl and accelerate."""

from __future__ import annotations

import os
import random
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fixsuite import FixSuite  # type: ignore[import-not-found]

from cases.space.case import case
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.runtime.wire import Job

RELEASE, PAIR, SKIPPED, FLAKY, OFTEN = "lora", "dora", "vera", "ia3", "rslora"  # methods of the cases
OFTEN_RED = 0.9  # probability
CASES = {
    each.id: each
    for each in (
        case("bisected", "red from trl 0.0.3"),
        case("bisected", "red from trl 0.0.2 with accelerate 0.0.2", method=PAIR),
        case("bisected", "red from trl 0.0.3, with another failure in 0.0.2", method=SKIPPED),
        case("bisected", "red in every other run, with any version", method=FLAKY),
        case("flaky", "red from trl 0.0.3, in some runs", method=OFTEN),
    )
}


def failure(method: str) -> str:
    trl, accelerate = metadata.version("trl"), metadata.version("accelerate")
    if method == PAIR:
        return "not together" if trl >= "0.0.2" and accelerate == "0.0.2" else ""
    if method == SKIPPED and trl == "0.0.2":
        return "something else"
    if method == FLAKY:
        return "now and then" if run_number(trl) % 2 else ""
    if method == OFTEN and trl >= "0.0.3":
        return "often" if random.Random(run_number(trl)).random() < OFTEN_RED else ""  # noqa: S311 - a seed repeats it
    return "not like this" if method != OFTEN and trl >= "0.0.3" else ""


def run_number(trl: str) -> int:
    """How often the case ran with a release, this run included."""
    with (Path(os.environ["FTMATRIX_MINISUITE_NOTES"]) / f"flaky-{trl}").open("a+", encoding="utf-8") as file:
        file.write(".")
        return file.tell()


class BisectSuite(FixSuite):  # type: ignore[misc]
    """The suite of the cases above."""

    cases = CASES

    def run(
        self, job: Job, _rank: int, _stage: int, _companion: Callable[[str], Iterator[None]], reporter: Any
    ) -> None:
        if job.kind == "facts":
            reporter.facts({"trl": metadata.version("trl")})
            return
        reporter.phase(Phase.FORWARD)
        problem = failure(str(job.options.get("method", RELEASE)))
        if problem:
            raise ValueError(problem)
        reporter.checks([equal("steps", 3, 3)])


SUITE = BisectSuite()
