"""The command line. Each command parses, calls one function, prints.

Exit codes: 0 measured (red cells are findings, not errors), 1 something was lost, 2 bad input, 130 interrupted.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import gc
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from cases.space.verdict import Verdict
from matrix.environments import disk
from matrix.environments.environment import cache_folder
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.experiments import crash_injection as disastrous
from matrix.experiments import selfcheck as selfchecking
from matrix.known import known_problems as problems
from matrix.run import request as asking
from matrix.run import store, user_scripts
from matrix.run.execute import Suite
from matrix.versions import locks, uv
from matrix.versions import sets as known_sets
from reports.commands import can_i_use, devices, doctor, explain, fix, pack, recommend, report, repro
from reports.commands.report import show
from reports.render import bench_text as bench_report
from reports.render import crash_text as disaster_report
from reports.render import known_page, progress_bar
from reports.render import plan_text as planned
from reports.render import selfcheck_text as selfcheck_report
from reports.render.write import write_whole
from reports.results import known_results as known_problems
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Sequence

LOST, BAD_INPUT, INTERRUPTED = 1, 2, 130
RESUMED = "finished cells are kept; the same command with --resume runs the rest"
KEPT = {
    "run": RESUMED,
    "known": RESUMED,
    "selfcheck": "finished cells are kept; --resume with its --out runs the rest, but not of --disasters",
    "pack": "whole wheels are kept; the same command brings the rest",
}  # of what an interrupted command did, by its name

app = typer.Typer(
    name="ftmatrix",
    help="Which versions and settings of LLM fine-tuning stacks work together: measured, not folklore.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
sets_app = typer.Typer(help="List, add and lock version sets.", invoke_without_command=True)
app.add_typer(sets_app, name="sets")

Sets = Annotated[
    str,
    typer.Option(
        "--sets", help="default, newest, slices, all, or keys separated by commas.", show_default="the profile's"
    ),
]
Profile = Annotated[
    str,
    typer.Option("--profile", help="quick, default, full, nightly or gpu.", show_default="default, or all for --where"),
]
Where = Annotated[str, typer.Option("--where", help="Only these cases, e.g. 'quant=nf4 strategy=fsdp2'.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu (gloo) or cuda (NCCL).")]
TorchBackend = Annotated[str, typer.Option("--torch-backend", help="Build of torch: auto, cpu, pypi, or cu128 etc.")]
Versions = Annotated[Path, typer.Option("--versions", help="File of version sets.", show_default="the packaged one")]
Offline = Annotated[Path | None, typer.Option(help="Folder that `ftmatrix pack` made; no index is asked.")]
SystemTorch = Annotated[
    bool, typer.Option("--system-torch", help="Lay the wheels of --offline over the torch that is there.")
]
SystemPython = Annotated[str, typer.Option(help="With --system-torch: the interpreter that has torch.")]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


@app.command()
def run(
    sets: Sets = "",
    where: Where = "",
    profile: Profile = "",
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    out: Annotated[Path | None, typer.Option(help="Directory of the run.", show_default="runs/<time>")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Run only what --out, or the newest run, lacks.")] = False,
    workers: Annotated[int | None, typer.Option(help="Cells at once.", show_default="one per core, or per GPU")] = None,
    keep_free: Annotated[float, typer.Option(help="Gigabytes of disk to leave free.")] = disk.BUDGET / disk.GIGABYTE,
    scripts: Annotated[Path | None, typer.Option(help="TOML file of commands of yours, to run as cases.")] = None,
    cold: Annotated[bool, typer.Option("--cold", help="Every rank imports for itself.")] = False,
    repeat: Annotated[
        int | None, typer.Option(help="How often each cell is run.", show_default="the profile's")
    ] = None,
    cold_sample: Annotated[int, typer.Option(help="Cells per set that a cold start must confirm.")] = 1,
    versions: Versions = known_sets.PACKAGED,
    offline: Offline = None,
    system_torch: SystemTorch = False,
    system_python: SystemPython = "python3",
) -> None:
    """Install version sets, run the cells, render the matrix."""
    console = Console()
    asked = asking.Asked(
        sets=sets,
        where=where,
        profile=profile,
        device=device,
        torch_backend=torch_backend,
        out=out,
        resume=resume,
        workers=workers,
        keep_free_gb=keep_free,
        cold=cold,
        cold_sample=cold_sample,
        repeats=repeat,
        versions=versions,
        offline=offline,
        system_torch=system_torch,
        system_python=system_python,
        suite=Suite(scripts=user_scripts.load(scripts)) if scripts else Suite(),
    )
    asked, work = asking.taken_up(asked)
    watcher = progress_bar.choose(console, planned=asking.size(asked.work() if work is None else work, asked.times))
    directory = asking.run(
        asked, work=work, watcher=watcher, say=console.print, when_cut=lambda cut: show(cut, console)
    )
    raise typer.Exit(show(directory, console))


@app.command()
def plan(
    sets: Sets = "",
    where: Where = "",
    profile: Profile = "",
    device: Device = "auto",
    versions: Versions = known_sets.PACKAGED,
    offline: Offline = None,
    system_torch: SystemTorch = False,
    system_python: SystemPython = "python3",
    as_json: AsJson = False,
) -> None:
    """Print the cells that a run would have, how long they will take by past timings, and what is left out."""
    asked = asking.Asked(
        sets=sets,
        where=where,
        profile=profile,
        device=device,
        versions=versions,
        offline=offline,
        system_torch=system_torch,
        system_python=system_python,
    )
    asked.check()
    found = asking.plan_of(asked)
    if as_json:
        print_json(found.as_json())
    else:
        typer.echo("\n".join(planned.lines(found)))


@app.command()
def known(
    sets: Annotated[str, typer.Option("--sets", help="Only on these.", show_default="all that a report names")] = "all",
    only: Annotated[str, typer.Option(help="Only these problems, by id, separated by commas.")] = "",
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    out: Annotated[Path | None, typer.Option(help="Directory of the run.", show_default="runs/<time>")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Run only what --out, or the newest run, lacks.")] = False,
    workers: Annotated[int | None, typer.Option(help="Cells at once.", show_default="one per core, or per GPU")] = None,
    keep_free: Annotated[float, typer.Option(help="Gigabytes of disk to leave free.")] = disk.BUDGET / disk.GIGABYTE,
    versions: Versions = known_sets.PACKAGED,
    findings: Annotated[bool, typer.Option("--findings", help="What no thread reports, instead.")] = False,
    table: Annotated[
        Path, typer.Option(help="The table of problems.", show_default="the packaged one")
    ] = problems.PACKAGED,
) -> None:
    """Run what upstream threads report, and say of each: reproduced, not reproduced, or needs other hardware."""
    console = Console()
    asked = asking.Asked(
        sets=sets,
        device=device,
        torch_backend=torch_backend,
        out=out,
        resume=resume,
        workers=workers,
        keep_free_gb=keep_free,
        cold_sample=0,
        repeats=1,
        versions=versions,
    )
    if findings and table != problems.PACKAGED:
        raise UserError("--findings is a table of its own: give either that or --table")
    chosen = problems.select(problems.load(problems.FINDINGS if findings else table), only)
    work = problems.work(chosen, asked.version_sets(), asked.suite.cases)
    watcher = progress_bar.choose(console, planned=sum(len(cases) for _, cases in work))
    directory = asking.run(asked, work=work, watcher=watcher, say=console.print)
    show(directory, console)
    raise typer.Exit(show_known(directory, chosen, console, findings=findings))


@app.command()
def selfcheck(
    sets: Annotated[str, typer.Option("--sets", help="Keys.", show_default="the newest, one two years older")] = "",
    where: Where = "",
    profile: Annotated[str, typer.Option("--profile", help="quick, default, full, nightly or gpu.")] = "full",
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Directory of its runs.", show_default="runs/selfcheck-<time>")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is in --out.")] = False,
    workers: Annotated[int | None, typer.Option(help="Cells at once.", show_default="one per core, or per GPU")] = None,
    disasters: Annotated[
        bool, typer.Option("--disasters", help="Ranks that hang, vanish or break their GPU, instead of faults.")
    ] = False,
    after: Annotated[int, typer.Option(help="With --disasters: healthy cells after each.")] = 20,
    offline: Offline = None,
    system_torch: SystemTorch = False,
    system_python: SystemPython = "python3",
    as_json: AsJson = False,
) -> None:
    """Plant faults in a working stack: the share that the checks catch, and false alarms without them."""
    console = Console(stderr=True)
    if resume and disasters:
        raise UserError("--resume goes on with a selfcheck of faults; --disasters begins anew: leave one of them out")
    if resume and out is None:
        raise UserError("--resume goes on with an earlier selfcheck: name its directory with --out")
    asked = asking.Asked(
        sets=sets or ("" if offline else ",".join(each.key for each in known_sets.two_years_apart(known_sets.load()))),
        where=where,
        profile=profile,
        device=device,
        torch_backend=torch_backend,
        workers=workers,
        resume=resume,
        offline=offline,
        system_torch=system_torch,
        system_python=system_python,
    )
    place: dict[str, Any] = {
        "directory": out or asking.RUNS / f"selfcheck-{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}",
        "watcher": lambda planned: progress_bar.choose(console, planned=planned),
        "say": console.print,
    }
    if disasters:
        met = disastrous.run(asked, after=after, **place)
        told, words, sound = disaster_report.document(met), disaster_report.lines(met), disaster_report.is_sound(met)
    else:
        found = selfchecking.run(asked, **place)
        told, words = selfcheck_report.document(found), selfcheck_report.lines(found)
        sound = selfcheck_report.is_sound(found)
    if as_json:
        print_json(selfcheck_report.run_document(*store.read(place["directory"] / "clean")[:2]) | told)
    else:
        typer.echo("\n".join(words))
    raise typer.Exit(0 if sound else 1)


@app.command()
def bench(
    sets: Annotated[str, typer.Option("--sets", help="One set.", show_default="the newest default")] = "",
    where: Where = "",
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    workers: Annotated[int | None, typer.Option(help="Cells at once.", show_default="one per core, or per GPU")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Passes of the harness.")] = 3,
    sample: Annotated[int, typer.Option(min=0, help="Cells of two ranks that each launcher starts one by one.")] = 8,
    warm_up: Annotated[bool, typer.Option(help="One pass before those that count.")] = True,
    out: Annotated[Path | None, typer.Option(help="Write it there as well, as JSON.")] = None,
    offline: Offline = None,
    system_torch: SystemTorch = False,
    system_python: SystemPython = "python3",
    as_json: AsJson = False,
) -> None:
    """Measure the harness: a warm cell beside torchrun and accelerate launch, and where its time goes."""
    if out is not None and not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}")
    if out is not None and out.is_dir():
        raise UserError(f"--out {out}: a folder is there; name a file")
    asked = asking.Asked(
        sets=sets or ("" if offline else "newest"),
        profile="" if where else "default",
        where=where,
        device=device,
        torch_backend=torch_backend,
        workers=workers,
        offline=offline,
        system_torch=system_torch,
        system_python=system_python,
    )
    found = asking.bench(
        asked, repeats=repeats, sample=sample, warm_up=warm_up, say=lambda text: typer.echo(text, err=True)
    )
    if out is not None:
        write_whole(out, json.dumps(found.as_json(), indent=1) + "\n")
    if as_json:
        print_json(found.as_json())
    else:
        typer.echo("\n".join(bench_report.lines(found)))


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
    tool = uv.on_this_machine(cache_folder())
    added, lock = locks.add(key, known_sets.parsed_pins(pins), base=start, uv=tool, path=versions, why=why)
    print_lock(added.key, lock)


@sets_app.command("lock")
def lock_sets(
    keys: Annotated[str, typer.Argument(help="all, or keys.")], versions: Versions = known_sets.PACKAGED
) -> None:
    """Make locks again, as of each set's date."""
    tool = uv.on_this_machine(cache_folder())
    for each in known_sets.select(known_sets.load(versions), keys):
        made = locks.lock(each, uv=tool)
        if isinstance(made, locks.Lock):
            locks.write(made, folder=locks.folder_beside(versions))
        print_lock(each.key, made)


