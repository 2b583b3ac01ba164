"""Runs each cell as a test. Red cells fail, cells that cannot run on this machine are skipped, both with a reason."""

from __future__ import annotations

import fcntl
import functools
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases.flows import scripts
from cases.runtime import gpu_pool, torch_builds
from cases.runtime.forkserver import run_job
from cases.runtime.nvml import UnavailableError
from cases.runtime.silence import PROBE_S, SilenceTimeout
from cases.runtime.wire import REPORT_PROPERTY, CellReport
from cases.space import devices
from cases.space.verdict import PROBING, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cases.runtime.case_suite import CaseSuite, ProbedRequirement
    from cases.runtime.wire import Job, SessionRequest


def test_cell(
    cell: str,
    session_request: SessionRequest,
    suite: CaseSuite,
    server: str,
    record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest,
) -> None:
    facts: dict[str, Any] = {}
    modules: tuple[str, ...] = ()  # of the probe that decides a skip
    session = Path(session_request.folder)
    try:
        facts = environment_facts(session_request, server)
        reason = why_torch_is_unusable(facts)
        if reason:
            facts = {**facts, **gpu_pool.LACKING}
        if not reason:
            reason = suite.why_settled(cell, session)
        if not reason:
            reason, modules = why_skipped(cell, session_request, suite, server)
        if not reason:
            job = job_of_cell(cell, session_request, suite)
            report = run(server, job)
    except (gpu_pool.BusyError, UnavailableError) as error:
        reason = str(error)
        facts = {**facts, **gpu_pool.LACKING}
    if reason:
        report = CellReport(cell, Verdict.SKIP, reason, facts=facts, modules=modules)
        record_property(REPORT_PROPERTY, report.to_json())
        pytest.skip(reason)
    if cell in session_request.cold_sample:
        report = confirm(report, replace(job, folder=f"{job.folder}-cold"), request)
    report = replace(report, facts={**facts, **report.facts})
    suite.note(report, session)
    record_property(REPORT_PROPERTY, report.to_json())
    if report.verdict is Verdict.SKIP:
        pytest.skip(report.reason)
    if report.verdict is not Verdict.PASS:
        pytest.fail(f"{report.verdict.value}: {report.reason}", pytrace=False)


def job_of_cell(cell: str, request: SessionRequest, suite: CaseSuite) -> Job:
    """The job of a cell. It carries the options of its case: the processes that run it do not list cases."""
    case = suite.cases[cell]
    job = request.job("cell", cell, case.ranks, timeout=suite.silence_timeout(cell, request.device))
    if case.options.flow == "script":
        job = replace(job, deadline_s=scripts.timeout_s(case.options))
    return replace(job, options=vars(case.options))


def why_torch_is_unusable(facts: Mapping[str, Any]) -> str:
    """The reason why the build of torch runs nothing on the GPUs of this machine; empty if it can."""
    return torch_builds.why_unusable(facts, pool()) if devices.uses_gpus(facts.get("device", devices.CPU)) else ""


def confirm(report: CellReport, job: Job, request: pytest.FixtureRequest) -> CellReport:
    """The report compared with a cold start; unchanged if there are no GPUs for that start."""
    try:
        return compare(report, run(request.getfixturevalue("cold_server"), job))
    except (gpu_pool.BusyError, UnavailableError) as error:
        return replace(report, facts={**report.facts, "no_cold_start": str(error)})


def run(server: str, job: Job) -> CellReport:
    """Run a job. On GPUs, it acquires them exclusively until all of its memory is freed.

    Raises:
        BusyError: too few GPUs are free of other processes.
    """
    if not devices.uses_gpus(job.device):
        return run_job(server, job)
    began, gpus = time.monotonic(), pool()
    with gpus.acquire(devices.gpus_of(job.device, job.ranks)) as acquired:
        waited_s = time.monotonic() - began
        report = run_job(server, replace(job, gpus=acquired))
        settled_s, left = gpus.wait_until_free(acquired)
    metrics = {**report.metrics, "gpus_wait_s": round(waited_s, 4), "gpus_settle_s": settled_s}
    return replace(report, metrics=metrics, facts={**report.facts, **({"left_on_gpus": left} if left else {})})


pool = functools.cache(gpu_pool.pool)  # each worker queries the driver for the GPUs once


def why_skipped(cell: str, request: SessionRequest, suite: CaseSuite, server: str) -> tuple[str, tuple[str, ...]]:
    """The first requirement that this version or machine does not meet, as a sentence, and its probe's modules."""
    for requirement in suite.requirements(cell, request.device):
        complaint, modules = probe(requirement, request, server)
        if complaint:
            return f"{requirement.because}: {complaint}", modules
    return "", ()


def probe(requirement: ProbedRequirement, request: SessionRequest, server: str) -> tuple[str, tuple[str, ...]]:
    """Run the probe of a requirement.

    Returns:
        Its complaint, empty if the requirement is met, and the modules of the case code that it imported.

    Only an exception of the probe itself is a complaint. If the stack cannot be imported, a GPU is unusable, or the
    probe hangs or crashes, the case runs and reports that.
    """
    report = run_once(request, server, "probe", requirement.name, requirement.ranks)
    is_complaint = report.verdict is Verdict.FAIL and PROBING in report.facts
    return report.reason if is_complaint else "", report.modules


def environment_facts(request: SessionRequest, server: str) -> dict[str, Any]:
    """Versions, builds and hardware as the environment itself sees them."""
    return dict(run_once(request, server, "facts", "facts", 1).facts)


def run_once(request: SessionRequest, server: str, kind: str, name: str, ranks: int) -> CellReport:
    """The report of a job that all workers share: the first worker runs it, and the others wait for its report."""
    path = Path(request.cache) / f"{kind}-{name}.json"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            report = run(server, request.job(kind, name, ranks, timeout=SilenceTimeout(PROBE_S)))
            unfinished = path.with_suffix(".unfinished")
            unfinished.write_text(report.to_json(), encoding="utf-8")
            unfinished.rename(path)
    return CellReport.from_json(path.read_text(encoding="utf-8"))


def compare(warm: CellReport, cold: CellReport) -> CellReport:
    """The warm report, or a lost one if a cold start of the same cell disagrees."""
    if (warm.verdict, error_type(warm)) == (cold.verdict, error_type(cold)):
        return replace(warm, metrics={**warm.metrics, "cold_s": cold.seconds})
    warm_result = f"{warm.verdict.value} after a warm start ({warm.reason})"
    cold_result = f"{cold.verdict.value} after a cold one ({cold.reason})"
    reason = f"{warm_result}, but {cold_result}"
    return replace(warm, verdict=Verdict.LOST, reason=reason)


def error_type(report: CellReport) -> str:
    return report.error.type if report.error else ""
