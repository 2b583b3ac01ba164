"""The cells of users' scripts in a run: what a set must have for them, their extra packages, and their reports."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cases.flows.script_end import END, RANK
from cases.flows.scripts import HUB_CACHE, PACKAGES
from cases.space.verdict import Verdict
from matrix.environments import extra_packages
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.run.scripts.script_table import missing_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cases.flows.scripts import Script
    from cases.runtime.wire import CellReport
    from cases.space.case import Case
    from matrix.environments.environment import Environment
    from matrix.environments.extra_packages import ExtraPackages
    from matrix.versions.locks import Lock
    from matrix.versions.uv import Uv

OUR_FRAME: Final = re.compile(r": rank 0 in \w+ \(script_process\.py:\d+\)")
FRAME: Final = re.compile(
    r"most recent call first\):\n  File \"(?P<file>[^\"\n]+)\", line (?P<line>\d+) in (?P<function>.+)"
)


@dataclass(frozen=True, kw_only=True)
class ScriptPackages:
    """The extra packages of scripts by name, and the evidence for those that cannot have theirs."""

    installed: Mapping[str, ExtraPackages] = field(default_factory=dict)
    refused: Mapping[str, Evidence] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """Variables for the cells of scripts: the folders of packages, and the user's cache of the hub."""
        folders = {name: str(each.folder) for name, each in self.installed.items() if each.folder}
        return {PACKAGES: json.dumps(folders), HUB_CACHE: hub_cache(os.environ)} if self.installed else {}

    def refuses(self, case: Case) -> bool:
        return is_script(case) and case.options.call in self.refused

    def facts(self, case: Case) -> dict[str, str]:
        """The extra packages of a case, as a fact of its outcome."""
        known = self.installed.get(case.options.call) if is_script(case) else None
        versions = known.versions if known else {}
        return {"extra_packages": " ".join(f"{name}=={each}" for name, each in versions.items())} if versions else {}


def hub_cache(environ: Mapping[str, str]) -> str:
    """The folder of downloaded models, as huggingface_hub chooses it; cells have an empty ``HF_HOME`` of their own."""
    home = environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return environ.get("HF_HUB_CACHE") or str(Path(home, "hub").expanduser())


def is_script(case: Case) -> bool:
    return case.options.flow == "script"


def of_cases(scripts: Sequence[Script], cases: Sequence[Case]) -> list[Script]:
    """The user's scripts among some cases."""
    names = {case.options.call for case in cases if is_script(case)}
    return [script for script in scripts if script.name in names]


def why_unmet(scripts: Sequence[Script], case: Case, lock: Lock) -> str:
    """What the script of a case requires and the set lacks, as a sentence; empty if there is nothing."""
    own = of_cases(scripts, [case])
    return next((extra_packages.unmet(each.dependencies, each.requires_python, lock) for each in own), "")


def prepare(
    scripts: Sequence[Script], cases: Sequence[Case], environment: Environment, *, lock: Lock, cache: Path, uv: Uv
) -> ScriptPackages:
    """Install the extra packages of the scripts among some cases, and check that their programs exist.

    Raises:
        UserError: neither the environment nor this machine has a program, or the machine is at fault.
    """
    own = of_cases(scripts, cases)
    found = {
        script.name: extra_packages.install(script.dependencies, root=environment.root, lock=lock, cache=cache, uv=uv)
        for script in own
    }
    installed = {name: each for name, each in found.items() if not isinstance(each, Evidence)}
    for script in (script for script in own if script.name in installed):
        check_program(script, environment, installed[script.name].folder)
    return ScriptPackages(
        installed=installed, refused={name: each for name, each in found.items() if isinstance(each, Evidence)}
    )


def check_program(script: Script, environment: Environment, extra: Path | None) -> None:
    path = environment.variables()["PATH"]
    program = missing_program(script, path=os.pathsep.join([*([str(extra / "bin")] if extra else []), path]))
    if program:
        raise UserError(
            f"{script.source}.command: {environment.key} has no program {program}, and PATH has none; correct the name,"
            " add its package to dependencies, or leave the set out"
        )


def of_ranks(report: CellReport, folder: Path) -> CellReport:
    """The report of a cell with what happened to the ranks of the script, instead of the rank that ran the command.

    ``folder`` is that of the job, where the processes of the script left their stacks.
    """
    end, rank = report.facts.get(END), report.facts.get(RANK)
    reason = report.reason.replace(f"rank 0 was ended by {str(end).rpartition(' ')[2]}", str(end))
    if report.verdict is Verdict.HANG:
        reason = OUR_FRAME.sub(lambda _: f": {where}" if (where := waiting(folder)) else "", reason)
    error = report.error if report.error is None or rank is None else replace(report.error, rank=int(rank))
    return replace(report, reason=reason, error=error)


def waiting(folder: Path) -> str:
    """Where the ranks of a script were shortly before its deadline; the command if it has no ranks."""
    stacks = {path: FRAME.search(path.read_text(errors="replace")) for path in sorted(folder.glob("rank-*-*.stack"))}
    found = [(path.stem.split("-")[1], frame) for path, frame in stacks.items() if frame]
    ranks = [(f"rank {who}", frame) for who, frame in found if who.isdigit()] or [
        ("the command", each) for _, each in found
    ]
    return "; ".join(
        f"{who} in {frame['function']} ({Path(frame['file']).name}:{frame['line']})" for who, frame in ranks
    )