# Those that answer from what is known, in the order in which one asks; each says its exit codes.
for name, command, module in (
    ("report", report.report, report),
    ("explain", explain.explain, explain),
    ("fix", fix.fix, fix),
    ("recommend", recommend.recommend, recommend),
    ("can-i-use", can_i_use.can_i_use, can_i_use),
    ("devices", devices.devices, devices),
    ("doctor", doctor.doctor, doctor),
    ("repro", repro.repro, repro),
    ("pack", pack.pack, pack),
):
    app.command(name, epilog=(module.__doc__ or "").partition("\n\n")[2].replace("\n", " "))(command)


def print_lock(key: str, made: locks.Lock | Evidence) -> None:
    if isinstance(made, Evidence):
        typer.echo(f"{key}: blocked: {made.reason}")
    else:
        typer.echo(f"{key}: locked, {len(made.versions)} packages, digest {made.digest}")


def show_known(directory: Path, chosen: Sequence[problems.Problem], console: Console, *, findings: bool) -> int:
    """Write what was shown of the known problems, and say it; the exit code."""
    record, met, outcomes = store.read(directory)
    matrix = grid(record, met, outcomes)
    found = known_problems.judged(chosen, matrix)
    name, draw = ("findings", known_page.findings) if findings else ("known_problems", known_page.markdown)
    write_whole(directory / f"{name}.md", draw(record, found))
    write_whole(directory / f"{name}.json", json.dumps(known_problems.document(found), indent=1) + "\n")
    for each in found:
        console.print(f"{each.standing.value:20} {each.problem.id}", highlight=False, markup=False)
    console.print(f"In words: {directory / name}.md", soft_wrap=True, highlight=False)
    return LOST if matrix.counts()[Verdict.LOST] else 0


def print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=1))


def main() -> None:
    """Run the command line; no traceback reaches a user for what they did."""
    gc.set_threshold(200_000)  # of published results nothing becomes garbage, and looking for it takes a third
    try:
        app()
    except UserError as error:
        print(f"ftmatrix: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        interrupted()
    except SystemExit as ended:  # typer's own answer to Ctrl-C, which says nothing
        if ended.code == INTERRUPTED:
            interrupted()
        raise


def interrupted() -> NoReturn:
    """Say what is kept, and end."""
    kept = KEPT.get(sys.argv[1] if len(sys.argv) > 1 else "", "")
    print(f"ftmatrix: interrupted{kept and f'; {kept}'}", file=sys.stderr)
    sys.exit(INTERRUPTED)
