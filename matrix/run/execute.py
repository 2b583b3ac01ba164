"""Runs the cells of one set: pytest with xdist inside the set's environment, on a copy of ``cases/`` alone."""

from __future__ import annotations

import json
import os
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cases import grid
from cases.flows.scripts import DECLARED
from cases.runtime import case_suite
from cases.runtime.wire import CellReport, Limits, SessionRequest
from matrix import processes
from matrix.run.code_digest import NO_CODE, SCRIPT, CaseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cases.flows.scripts import Script
    from cases.grid.profiles import Profile
    from cases.space.case import Case
    from matrix.environments.environment import Environment
    from matrix.run.outcome import Outcome

CASES: Final = Path(__file__).parents[2] / "cases"
EXTRA_CASES: Final = Path(__file__).parents[1] / "known" / "extra_cases.py"
# A set's cells have caches of their own. torch's default folder of extensions is the same for all versions of torch.
CACHES: Final = {"HF_HOME": "hf", "TORCH_EXTENSIONS_DIR": "torch_extensions"}
SLACK_S: Final = 120.0  # added to a cell's deadline for imports and the harness's own work


@dataclass(frozen=True)
class Suite:
    """The code that runs inside environments. ``extra`` are files next to ``cases/``; ``module`` declares the cases.

    ``added`` are cases outside the grid. They run the same code as the grid's cases, so the digest stays the same.
    ``in_order``: cells start in the given order, as each may spare the ones after it. ``unchanged``: the case on the
    unchanged stack, of a suite that changes it.
    """

    module: str = "cases.suite"
    extra: tuple[Path, ...] = ()
    scripts: tuple[Script, ...] = ()  # of the user
    added: tuple[Case, ...] = ()
    in_order: bool = False
    unchanged: Callable[[Case], Case] | None = None

    @cached_property
    def cases(self) -> Mapping[str, Case]:
        """Every case by id. Imports declarations only, nothing of the stack."""
        suite_cases: dict[str, Case] = case_suite.load(self.module).cases
        every = copy(suite_cases)
        every.update({case.id: case for case in (*grid.commands(self.scripts), *self.added)})
        return every

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Every profile by name; a suite need not have any."""
        return case_suite.load(self.module).profiles

    @cached_property
    def files(self) -> Mapping[str, bytes]:
        """File contents by path inside an environment, read once, so that every set of a run has the same code."""
        ours = {f"cases/{path.relative_to(CASES)}": path.read_bytes() for path in sorted(CASES.rglob("*.py"))}
        declared = {DECLARED.name: json.dumps([each.plain for each in self.scripts]).encode()} if self.scripts else {}
        return ours | {path.name: path.read_bytes() for path in self.extra} | declared

    @cached_property
    def code(self) -> CaseCode:
        """The modules of the suite, and the user's scripts.

        The digest of all of them names the code of a run; an outcome stores the digest of those that took part in it.
        """
        scripts = {f"{SCRIPT}{each.name}": json.dumps(each.plain).encode() for each in self.scripts}
        return CaseCode({**CaseCode.of_files(self.files).sources, **scripts})

    def stamp(self, case: Case, modules: Sequence[str]) -> str:
        """The modules that a cell's processes imported, with their digests; all modules if they reported none."""
        script = f"{SCRIPT}{case.options.call}" if case.options.flow == "script" else ""
        return self.code.stamp([*(modules or self.code.sources), *({script} & self.code.sources.keys())])

    def is_current(self, outcome: Outcome) -> bool:
        """Return whether the case code that produced an outcome is the code of this suite."""
        return outcome.code == NO_CODE or self.code.is_current(outcome.modules)

    def copy(self, folder: Path) -> None:
        (folder / "cases").mkdir(parents=True, exist_ok=True)
        for name, content in {**self.files, **self.declared}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    @property
    def declared(self) -> Mapping[str, bytes]:
        """The files that add cases to the suite: a module and its declarations."""
        if not self.added:
            return {}
        rows = [{"group": case.group, "why": case.why, "options": vars(case.options)} for case in self.added]
        declaration = json.dumps({"suite": self.module, "cases": rows}).encode()
        return {EXTRA_CASES.name: EXTRA_CASES.read_bytes(), "extra_cases.json": declaration}

    @property
    def entry_module(self) -> str:
        """The module that the test session loads the cases from."""
        return EXTRA_CASES.stem if self.added else self.module


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Runs cells in a test session inside an environment."""

    scratch: Path
    device: str
    workers: int
    suite: Suite = field(default_factory=Suite)
    limits: Limits = field(default_factory=Limits)
    cold: bool = False
    more: Mapping[str, str] = field(default_factory=dict)  # further environment variables

    def run(
        self,
        cells: Sequence[str],
        environment: Environment,
        *,
        cold_sample: Sequence[str] = (),
        sources: Mapping[str, str] | None = None,
    ) -> Iterator[CellReport]:
        """Run cells, and yield the report of each as it ends. A cell that the session never reported yields none.

        ``sources`` maps a cell to the folder from which it loads what a cell of another version set saved.
        """
        folder = self.scratch / "suite"
        self.suite.copy(folder)
        request = self.scratch / "request.json"
        message = SessionRequest(
            tuple(cells),
            self.device,
            folder=str(self.scratch / "jobs"),
            cache=str(self.scratch / "cache"),
            limits=self.limits,
            cold_sample=tuple(cold_sample),
            sources=sources or {},
            harness_pid=os.getpid(),
        )
        request.write_text(message.to_json(), encoding="utf-8")
        lines = processes.report_lines(
            self.command(environment, folder, request, count=len(cells)),
            silence_s=self.longest_s + SLACK_S,
            log=self.log,
            env=self.variables(environment),
            cwd=folder,
        )
        yield from map(CellReport.from_json, lines)

    def command(self, environment: Environment, folder: Path, request: Path, *, count: int) -> list[str]:
        workers = min(self.workers, count)
        return [
            *(str(environment.python), "-m", "pytest", str(folder / "cases" / "test_cells.py")),
            *("-p", "xdist", "-n", str(workers), *self.scheduling),
            *("-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", "-q", "--tb=short", "-rN"),
            *("--basetemp", str(self.scratch / "tmp")),  # pytest deletes all but the newest few of the default folder
            *("--suite", self.suite.entry_module, "--request", str(request)),
            *(["--cold"] if self.cold else []),
        ]

    @property
    def scheduling(self) -> tuple[str, ...]:
        """Options of xdist. On GPUs, cells start in the given order, so that small cells do not delay large ones."""
        return ("--dist", "worksteal") if self.device == "cpu" else ("--dist", "load", "--maxschedchunk", "1")

    def variables(self, environment: Environment) -> dict[str, str]:
        """Environment variables of the session, without the caller's pytest plugins, and without GPUs on the CPU."""
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if self.device == "cpu" else {}
        caches = {name: str(self.scratch / folder) for name, folder in CACHES.items()}
        own = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1", **caches}
        outer = {name: value for name, value in environment.variables().items() if not name.startswith("PYTEST_")}
        return {**outer, **own, **hidden, **self.more}

    @property
    def longest_s(self) -> float:
        """The seconds that one cell may take; a cell of the cold sample runs twice, but no script does."""
        return max([2 * self.limits.deadline_s, *(each.timeout_s for each in self.suite.scripts)])

    @property
    def log(self) -> Path:
        return self.scratch / "pytest.log"

    def job_folder(self, cell: str) -> Path:
        return self.scratch / "jobs" / "cell" / cell
