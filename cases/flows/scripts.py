"""``flow=script``: a user's command, which starts its own ranks; its exit code, files and metrics decide.

The harness writes the user's declarations to ``scripts.json`` next to this package.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.flows import script_end, script_metrics, script_process
from cases.flows.script_metrics import Bound
from cases.runtime import imported_modules
from cases.space.verdict import Check, Phase, at_least, equal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.apply.context import Context
    from cases.space.options import Options

DECLARED = Path(__file__).parents[2] / "scripts.json"
HEADING = "Scripts"
PACKAGES = "FTMATRIX_SCRIPT_PACKAGES"  # JSON: the folder of the extra packages of each script that has some
HUB_CACHE = "FTMATRIX_HUB_CACHE"  # the user's, instead of the empty one of cells
CONFIGURATION = "adapter_config.json"  # as PEFT names it
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")  # of newer and older versions of PEFT
STACKS_BEFORE_S = 5.0  # before the deadline, every Python process of a command writes its stacks
CHECKING = "cases.flows.script_adapter"


@dataclass(frozen=True)
class AdapterRules:
    """What must hold for a saved adapter.

    ``folder`` is below ``{out}``. ``base`` is the base model if the adapter's configuration does not name it: a folder
    below ``{out}`` or an absolute path. ``unchanged`` are patterns of tensors that training may leave as they started.
    """

    folder: str = "."
    base: str = ""
    unchanged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Script:
    """``command`` may contain ``{python}``, the environment's interpreter, and ``{out}``, a new folder to write into.

    It may also contain ``{script}``, the user's file, and ``{port}``, a free port of this machine. ``writes`` are files
    below ``{out}`` that must exist afterwards and not be empty; ``folder`` is the working directory, by default the
    cell's folder. ``dependencies`` are requirements (PEP 508), ``digest`` that of the user's file.
    """

    name: str
    command: tuple[str, ...]
    ranks: int = 1
    writes: tuple[str, ...] = ()
    folder: str = ""
    why: str = "a user's command"
    script: str = ""
    metrics: Mapping[str, Bound] = field(default_factory=dict)
    adapter: AdapterRules | None = None
    timeout_s: float = 300.0
    dependencies: tuple[str, ...] = ()
    requires_python: str = ""
    digest: str = ""
    source: str = ""  # the file and the table that declare it

    @property
    def plain(self) -> dict[str, Any]:
        """The declaration as JSON has it."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, row: dict[str, Any]) -> Script:
        """The script of a plain declaration."""
        adapter = row["adapter"]
        typed = {
            "command": tuple(row["command"]),
            "writes": tuple(row["writes"]),
            "dependencies": tuple(row["dependencies"]),
            "metrics": {name: Bound(**bound) for name, bound in row["metrics"].items()},
            "adapter": AdapterRules(**{**adapter, "unchanged": tuple(adapter["unchanged"])}) if adapter else None,
        }
        return cls(**{**row, **typed})


