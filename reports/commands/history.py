"""``ftmatrix history``: draws the nights of a case, and adds runs to the history.

Exit codes: 0 done, 2 bad input.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cases.space import devices
from cases.space.plural import counted
from matrix.errors import UserError
from matrix.keys import SEPARATOR, CellKey
from reports.answers.diff import sides
from reports.commands.options import History

if TYPE_CHECKING:
    from reports.results.loading import RunResults

DAYS_PER_MONTH = 30.44
MOST_MONTHS = 1_200


class CaseOrCommand(TyperGroup):
    """Takes a first word that is no command as the case to draw: ``history CASE`` instead of ``history show CASE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and args[0] in {*self.commands, "--help"}
        return super().parse_args(ctx, args if named or not args else ["show", *args])


app = typer.Typer(help="Draw the nights of a case, or add a run.", cls=CaseOrCommand, no_args_is_help=True)


@app.command("show")
def show(
    case: Annotated[str, typer.Argument(help="Case, or cell as SET__CASE.", show_default=False)],
    device: Annotated[
        str, typer.Option("--device", help="Only the nights of this device: cpu or cuda.", show_default="both")
    ] = "",
    months: Annotated[
        int, typer.Option("--months", min=1, max=MOST_MONTHS, help="Number of last months to draw.")
    ] = 12,
    history: History = Path("history"),
) -> None:
    """Draw the nights of a case: when it changed, why, and which packages moved with it."""
    from reports.render.text.history_text import lines
    from reports.results import history as stored  # pyarrow takes a second to import

    if device and device not in devices.NAMES:
        raise UserError(f"--device {device}: unknown device; choose from {', '.join(devices.NAMES)}")
    key, name = named(case)
    since = (datetime.now(UTC) - timedelta(days=months * DAYS_PER_MONTH)).date()
    table = stored.read(history, case=name, version_set=key, device=device, since=since)
    typer.echo("\n".join(lines(table)))


def named(case: str) -> tuple[str, str]:
    """Return the set, if any, and the case that a user named.

    Raises:
        UserError: the text names neither.
    """
    try:
        key, name = CellKey.parse(case) if SEPARATOR in case else ("", case)
    except ValueError:
        name = ""
    if not name:
        raise UserError(f"{case!r}: neither a case nor a cell; name one, such as 2026-11__train-lora-ddp-fp32")
    return key, name


@app.command("add")
def add(
    run: Annotated[Path, typer.Argument(help="Run, or folder of published results.", show_default=False)],
    history: History = Path("history"),
) -> None:
    """Add a run to the history as the night on which it started; the same run twice is one night."""
    results, _ = sides.repeated_run(run)
    if not results.outcomes:
        raise UserError(f"{run}: it has no outcome yet, so nothing was added; run its cells with --resume, then add it")
    typer.echo(add_night(results, history))


def add_night(results: RunResults, folder: Path) -> str:
    """Add a run to the history, and return what was done in words.

    Raises:
        UserError: the history cannot be written.
    """
    from reports.answers.night_rows import rows
    from reports.results import history as stored

    done = stored.add(folder, [*rows(results)])
    night = f"{results.record.started.astimezone(UTC):%Y-%m-%d}"
    replaced = f", which replace {done.replaced}" if done.replaced else ""
    return f"Added {counted(done.added, 'outcome')} of the night {night} to {folder}{replaced}"
