"""Each cell as a test: green passes, red fails with its reason, what cannot run here is skipped with the reason."""

from __future__ import annotations

import fcntl
import functools
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cases.runtime import gpu_pool, torch_builds
from cases.runtime.forkserver import ask
from cases.runtime.nvml import UnavailableError
from cases.runtime.silence import PROBE_S, Patience
from cases.space.verdict import PROBING, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.conftest import Request
    from cases.runtime.wire import Job


def test_cell(
    cell: str,
    request_: Request,
    suite: Any,
    server: str,
    record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest,
) -> None:
    case = suite.CASES[cell]
    facts: dict[str, Any] = {}
    modules: list[str] = []  # of the probe that decides a skip
    try:
        facts = environment_facts(request_, server)
        reason = torch_builds.unusable(facts, lenders()) if facts.get("device") == "cuda" else ""
        if reason:
            facts = {**facts, **gpu_pool.LACKING}
        if not reason:
            reason, modules = why_skipped(case, request_, suite, server)
        if not reason:
            allowed = suite.allowed(case, request_.device)
            outcome = run(server, request_.cell(cell, case, allowed))
    except (gpu_pool.BusyError, UnavailableError) as none:
        reason = str(none)
        facts = {**facts, **gpu_pool.LACKING}
    if reason:
        record_property(
            "outcome",
            json.dumps({"name": cell, "verdict": "skip", "reason": reason, "facts": facts, "modules": modules}),
        )
        pytest.skip(reason)
    if cell in request_.cold_sample:
        outcome = confirmed(outcome, request_.cell(cell, case, allowed, tag="-cold"), request)
    outcome["facts"] = {**facts, **outcome["facts"], **outcome.pop("start")}
    record_property("outcome", json.dumps(outcome))
    if outcome["verdict"] != Verdict.PASS.value:
        pytest.fail(f"{outcome['verdict']}: {outcome['reason']}", pytrace=False)


def confirmed(outcome: dict[str, Any], job: Job, request: pytest.FixtureRequest) -> dict[str, Any]:
    """The outcome compared with a cold start; as it is where that finds no GPUs any more."""
    try:
        return compared(outcome, run(request.getfixturevalue("cold_server"), job))
    except (gpu_pool.BusyError, UnavailableError) as none:
        return {**outcome, "facts": {**outcome["facts"], "no_cold_start": str(none)}}


def run(server: str, job: Job) -> dict[str, Any]:
    """The outcome of a job, on GPUs that are its own until nothing of it is left on them.

    Raises:
        BusyError: there are not enough that are free of others' work.
    """
    if job.device == "cpu":
        return ask(server, job)
    began, lender = time.monotonic(), lenders()
    with lender.lent(job.ranks) as lent:
        waited = time.monotonic() - began
        outcome = ask(server, replace(job, gpus=lent))
        seconds, left = lender.settled(lent)
    outcome["metrics"] |= {"gpus_wait_s": round(waited, 4), "gpus_settle_s": seconds}
    if left:
        outcome["facts"]["left_on_gpus"] = left
    return outcome


lenders = functools.cache(gpu_pool.pool)  # one a worker, which asks the driver but once what there is


def why_skipped(case: Any, asked: Request, suite: Any, server: str) -> tuple[str, list[str]]:
    """The first need of the case that this version or machine does not meet, as a sentence, and its probe's modules."""
    for need in suite.needed(case, asked.device):
        complaint, modules = probed(need, asked, server)
        if complaint:
            return f"{need.because}: {complaint}", modules
    return "", []


def probed(need: Any, asked: Request, server: str) -> tuple[str, list[str]]:
    """The complaint of a need's probe, empty if it has none, and the modules of the case code that the probe imported.

    Only what the probe itself raised is a complaint. A stack that cannot be imported, a GPU that cannot be used, a
    hang, a crash: the case has to show these.
    """
    outcome = once(asked, server, "probe", need.name, need.ranks)
    lacking = outcome["verdict"] == Verdict.FAIL.value and PROBING in outcome["facts"]
    return str(outcome["reason"]) if lacking else "", outcome.get("modules", [])


def environment_facts(asked: Request, server: str) -> dict[str, Any]:
    """Versions, builds and hardware as the environment itself sees them."""
    facts: dict[str, Any] = once(asked, server, "facts", "facts", 1)["facts"]
    return facts


def once(asked: Request, server: str, kind: str, name: str, ranks: int) -> dict[str, Any]:
    """The outcome of a job that all workers share: who comes first runs it, who comes second waits for it."""
    path = asked.cache / f"{kind}-{name}.json"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            outcome = run(server, asked.job(kind, name, ranks, Patience(PROBE_S)))
            unfinished = path.with_suffix(".unfinished")
            unfinished.write_text(json.dumps(outcome))
            unfinished.rename(path)
    told: dict[str, Any] = json.loads(path.read_text())
    return told


def compared(warm: dict[str, Any], cold: dict[str, Any]) -> dict[str, Any]:
    """The warm outcome, or ``lost`` if a cold start of the same cell says otherwise."""
    if (warm["verdict"], error_type(warm)) == (cold["verdict"], error_type(cold)):
        return {**warm, "metrics": {**warm["metrics"], "cold_s": cold["seconds"]}}
    reason = f"a warm start says {warm['verdict']} ({warm['reason']}), a cold one {cold['verdict']} ({cold['reason']})"
    return {**warm, "verdict": Verdict.LOST.value, "reason": reason}


def error_type(outcome: dict[str, Any]) -> str:
    return str((outcome.get("error") or {}).get("type", ""))