PACKAGED = (
    Script(
        name="torchrun_lora_ddp",
        command=(
            *("{python}", "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("-m", "cases.alone", "train-lora-ddp-bf16"),
        ),
        ranks=2,
        writes=("checks.json",),
        why="torchrun starts the ranks, and each imports the stack itself",
    ),
)


def known() -> dict[str, Script]:
    """The packaged scripts, and those that the user declared."""
    declared = json.loads(DECLARED.read_text()) if DECLARED.exists() else []
    return {script.name: script for script in (*PACKAGED, *map(Script.of, declared))}


def timeout_s(options: Options) -> float:
    """The time limit of the script of a case (``flow=script``), in seconds."""
    return known()[options.call].timeout_s


def run(ctx: Context) -> None:
    """Run the command, and check its exit code, its files, its metrics and its adapter."""
    script, began_at = known()[ctx.options.call], time.time()
    ctx.reporter.phase(Phase.FORWARD)
    try:
        output = run_command(script, ctx, began_at)
    finally:
        ctx.reporter.modules(sorted(imported_modules.noted_in(modules_file(ctx))))
    with ctx.reporter.observing():
        ctx.reporter.checks([*file_checks(script, ctx.kept), *metric_checks(script, ctx)])
    ctx.reporter.metric("output_bytes", float(len(output)))
    if script.adapter is not None:
        check_adapter(script, script.adapter, ctx, began_at)


def run_command(script: Script, ctx: Context, began_at: float) -> str:
    """Run the command and return its output. The cell began at that time, in seconds since the epoch.

    Raises:
        ScriptError: the command cannot be started, or its exit code is not 0. If a signal ended it or one of its ranks,
            this process ends by that signal instead.
    """
    port = free_port()
    places = {"python": sys.executable, "out": str(ctx.kept), "script": script.script, "port": port}
    words = [with_places(word, places) for word in script.command]
    log = ctx.kept.parent / "rank-0-script.log"
    finished = script_process.run(
        words,
        folder=script.folder or str(ctx.kept),
        variables={**variables(script, ctx, began_at), "MASTER_PORT": port, "PET_MASTER_PORT": port},
        log=log,
        beat=ctx.reporter.beat,
    )
    script_end.raise_failure(finished, ctx.reporter.facts)
    return finished.output


def with_places(word: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def variables(script: Script, ctx: Context, began_at: float) -> dict[str, str]:
    """The environment of the processes of a script that began then, without that of this process."""
    suite_folder = str(Path(__file__).parents[2])
    packages = json.loads(os.environ.get(PACKAGES, "{}")).get(script.name, "")
    path = joined(str(Path(packages, "bin")), os.environ.get("PATH", os.defpath)) if packages else os.environ["PATH"]
    return {
        "FTMATRIX_OUT": str(ctx.kept),
        "FTMATRIX_DEVICE": ctx.place.kind,
        imported_modules.FILE: str(modules_file(ctx)),
        **({"HF_HUB_CACHE": os.environ[HUB_CACHE]} if HUB_CACHE in os.environ else {}),
        "PATH": path,
        "PYTHONPATH": joined(script_process.HOOK, packages, suite_folder, os.environ.get("PYTHONPATH", "")),
        "PYTHONFAULTHANDLER": "1",
        script_process.STACKS_AT: str(began_at + max(1.0, script.timeout_s - STACKS_BEFORE_S)),
    }


def joined(*folders: str) -> str:
    return os.pathsep.join(filter(None, folders))


def free_port() -> str:
    """A port that is free now: cells run at the same time, and torchrun would give each the same one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def modules_file(ctx: Context) -> Path:
    """The file in which processes of the command that import ``cases`` note the modules."""
    return ctx.kept.parent / "modules.txt"


def file_checks(script: Script, out: Path) -> list[Check]:
    files = [path for path in out.rglob("*") if path.is_file() and path.stat().st_size]
    lacking = [name for name in script.writes if out / name not in files]
    return [
        at_least("files written that are not empty", len(files), 1),
        equal("promised files that are missing or empty", "+".join(lacking) or "none", "none"),
    ]


def metric_checks(script: Script, ctx: Context) -> list[Check]:
    """Checks of the metrics, whose last values become metrics of the cell."""
    reported = script_metrics.read(ctx.kept)
    for name, value in reported.last_values.items():
        ctx.reporter.metric(f"script.{name}", value)
    return script_metrics.checks(script.metrics, reported)


def check_adapter(script: Script, rules: AdapterRules, ctx: Context, began_at: float) -> None:
    """Check the files of the saved adapter, and, in a fresh process, its tensors and that it loads again.

    Raises:
        ScriptError: the stack raised when it loaded the adapter.
    """
    folder = ctx.kept / rules.folder
    weights = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    lacking = [*([] if (folder / CONFIGURATION).is_file() else [CONFIGURATION]), *([] if weights else [WEIGHTS[0]])]
    ctx.reporter.checks([equal("adapter files that are missing", "+".join(lacking) or "none", "none")])
    if lacking:
        return
    ctx.reporter.phase(Phase.RELOAD)
    base = str(ctx.kept / rules.base) if rules.base else ""  # an absolute path replaces the folder
    request, result = ctx.kept.parent / "adapter-request.json", ctx.kept.parent / "adapter-checks.json"
    found = {"folder": str(folder), "weights": str(weights), "base": base, "unchanged": rules.unchanged}
    request.write_text(json.dumps(found))
    finished = script_process.run(
        [sys.executable, "-m", CHECKING, str(request), str(result)],
        folder=str(ctx.kept),
        variables=variables(script, ctx, began_at),
        log=ctx.kept.parent / "rank-0-adapter.log",
        beat=ctx.reporter.beat,
    )
    script_end.raise_failure(finished, ctx.reporter.facts, ours=CHECKING)
    ctx.reporter.checks([Check(**row) for row in json.loads(result.read_text())])
