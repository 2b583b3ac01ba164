"""``ftmatrix baseline``: accepts a run as the baseline of its device, and shows the accepted ones.

Exit codes: 0 done, 1 no baseline to show, 2 bad input.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cases.space.plural import counted
from cases.space.verdict import Verdict
from matrix.errors import UserError
from reports.answers.diff import compare, sides
from reports.answers.diff.changes import RAN
from reports.answers.support.set_locks import lock_text
from reports.commands.history import add_night
from reports.commands.options import Baselines, History
from reports.render import write
from reports.render.text.diff_text import accepted_lines
from reports.results import document as data
from reports.results.loading import load
from reports.results.verdict_style import look

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reports.results.loading import RunResults

NOTHING = 1

app = typer.Typer(help="Accept a run as the baseline of its device, or show the accepted ones.", no_args_is_help=True)


@app.command("accept")
def accept(
    run: Annotated[Path, typer.Argument(help="Run, or folder of published results.", show_default=False)],
    baselines: Baselines = Path(sides.BASELINE),
    history: History = Path("history"),
) -> None:
    """Accept a run as the baseline of its device, print what becomes red or green by it, and add it to the history."""
    results, _ = sides.repeated_run(run)
    if not RAN & set(results.matrix.counts()):
        raise UserError(f"{run}: no cell of it ran, so it can be no baseline; accept a run with results")
    console, folder = Console(highlight=False, soft_wrap=True), baselines / results.record.device
    for line in changed_lines(baselines, results.record.device, run):
        console.print(line, markup=False)
    store_baseline(results, run, folder)
    console.print(f"Accepted {run} as {folder}: {counts(results)}", markup=False)
    console.print(add_night(results, history), markup=False)


@app.command("show")
def show(baselines: Baselines = Path(sides.BASELINE)) -> None:
    """Show the accepted baselines."""
    folders = sorted(path.parent for path in baselines.glob(f"*/{data.COMPRESSED}"))
    for folder in folders:
        results = load(folder)
        started = f"{results.record.started:%Y-%m-%d %H:%M} UTC"
        typer.echo(f"{folder}: run of {started} on {results.record.hardware}")
        typer.echo(f"  {', '.join(each.key for each in results.sets)}: {counts(results)}")
    if not folders:
        typer.echo(f"{baselines}: no baseline accepted yet; accept a run with `ftmatrix baseline accept RUN`")
        raise typer.Exit(NOTHING)


def changed_lines(baselines: Path, device: str, run: Path) -> Iterator[str]:
    """Yield which cells become red or green by a run that replaces the baseline."""
    if data.locate(baselines / device) is None:
        return
    try:
        before = sides.of_baseline(baselines, device)
    except sides.DamagedBaselineError:
        yield f"{baselines / device}: the old baseline is damaged, so nothing is compared with it"
        return
    try:
        found = sides.of_runs(before, sides.of_folder(run), across_hardware=True)
    except UserError as error:  # no set is common
        yield f"nothing is compared with the old baseline: {error}"
        return
    yield from accepted_lines(compare.compare(found.base, found.new, found.pairs, across_hardware=True))


def counts(results: RunResults) -> str:
    found = results.matrix.counts()
    verdicts = (Verdict.PASS, Verdict.WRONG, Verdict.FAIL, Verdict.HANG, Verdict.CRASH)
    parts = [f"{found[each]} {look(each).word}" for each in (*verdicts, Verdict.SKIP, Verdict.LOST, None)]
    return f"{counted(found.total(), 'cell')}: {', '.join(parts)}"


def store_baseline(results: RunResults, run: Path, folder: Path) -> None:
    """Write the compact results of a run, and the locks of its sets, of which this installation may get newer ones.

    Raises:
        UserError: the folder cannot be written.
    """
    locks: dict[str, str | bytes] = {}
    for column in results.sets:
        if column.lock:
            try:
                locks[f"{column.key}.txt"] = lock_text(column, folder=run)
            except UserError:
                continue  # the comparison then says that this lock is not known
    write.write_all(folder / "locks", locks)
    write.write_all(folder, {data.COMPRESSED: write.compact(results, generated=datetime.now(UTC))})
    (folder / data.PLAIN).unlink(missing_ok=True)  # an older one, which somebody unpacked
