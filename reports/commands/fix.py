"""``ftmatrix fix``: the nearest green cell of a red one, and what a user edits to get there.

Exit codes: 0 every fix was found, 1 of some cell there is none within what was tried, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from matrix.environments import disk
from matrix.run.request import Asked
from matrix.search.fixes import Kind
from matrix.search.neighbours import FARTHEST
from matrix.versions import sets as known_sets
from reports.answers import knowledge
from reports.answers.fixes import remedies
from reports.commands import fix_search

if TYPE_CHECKING:
    from reports.answers.fixes.remedies import Remedy

NONE_FOUND = 1


def fix(
    cell: Annotated[str, typer.Argument(help="SET__CASE, as the report names it.", show_default=False)] = "",
    every: Annotated[bool, typer.Option("--all", help="Every red cell of --profile on --sets.")] = False,
    known: Annotated[str, typer.Option(help="Red cells of known problems: ids, families, or all.")] = "",
    sets: Annotated[str, typer.Option("--sets", help="Of --all: default, slices, all, or keys.")] = "slices",
    profile: Annotated[str, typer.Option("--profile", help="Of --all: quick, default, full or nightly.")] = "default",
    results: Annotated[
        Path, typer.Option("--from", help="What is known: a run, or a folder of results.", show_default="published")
    ] = knowledge.PUBLISHED,
    look_up: Annotated[bool, typer.Option("--look-up", help="Only what a search found before; run nothing.")] = False,
    only: Annotated[str, typer.Option(help="Only these ways: settings, versions, alternative.")] = "",
    environments: Annotated[int, typer.Option(min=0, help="Further sets that may be run for the cells of one.")] = 6,
    radius: Annotated[int, typer.Option(min=1, max=FARTHEST, help="Changes that are made together.")] = FARTHEST,
    device: Annotated[str, typer.Option("--device", help="auto, cpu (gloo) or cuda (NCCL).")] = "auto",
    torch_backend: Annotated[str, typer.Option("--torch-backend", help="auto, cpu, pypi, or cu128 etc.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Directory of the run.", show_default="runs/<time>")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on in --out, or in the newest run.")] = False,
    workers: Annotated[int | None, typer.Option(help="Cells at once.", show_default="one per core")] = None,
    keep_free: Annotated[float, typer.Option(help="Gigabytes of disk to leave free.")] = disk.BUDGET / disk.GIGABYTE,
    versions: Annotated[
        Path, typer.Option("--versions", help="File of version sets.", show_default="packaged")
    ] = known_sets.PACKAGED,
    publish: Annotated[Path | None, typer.Option(help="Write fixes.json and what was run there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Find the nearest green cell: by settings, by versions, then by giving something up; each proven by runs."""
    asked = Asked(
        device=device,
        torch_backend=torch_backend,
        out=out,
        resume=resume,
        workers=workers,
        keep_free_gb=keep_free,
        versions=versions,
        profile=profile,
        sets=sets,
        cold_sample=0,
        repeats=1,
    )
    wish = fix_search.Wish(
        cell=cell,
        every=every,
        known=known,
        results=results,
        only=only,
        environments=environments,
        radius=radius,
    )
    order = fix_search.order(asked, wish)
    say = Console(stderr=True, highlight=False, soft_wrap=True).print
    found = fix_search.looked_up(order, say=say) if look_up else searched(order, publish)
    typer.echo(fix_search.listed(found) if as_json else "\n\n".join(fix_search.told(found, order)))
    raise typer.Exit(NONE_FOUND if any(each.fix.kind is Kind.NONE for each in found) else 0)


def searched(order: fix_search.Order, publish: Path | None) -> tuple[Remedy, ...]:
    console = Console(stderr=True, highlight=False)
    directory, found = fix_search.search(order, say=console.print)
    if publish is not None:
        fix_search.publish(directory, publish)
    console.print(f"In {directory / remedies.FIXES}", soft_wrap=True)
    return found
