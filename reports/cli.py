"""The command line. Each command parses, calls one function, prints.

Exit codes: 0 measured (red cells are findings, not errors), 1 something was lost, 2 bad input, 130 interrupted.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cases.verdict import Verdict
from matrix import asked as asking
from matrix import bench as benches
from matrix import disk, environments, locks, store, uv
from matrix import sets as known_sets
from matrix.errors import UserError
from matrix.evidence import Evidence
from reports import progress
from reports.grid import grid
from reports.render import render
from reports.terminal import TerminalReport

LOST, BAD_INPUT, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="ftmatrix",
    help="Which versions and settings of LLM fine-tuning stacks work together: measured, not folklore.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
sets_app = typer.Typer(help="List, add and lock version sets.", invoke_without_command=True)
app.add_typer(sets_app, name="sets")

Sets = Annotated[str, typer.Option("--sets", help="default, all, or keys separated by commas.")]
Where = Annotated[str, typer.Option("--where", help="Only these cases, e.g. 'quant=nf4 strategy=fsdp2'.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu (gloo) or cuda (NCCL).")]
TorchBackend = Annotated[str, typer.Option("--torch-backend", help="Build of torch: auto, cpu, pypi, or cu128 etc.")]
Versions = Annotated[Path, typer.Option("--versions", help="File of version sets.", show_default="the packaged one")]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


@app.command()
def run(
    sets: Sets = "default",
    where: Where = "",
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    out: Annotated[Path | None, typer.Option(help="Directory of the run.", show_default="runs/<time>")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Run only what --out, or the newest run, lacks.")] = False,
    workers: Annotated[int | None, typer.Option(help="Cells at once.", show_default="one per core")] = None,
    keep_free: Annotated[float, typer.Option(help="Gigabytes of disk to leave free.")] = disk.BUDGET / disk.GIGABYTE,
    cold: Annotated[bool, typer.Option("--cold", help="Every rank imports for itself.")] = False,
    cold_sample: Annotated[int, typer.Option(help="Cells per set that a cold start must confirm.")] = 1,
    versions: Versions = known_sets.PACKAGED,
) -> None:
    """Install version sets, run the cells, render the matrix."""
    console = Console()
    asked = asking.Asked(
        sets=sets,
        where=where,
        device=device,
        torch_backend=torch_backend,
        out=out,
        resume=resume,
        workers=workers,
        keep_free_gb=keep_free,
        cold=cold,
        cold_sample=cold_sample,
        versions=versions,
    )
    watcher = progress.choose(console, planned=asked.size)
    directory = asking.run(asked, watcher=watcher, say=console.print, when_cut=lambda cut: show(cut, console))
    raise typer.Exit(show(directory, console))


@app.command()
def report(
    directory: Annotated[Path | None, typer.Argument(help="A run.", show_default="the newest in runs/")] = None,
    publish: Annotated[Path | None, typer.Option(help="Render there, on its own: without links to the logs.")] = None,
) -> None:
    """Render a run again, finished or not: terminal, matrix.md, matrix.json, junit.xml, index.html."""
    found = directory or store.newest_run(asking.RUNS)
    raise typer.Exit(show(found, Console(), publish=publish))


@app.command()
def plan(
    sets: Sets = "default", where: Where = "", versions: Versions = known_sets.PACKAGED, as_json: AsJson = False
) -> None:
    """Print the cells that a run would have."""
    asked = asking.Asked(sets=sets, where=where, versions=versions)
    chosen, cases = asked.version_sets(), asked.cases()
    if as_json:
        rows = [{"case": c.id, "group": c.group, "why": c.why, "options": c.options.stated} for c in cases]
        print_json({"sets": [each.key for each in chosen], "cases": rows})
        return
    for group in dict.fromkeys(case.group for case in cases):
        typer.echo(f"{group}")
        for case in (case for case in cases if case.group == group):
            typer.echo(f"  {case.id}: {case.why}")
    typer.echo(f"{len(chosen)} sets x {len(cases)} cases = {len(chosen) * len(cases)} cells")


@app.command()
def bench(
    sets: Annotated[str, typer.Option("--sets", help="One set.", show_default="the newest default")] = "",
    where: Where = "",
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    workers: Annotated[int | None, typer.Option(help="Cells at once.", show_default="one per core")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Passes of the harness.")] = 3,
    sample: Annotated[int, typer.Option(min=1, help="Cells that torchrun starts one by one.")] = 8,
    as_json: AsJson = False,
) -> None:
    """Measure the harness: cells a minute against torchrun, wall time against the ideal."""
    asked = asking.Asked(
        sets=sets or "default", where=where, device=device, torch_backend=torch_backend, workers=workers
    )
    found = asking.bench(asked, repeats=repeats, sample=sample, say=lambda text: typer.echo(text, err=True))
    if as_json:
        print_json(found.as_json())
    else:
        typer.echo("\n".join(benches.lines(found)))


@sets_app.callback()
def list_sets(context: typer.Context, versions: Versions = known_sets.PACKAGED, as_json: AsJson = False) -> None:
    """List the version sets."""
    if context.invoked_subcommand is not None:
        return
    known = known_sets.load(versions)
    if as_json:
        rows = [{"set": s.key, "as_of": str(s.as_of), "pins": dict(s.pins), "default": s.default} for s in known]
        print_json(rows)
        return
    table = Table("set", *known_sets.PACKAGES, title=f"{len(known)} version sets, * = run by default", box=None)
    for each in known:
        mark = " *" if each.default else ""
        table.add_row(each.key + mark, *(each.pins[name] for name in known_sets.PACKAGES))
    console = Console(highlight=False)
    console.print(table)
    for each in known:
        console.print(f"{each.key}: {each.why}", soft_wrap=True, markup=False)


@sets_app.command("add")
def add_set(
    key: Annotated[str, typer.Argument(help="Name of the new set, e.g. 2024-09+peft0.13.2.")],
    pins: Annotated[list[str], typer.Argument(help="What differs, e.g. peft==0.13.2.")],
    base: Annotated[str, typer.Option("--from", help="The set it is made from.")],
    why: Annotated[str, typer.Option(help="What it is there for.")] = "",
    versions: Versions = known_sets.PACKAGED,
) -> None:
    """Add a set that differs from another in a few pins, and lock it."""
    (start,) = known_sets.select(known_sets.load(versions), base)
    tool = uv.on_this_machine(environments.cache_folder())
    added, lock = locks.add(key, known_sets.parsed_pins(pins), base=start, uv=tool, path=versions, why=why)
    print_lock(added.key, lock)


@sets_app.command("lock")
def lock_sets(
    keys: Annotated[str, typer.Argument(help="all, or keys.")], versions: Versions = known_sets.PACKAGED
) -> None:
    """Make locks again, as of each set's date."""
    tool = uv.on_this_machine(environments.cache_folder())
    for each in known_sets.select(known_sets.load(versions), keys):
        made = locks.lock(each, uv=tool)
        if isinstance(made, locks.Lock):
            locks.write(made, folder=locks.folder_beside(versions))
        print_lock(each.key, made)


def print_lock(key: str, made: locks.Lock | Evidence) -> None:
    if isinstance(made, Evidence):
        typer.echo(f"{key}: blocked: {made.reason}")
    else:
        typer.echo(f"{key}: locked, {len(made.versions)} packages, digest {made.digest}")


def show(directory: Path, console: Console, *, publish: Path | None = None) -> int:
    """Render a run, draw it, and say where it is; the exit code."""
    record, met, outcomes = store.read(directory)
    if publish is not None:  # the logs stay behind; an error's traceback is in its cell
        outcomes = tuple(outcome.model_copy(update={"evidence": {}}) for outcome in outcomes)
    page = render(record, met, outcomes, publish or directory)
    matrix = grid(record, met, outcomes)
    console.print(TerminalReport(record=record, grid=matrix))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False)
    return LOST if matrix.counts()[Verdict.LOST] else 0


def print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=1))


def main() -> None:
    """Run the command line; no traceback reaches a user for what they did."""
    try:
        app()
    except UserError as error:
        print(f"ftmatrix: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        print("ftmatrix: interrupted; finished cells are kept, `ftmatrix run --resume` runs the rest", file=sys.stderr)
        sys.exit(INTERRUPTED)
