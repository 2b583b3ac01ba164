"""Three cases whose verdict depends on their options and on the version of trl: something for a search to find."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Any

from cases.runtime import silence
from cases.space.case import case
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.runtime.silence import Patience
    from cases.runtime.wire import Job
    from cases.space.case import Case

CASES = {
    each.id: each
    for each in (
        case("fixable", "a setting helps", strategy="fsdp1"),
        case("fixable", "a version helps"),
        case("fixable", "another method helps", method="vera", front_end="accelerate"),
    )
}


def is_green(each: Case) -> bool:
    options = each.options
    if options.strategy == "fsdp1":
        return not options.use_orig_params
    if options.front_end == "accelerate":
        return options.method == "lora"
    return metadata.version("trl") == "0.0.2"


def preload() -> None:
    import torch  # noqa: F401


def impure() -> str:
    return ""


def needed(_case: Case, _device: str) -> list[Any]:
    return []


def allowed(_case: Case, device: str) -> Patience:
    return silence.usual(device)


def companions(_job: Job) -> dict[str, Callable[[], None]]:
    return {}


def acts(job: Job) -> list[tuple[int, int]]:
    return [(0, job.ranks)]


def run(job: Job, _rank: int, _act: int, _companion: Callable[[str], Iterator[None]], say: Any) -> None:
    if job.kind == "facts":
        say.facts({"trl": metadata.version("trl")})
        return
    say.phase(Phase.FORWARD)
    if not is_green(CASES[job.name]):
        raise ValueError("not like this")
    say.checks([equal("steps", 3, 3)])
