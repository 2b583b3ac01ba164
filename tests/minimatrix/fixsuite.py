"""A suite for the fix search: the verdict of its cases depends on their options and on the version of trl."""

from __future__ import annotations

from importlib import metadata
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cases.runtime import silence
from cases.space.case import case
from cases.space.options import Options
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from cases.runtime.silence import SilenceTimeout
    from cases.runtime.wire import CellReport, Job

CASES = {
    each.id: each
    for each in (
        case("fixable", "a setting helps", strategy="fsdp1"),
        case("fixable", "a version helps"),
        case("fixable", "another method helps", method="vera", front_end="accelerate"),
    )
}


def is_green(options: Options) -> bool:
    if options.strategy == "fsdp1":
        return not options.use_orig_params
    if options.front_end == "accelerate":
        return options.method == "lora"
    return metadata.version("trl") == "0.0.2"


class FixSuite:
    """The suite of the cases above."""

    cases = CASES
    profiles: Mapping[str, Any] = MappingProxyType({})

    def preload(self, *, to_fork: bool = False) -> None:  # noqa: ARG002 - the protocol's
        import torch  # noqa: F401

    def why_settled(self, name: str, session: Path) -> str:  # noqa: ARG002 - the protocol's
        return ""

    def note(self, report: CellReport, session: Path) -> None: ...

    def why_unforkable(self) -> str:
        return ""

    def requirements(self, name: str, device: str) -> list[Any]:  # noqa: ARG002 - the protocol's
        return []

    def silence_timeout(self, name: str, device: str) -> SilenceTimeout:  # noqa: ARG002 - the protocol's
        return silence.usual(device)

    def companions(self, job: Job) -> dict[str, Callable[[], None]]:  # noqa: ARG002 - the protocol's
        return {}

    def stages(self, job: Job) -> list[tuple[int, int]]:
        return [(0, job.ranks)]

    def run(
        self, job: Job, _rank: int, _stage: int, _companion: Callable[[str], Iterator[None]], reporter: Any
    ) -> None:
        if job.kind == "facts":
            reporter.facts({"trl": metadata.version("trl")})
            return
        reporter.phase(Phase.FORWARD)
        if not is_green(Options(**job.options)):
            raise ValueError("not like this")
        reporter.checks([equal("steps", 3, 3)])


SUITE = FixSuite()
