"""Builders of outcomes, sets and runs; a test states only the values that matter to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from cases.space.verdict import Verdict
from matrix.bisect.answer import BisectAnswer, Certainty, Culprit
from matrix.keys import CellKey
from matrix.run.outcome import CheckRecord, ErrorRecord, Outcome, RunRecord, SetRecord
from matrix.run.store import Store
from matrix.search.fixes import Change, Fix, Fixes
from matrix.search.fixes import Kind as Ways
from matrix.versions import sets
from reports.answers import knowledge
from reports.answers.devices.compare import compare
from reports.answers.diagnosis.diagnose import causes
from reports.answers.diagnosis.signatures import CauseKind, Signature
from reports.answers.fixes.remedies import Remedy
from reports.answers.overview import Overview
from reports.answers.scripts.repro_cells import outcome_of, pins_of
from reports.answers.scripts.repro_script import Reproducer, reproducer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from reports.results.grid import Grid

    Make = Callable[[str], Reproducer]

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
OLD = {
    "torch": "2.3.1",
    "transformers": "4.41.2",
    "peft": "0.11.1",
    "bitsandbytes": "0.43.1",
    "accelerate": "0.31.0",
    "trl": "0.9.4",
}
HOSTILE = "</script><script>alert(1)</script> <!-- | `a` \x00\x1b[31m \u202e \u2028 ]]> \U0001f600 &amp; {{ 7 * 7 }}"


class BuildOutcome(Protocol):
    def __call__(self, case: str = ..., on: str = ..., verdict: str = ..., **other: Any) -> Outcome: ...


class BuildSet(Protocol):
    def __call__(self, key: str = ..., **other: Any) -> SetRecord: ...


class BuildRun(Protocol):
    def __call__(self, *planned: str, **other: Any) -> RunRecord: ...


def an_outcome(case: str = "train-lora-ddp-fp32", on: str = "2024-06", verdict: str = "pass", **other: Any) -> Outcome:
    usual: dict[str, Any] = {
        "group": "LoRA",
        "why": "the commonest setup",
        "options": {"method": "lora", "strategy": "ddp"},
        "started": NOON,
        "seconds": 0.8,
        "hardware": "cpu: test",
    }
    return Outcome(set=on, case=case, verdict=Verdict(verdict), **{**usual, **other})


def a_set(key: str = "2024-06", **other: Any) -> SetRecord:
    usual: dict[str, Any] = {"python": "3.11", "pins": OLD, "as_of": f"{key[:7]}-30", "why": "a slice of its time"}
    return SetRecord(key=key, **{**usual, **other})


def a_run(*planned: str, **other: Any) -> RunRecord:
    usual: dict[str, Any] = {
        "harness": "0.1.0",
        "code": "c0de",
        "started": NOON,
        "device": "cpu",
        "asked": {"sets": "all"},
        "hardware": "cpu: 2 cores",
    }
    return RunRecord(**{**usual, "planned": planned, **other})


def a_small_matrix() -> tuple[RunRecord, list[SetRecord], list[Outcome]]:
    """Three sets, of which one is blocked, and every verdict at least once."""
    error = ErrorRecord(
        type="ValueError",
        message="Must flatten tensors with uniform requires_grad when use_orig_params=False\nmore",
        rank=0,
        traceback="Traceback (most recent call last):\n  ...",
    )
    off = CheckRecord(name="gradient", value=0.31, op="<=", bound=0.06, ok=False)
    fine = CheckRecord(name="loss", value=0.001, op="<=", bound=0.02, ok=True)
    sets = [a_set("2024-06"), a_set("2024-09"), a_set("2025-09", blocked="no version of bitsandbytes==9")]
    dora, nf4 = {"group": "DoRA"}, {"group": "nf4"}
    outcomes = [
        an_outcome("train-lora-ddp-fp32", "2024-06", checks=(fine,)),
        an_outcome("train-lora-ddp-fp32", "2024-09", checks=(fine,)),
        an_outcome("train-lora-fsdp1-bf16", "2024-06", "fail", phase="wrap", error=error),
        an_outcome("train-lora-fsdp1-bf16", "2024-09", "fail", phase="wrap", error=error),
        an_outcome("train-dora-ddp-bf16", "2024-06", "wrong", phase="backward", checks=(off, fine), **dora),
        an_outcome("train-dora-ddp-bf16", "2024-09", "hang", reason="rank 1 silent for 30 s", **dora),
        an_outcome("train-nf4-ddp-bf16", "2024-06", "skip", reason="bitsandbytes 0.43 quantises only on GPUs", **nf4),
        an_outcome("train-nf4-ddp-bf16", "2024-09", "crash", reason="rank 0 ended by SIGSEGV", **nf4),
        an_outcome("train-nf4-fsdp2-bf16", "2024-06", "lost", reason="the disk was full", **nf4),
        an_outcome("train-lora-ddp-fp32", "2025-09", "blocked", reason="no version of bitsandbytes==9"),
    ]
    planned = dict.fromkeys(str(CellKey(column.key, outcome.case)) for outcome in outcomes for column in sets)
    return a_run(*planned), sets, outcomes


class BuildOverview(Protocol):
    def __call__(self, matrix: Grid) -> Overview: ...


SIGNATURE = Signature(
    id="uniform-requires-grad",
    pattern="Must flatten tensors with uniform requires_grad",
    cause="Trained and frozen parameters share a flat tensor.",
    kind=CauseKind.SETTING,
    fix="use_orig_params=True",
    links=("owner/repo#7",),
)


def an_overview(matrix: Grid) -> Overview:
    """An overview with one known cause: a setting fixes it on one set, and no fix was found on the other."""
    case, within = "train-lora-fsdp1-bf16", "3 single settings"
    none = Fix(set="2024-09", case=case, kind=Ways.NONE, tried=3, within=within)
    change = Change(name="use_orig_params", old=False, new=True)
    found_one = {"set": "2024-06", "kind": Ways.SETTINGS, "to_set": "2024-06", "to_case": "green"}
    helps = none.model_copy(update={**found_one, "changes": (change,), "runs": 2})
    found = Fixes(generated=NOON, device="cpu", hardware="cpu: test", code="c0de", fixes=(helps, none))
    fixes = {str(CellKey(fix.set, fix.case)): Remedy(fix=fix, found=found) for fix in found.fixes}
    edits = {str(CellKey(helps.set, helps.case)): "--- a/train.py\n+++ b/train.py"}
    return Overview(causes=causes(matrix, [SIGNATURE]), fixes=fixes, edits=edits)


def beside_gpus(matrix: Grid) -> Overview:
    """An overview with results of GPUs on which pass and fail are swapped, and other verdicts are the same."""
    turned = {Verdict.PASS: Verdict.FAIL, Verdict.FAIL: Verdict.PASS}
    cells = {
        cell: outcome.model_copy(
            update={"verdict": turned.get(outcome.verdict, outcome.verdict), "hardware": "cuda: test"}
        )
        for cell, outcome in matrix.cells.items()
    }
    return replace(an_overview(matrix), devices=compare(matrix, replace(matrix, cells=cells)))


@pytest.fixture
def build_overview() -> BuildOverview:
    return an_overview


@pytest.fixture
def build_beside_gpus() -> BuildOverview:
    return beside_gpus


@pytest.fixture
def build_outcome() -> BuildOutcome:
    return an_outcome


@pytest.fixture
def build_set() -> BuildSet:
    return a_set


@pytest.fixture
def build_run() -> BuildRun:
    return a_run


@pytest.fixture
def small() -> tuple[RunRecord, list[SetRecord], list[Outcome]]:
    return a_small_matrix()


@pytest.fixture
def small_on_gpus() -> tuple[RunRecord, list[SetRecord], list[Outcome]]:
    """The small matrix with GPU hardware."""
    record, sets, outcomes = a_small_matrix()
    driver = {"driver": "580.159.04", "driver_cuda": "13.0"}
    facts = {"torch_cuda": "12.1", "nccl": "2.20.5"}
    return (
        record.model_copy(update={"device": "cuda", "hardware": "cuda: H200 x 2", "facts": driver}),
        sets,
        [each.model_copy(update={"facts": facts}) for each in outcomes],
    )


@pytest.fixture
def hostile() -> tuple[RunRecord, list[SetRecord], list[Outcome]]:
    """One cell with hostile text in every field that holds text."""
    outcome = an_outcome(
        verdict="fail",
        group=HOSTILE,
        why=HOSTILE,
        reason=HOSTILE,
        error=ErrorRecord(type="ValueError", message=HOSTILE + "x" * 10_000, traceback=HOSTILE),
        checks=(
            CheckRecord(name=HOSTILE, value=float("nan"), op="<=", bound=float("inf"), ok=False),
            CheckRecord(name="text", value="NaN?", op="==", bound=float("-inf"), ok=False),
        ),
        metrics={"speed": float("nan"), "peak": float("-inf")},
        facts={"odd": float("inf"), "name": HOSTILE, "none": None},
        evidence={HOSTILE: "javascript:alert(1)"},
    )
    return a_run(hardware=HOSTILE), [a_set(why=HOSTILE, notes=(HOSTILE,))], [outcome]


class WriteRun(Protocol):
    def __call__(self, *outcomes: Outcome, name: str = ..., columns: Sequence[SetRecord] = ..., **run: Any) -> Path: ...


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """``write_run(outcome, name="new", device="cuda")``: the folder of a run, below ``tmp_path / "runs"``."""

    def written(*outcomes: Outcome, name: str = "one", columns: Sequence[SetRecord] = (a_set(),), **run: Any) -> Path:
        store = Store.create(tmp_path / "runs" / name, a_run(**run))
        for column in columns:
            store.note(column)
        for outcome in outcomes:
            store.append(outcome)
        store.close()
        return store.directory

    return written


@pytest.fixture
def later() -> datetime:
    return NOON + timedelta(hours=1)


@pytest.fixture
def assert_golden() -> Callable[[str, Path], None]:
    def check(actual: str, expected: Path) -> None:
        seen = expected.with_suffix(f".actual{expected.suffix}")
        seen.write_text(actual, encoding="utf-8")
        known = expected.read_text(encoding="utf-8") if expected.exists() else ""
        assert actual == known, f"to accept the new text: mv {seen} {expected}"
        seen.unlink()

    return check


class Environ(Protocol):
    def __call__(self, versions: Mapping[str, str] | str, **requires: str) -> Path: ...


@pytest.fixture
def environment(tmp_path: Path) -> Environ:
    """A virtual environment with the metadata of some versions, or of a set's, without any of their code.

    Its interpreter is a plain file that nothing may start. ``requires`` has the declared requirements of packages.
    """

    def made(versions: Mapping[str, str] | str, **requires: str) -> Path:
        if isinstance(versions, str):
            (column,) = sets.select(sets.load(), versions)
            versions = column.pins
        folder = tmp_path / "environment"
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").write_text("no interpreter")
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.9\n")
        for name, version in versions.items():
            metadata = folder / "lib" / "python3.11" / "site-packages" / f"{name}-{version}.dist-info" / "METADATA"
            metadata.parent.mkdir(parents=True)
            needs = f"Requires-Dist: {requires[name]}\n" if name in requires else ""
            metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        return folder

    return made


@pytest.fixture(scope="session")
def published() -> Grid:
    return knowledge.load()


@pytest.fixture
def make(published: Grid) -> Make:
    def made(cell: str) -> Reproducer:
        outcome = outcome_of(cell, published)
        return reproducer(outcome, pins_of(outcome, published))

    return made


@pytest.fixture
def answer() -> Callable[..., BisectAnswer]:
    """The answer of a bisection with some culprits."""

    def made(*culprits: dict[str, Any], **other: Any) -> BisectAnswer:
        runs: dict[str, Any] = {"end_runs": 3, "repeats": 1, "boundary_runs": 3}
        sure = Certainty(**runs, flake_rate=0.0, highest_flake_rate=0.4, confidence=1.0)
        usual: dict[str, Any] = {
            "generated": datetime(2026, 11, 25, tzinfo=UTC),
            "case": "api-lora_trains",
            "good": "2025-12",
            "bad": "2026-03",
            "device": "cpu",
            "hardware": "cpu: test",
            "verdict": Verdict.FAIL,
            "failure": "ImportError: x",
            "differing": 40,
            "pins": {},
            "pins_base": "2025-12",
            "pins_green": True,
            "certainty": sure,
            "steps": (),
            "cells": 9,
            "seconds": 60.0,
        }
        found = tuple(Culprit(**each) for each in culprits)
        return BisectAnswer(culprits=found, **{**usual, **other})

    return made
