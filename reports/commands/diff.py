"""``ftmatrix diff``: compares two runs, two version sets, or a run with the accepted baseline.

A warning is about numbers of a green cell: a check went from at most 40 % of its tolerance to at least 80 %; a cell
took twice as long, also after division by the median ratio of all cells, and 3 s more; or its memory grew by half, by
64 MiB on the host or 16 MiB on a GPU. Of 4,276 pairs of runs of the same cell on CPUs, this warned of 3 without a
reason; of 204 on GPUs, of 1. The limits were chosen with these pairs in view, so other runs may warn more often.

Exit codes: 0 no regression, 1 at least one regression that the quarantine does not cover, 2 bad input, 130 interrupted.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from matrix.api_map.query import ApiMap
from matrix.errors import UserError
from matrix.known import findings
from reports.alerts import from_diff
from reports.alerts.document import stored
from reports.answers import knowledge
from reports.answers.api import release_changes
from reports.answers.diff import compare, narrowing, quarantine, sides
from reports.commands.options import AsJson, Baselines, History, Results, ResultsDevice, results_device
from reports.commands.runs.diff_repeats import repeat as repeat_red
from reports.render import diff_documents, progress_bar
from reports.render.files import write_whole
from reports.render.text import diff_text
from reports.results import bisections

if TYPE_CHECKING:
    from datetime import date

    from reports.alerts.document import AlertDocument
    from reports.answers.diff.changes import ResultDiff

REGRESSED = 1
TABLE, JSON = "table", "json"
FORMATS = {"markdown": diff_documents.as_markdown, JSON: diff_documents.as_json, "junit": diff_documents.as_junit}


def diff(
    base: Annotated[
        str, typer.Argument(help="Run, folder of published results, set key, or `baseline`.", show_default=False)
    ],
    new: Annotated[str, typer.Argument(help="Run, folder of published results, or set key.", show_default=False)],
    results: Results = knowledge.PUBLISHED,
    device: ResultsDevice = "auto",
    across_hardware: Annotated[
        bool,
        typer.Option(
            "--across-hardware", help="Compare results of different hardware, but not their times and memory."
        ),
    ] = False,
    repeat: Annotated[
        int, typer.Option("--repeat", min=0, help="Run each red cell of NEW this many times more, inside NEW.")
    ] = 0,
    baselines: Baselines = Path(sides.BASELINE),
    quarantine_file: Annotated[
        Path | None,
        typer.Option(
            "--quarantine", help="File of known red and flaky cells.", show_default=f"{quarantine.FILE}, if it exists"
        ),
    ] = None,
    history: History = Path("history"),
    nights: Annotated[
        int, typer.Option("--nights", min=2, help="Nights without a change after which a flaky cell counts as stable.")
    ] = quarantine.NIGHTS,
    alerts: Annotated[
        Path | None, typer.Option(help="Also write the alerts and the green cells to this file, for `ftmatrix notify`.")
    ] = None,
    output: Annotated[str, typer.Option("--format", help=f"Output: {TABLE}, {', '.join(FORMATS)}.")] = TABLE,
    as_json: AsJson = False,
    every: Annotated[bool, typer.Option("--all", help="List every cell and every moved package.")] = False,
) -> None:
    """Compare two results: which cells regressed, why, and which packages moved."""
    chosen = JSON if as_json else output
    if chosen not in {TABLE, *FORMATS}:
        raise UserError(f"--format {chosen}: unknown format; choose from {TABLE}, {', '.join(FORMATS)}")
    today = datetime.now(UTC).date()
    entries = quarantine.load(
        quarantine_file or Path(quarantine.FILE), today=today, is_optional=quarantine_file is None
    )
    if repeat:
        console = Console(stderr=True)
        repeat_red(
            Path(new), repeat, watcher=lambda count: progress_bar.choose(console, planned=count), say=console.print
        )
    found = sides.find(
        base,
        new,
        results_folder=results,
        device=results_device(device),
        baselines=baselines,
        across_hardware=across_hardware,
    )
    compared = compare.compare(found.base, found.new, found.pairs, across_hardware=across_hardware)
    compared = quarantined(narrowed(compared, results), entries, history, nights)
    if alerts is not None:
        write_alerts(compared, alerts, today, history)
    if chosen == TABLE:
        pairs = release_changes.with_sentences(compared.pairs, ApiMap())
        Console().print(diff_text.TerminalDiff(diff=replace(compared, pairs=pairs), every=every))
    else:
        typer.echo(FORMATS[chosen](compared).rstrip())
    raise typer.Exit(REGRESSED if compared.regressions else 0)


def narrowed(compared: ResultDiff, results: Path) -> ResultDiff:
    """Return a comparison whose regressions name only the packages that published results leave as suspects.

    Raises:
        UserError: the published results cannot be read.
    """
    if not any(each.kind in narrowing.NARROWED for each in compared.changes):
        return compared
    try:
        matrix = knowledge.load(results, device=compared.new.device)
    except UserError:  # no published results of this device
        matrix = compared.new.matrix
    other = narrowing.OtherResults(matrix=matrix, findings=findings.load(), bisected=bisections.load(results))
    return narrowing.narrowed(compared, other)


def write_alerts(compared: ResultDiff, path: Path, today: date, history: Path) -> None:
    """Write the alerts of a comparison.

    Raises:
        UserError: the file cannot be written, or the history cannot be read.
    """
    document = alert_document(compared, today=today, history=history)
    try:
        write_whole(path, json.dumps(stored(document), indent=1) + "\n")
    except OSError as error:
        raise UserError(f"--alerts {path}: cannot be written ({error.strerror}); choose another file") from None


def alert_document(compared: ResultDiff, *, today: date, history: Path) -> AlertDocument:
    """Return the alerts of a comparison; the history, if there is one, knows the first night of their causes.

    Raises:
        UserError: the history cannot be read.
    """
    red_nights = None
    if any(history.glob("*.parquet")):
        from reports.results import history as stored_nights  # pyarrow takes a second to import

        red_nights = stored_nights.first_red_nights(history, device=compared.new.device)
    return from_diff.alert_document(compared, today=today, red_nights=red_nights)


def quarantined(compared: ResultDiff, entries: quarantine.Quarantine, history: Path, nights: int) -> ResultDiff:
    """Apply the quarantine; its entries are compared with the history, if there is one."""
    recent = None
    if entries.entries and any(history.glob("*.parquet")):
        from reports.results import history as stored  # pyarrow takes a second to import

        recent = stored.recent_verdicts(history, device=compared.new.device, nights=nights)
    return quarantine.applied(compared, entries, recent=recent, nights=nights)
