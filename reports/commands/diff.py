"""``ftmatrix diff``: compares two runs, two version sets, or a run with the accepted baseline.

Exit codes: 0 no regression, 1 at least one regression, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from reports.answers import knowledge
from reports.answers.diff import compare, sides
from reports.commands.options import Results, ResultsDevice, results_device
from reports.render import diff_text

REGRESSED = 1


def diff(
    base: Annotated[
        str, typer.Argument(help="Run, folder of published results, set key, or `baseline`.", show_default=False)
    ],
    new: Annotated[str, typer.Argument(help="Run, folder of published results, or set key.", show_default=False)],
    results: Results = knowledge.PUBLISHED,
    device: ResultsDevice = "auto",
    across_hardware: Annotated[
        bool, typer.Option("--across-hardware", help="Compare results of different hardware; times and memory are not.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="List every cell and every moved package.")] = False,
) -> None:
    """Compare two results: which cells regressed, why, and which packages moved."""
    found = sides.find(
        base, new, results_folder=results, device=results_device(device), across_hardware=across_hardware
    )
    compared = compare.compare(found.base, found.new, found.pairs, across_hardware=across_hardware)
    Console().print(diff_text.TerminalDiff(diff=compared, every=every))
    raise typer.Exit(REGRESSED if compared.regressions else 0)
