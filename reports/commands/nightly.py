"""``ftmatrix nightly``: measures what is new on the index, compares it with the baseline, and names the culprits.

Exit codes: 0 no regression, 1 at least one regression that the quarantine does not cover, 2 bad input, 130 interrupted.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cases.space.plural import counted
from matrix.environments import disk
from matrix.errors import UserError
from matrix.run.request import RunRequest
from matrix.versions.sets import PACKAGES
from reports.alerts import from_diff
from reports.answers import knowledge
from reports.answers.diff import compare, quarantine, sides
from reports.commands.diff import narrowed
from reports.commands.history import add_night
from reports.commands.nights import base_set, night
from reports.commands.nights.night import NightRequest
from reports.commands.options import (
    Baselines,
    Device,
    History,
    KeepFree,
    Results,
    TorchBackend,
    Workers,
    results_device,
)
from reports.commands.report import show
from reports.render import progress_bar
from reports.render.text import diff_text

if TYPE_CHECKING:
    from datetime import date

    from reports.commands.nights.night import NightResult

REGRESSED = 1
Sides = Annotated[
    list[str] | None,
    typer.Argument(
        help="With --dry-run, two results to compare instead: runs, folders of published results, or sets.",
        metavar="[BASE NEW]",
    ),
]


def nightly(
    results_to_compare: Sides = None,
    profile: Annotated[str, typer.Option("--profile", help="Profile of cases.")] = "nightly",
    minutes: Annotated[float, typer.Option(min=0, help="Time budget of the night, in minutes.")] = 60.0,
    base: Annotated[
        str,
        typer.Option(
            "--base", help="Set to compare with.", show_default="that of the baseline, or the newest packaged one"
        ),
    ] = "",
    pre: Annotated[
        list[str] | None,
        typer.Option("--pre", help="Package whose pre-releases and nightly builds count as well; repeatable."),
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="Change to compare with the base set as well, e.g. peft=git+https://HOST/OWNER/peft@main; repeatable.",
        ),
    ] = None,
    lowest: Annotated[
        bool, typer.Option("--lowest/--no-lowest", help="Measure the lowest versions that a new release declares.")
    ] = True,
    on: Annotated[
        str, typer.Option("--night", help="Day whose releases count, e.g. 2026-11-25.", show_default="today")
    ] = "",
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    out: Annotated[Path, typer.Option("--out", help="Folder of the nights.")] = Path("nightly"),
    baselines: Baselines = Path(sides.BASELINE),
    history: History = Path("history"),
    quarantine_file: Annotated[
        Path | None,
        typer.Option(
            "--quarantine", help="File of known red and flaky cells.", show_default=f"{quarantine.FILE}, if it exists"
        ),
    ] = None,
    nights: Annotated[
        int, typer.Option("--nights", min=2, help="Nights without a change after which a flaky cell counts as stable.")
    ] = quarantine.NIGHTS,
    workers: Workers = None,
    keep_free: KeepFree = disk.BUDGET / disk.GIGABYTE,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Install and measure nothing: print what a night would do, or would file.")
    ] = False,
    results: Results = knowledge.PUBLISHED,
) -> None:
    """Measure new releases, compare them with the baseline, and name the package that broke a cell."""
    console = Console(highlight=False, soft_wrap=True)
    if results_to_compare:
        print_replay(results_to_compare, results, device, dry_run=dry_run)
        return
    for name in pre or ():
        if name not in PACKAGES:
            raise UserError(f"--pre {name}: not one of the packages ({', '.join(PACKAGES)})")
    run_request = RunRequest(
        profile=profile, device=device, torch_backend=torch_backend, workers=workers, keep_free_gb=keep_free
    )
    run_request.check()
    day = day_of(on) if on else night.today()
    request = NightRequest(
        run_request=run_request,
        base=base_set.find(baselines, run_request.resolved_device, key=base),
        folder=out,
        night=day,
        minutes=minutes,
        pre=frozenset(pre or ()),
        lowest=lowest,
        changes=tuple(with_ or ()),
        quarantine=quarantine.load(
            quarantine_file or Path(quarantine.FILE), today=day, is_optional=quarantine_file is None
        ),
        history=history,
        nights=nights,
    )
    if dry_run:
        print_plan(request, console)
        return
    tonight = night.NightRun(
        request=request,
        watcher=lambda count: progress_bar.choose(console, planned=count),
        say=lambda text: console.print(text, markup=False),
    )
    raise typer.Exit(told(tonight.run(), history, console))


def day_of(text: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007 - a day has no zone
    except ValueError:
        raise UserError(f"--night {text}: expected a day such as 2026-11-25") from None


def print_plan(request: NightRequest, console: Console) -> None:
    """Print the sets that a night would measure, and the number of cases; nothing is stored."""
    console.print(f"Base: {request.base.source}", markup=False)
    found = night.candidates(request)
    for each in found:
        console.print(f"New: {each.version_set.key}, {each.version_set.why}", markup=False)
    if not found:
        console.print("No release is new since the base set.")
        return
    cases = request.run_request.cases()
    console.print(f"{counted(len(cases), 'case')} on each set, as far as {request.minutes:g} minutes suffice.")


def print_replay(compared: list[str], results: Path, device: str, *, dry_run: bool) -> None:
    """Print what a night would have filed whose base and new side are two results."""
    if not dry_run:
        raise UserError("two results to compare need --dry-run; without it, a night measures new releases")
    if len(compared) != 2:  # noqa: PLR2004 - a base and a new side
        raise UserError("name two results to compare, BASE and NEW")
    found = sides.find(*compared, results_folder=results, device=results_device(device))
    diff = narrowed(compare.compare(found.base, found.new, found.pairs), results)
    document = from_diff.alert_document(diff, today=night.today())
    Console().print(diff_text.TerminalDiff(diff=diff, every=False))
    typer.echo(night.filed_text(document))
    raise typer.Exit(REGRESSED if diff.regressions else 0)


def told(done: NightResult, history: Path, console: Console) -> int:
    """Print what a night found, add it to the history, and render its report; return the exit code."""
    if not done.measured:
        console.print("No release is new since the base set.")
    else:
        show(done.directory, console)
    for diff in done.diffs:
        console.print(diff_text.TerminalDiff(diff=diff, every=False))
    for text in done.notes:
        console.print(text, markup=False)
    if done.measured:
        console.print(add_night(sides.repeated_run(done.directory)[0], history), markup=False)
    if done.diffs:
        alerts = f"{counted(len(done.document.alerts), 'alert')} in {done.directory / night.ALERTS}"
        text = f"{alerts}, to send with `ftmatrix notify`; as text in {done.directory / night.FILED}"
        console.print(text, markup=False)
    return REGRESSED if any(each.regressions for each in done.diffs) else 0
