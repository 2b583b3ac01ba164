"""``ftmatrix mutate``: makes small changes to the installed stack and counts those that the grid notices.

Exit codes: 0 measured, whatever the score, 2 bad input, 130 interrupted.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated, Any

import typer
from rich.console import Console

from matrix.errors import UserError
from matrix.experiments import mutant_reviews, mutation, mutation_score
from matrix.run import request, store
from reports.commands.options import AsJson, Device, KeepFree, Offline, TorchBackend, Where, Workers
from reports.render import progress_bar
from reports.render.text import mutation_text

DOCUMENT, PAGE = "mutation.json", "mutation.md"


def mutate(
    sets: Annotated[str, typer.Option("--sets", help="Version sets: keys.", show_default="newest")] = "newest",
    where: Where = "",
    profile: Annotated[
        str, typer.Option("--profile", help="Profile of cases: quick, default, full, nightly or gpu.")
    ] = "default",
    count: Annotated[int, typer.Option("--count", min=1, help="Number of mutants for each set.")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Decides which mutants are drawn.")] = 0,
    cells: Annotated[int, typer.Option("--cells", min=1, help="Cells to run for each mutant, at most.")] = 3,
    minutes: Annotated[
        float, typer.Option("--minutes", help="Minutes of mutated runs for each set; then it starts no more.")
    ] = 60.0,
    files: Annotated[
        str, typer.Option("--files", help="Only files of the stack that match, e.g. 'peft/tuners/lora/*.py'.")
    ] = "",
    mutants: Annotated[
        Path | None, typer.Option("--mutants", help="Run the mutants of this JSON file instead of drawing some.")
    ] = None,
    again: Annotated[
        Path | None,
        typer.Option("--again", help="Run the drawn mutants of this mutation.json again that no cell noticed."),
    ] = None,
    reviews: Annotated[
        Path | None,
        typer.Option("--reviews", help="Run nothing: add the reviews of this JSON file to the results in --out."),
    ] = None,
    locate: Annotated[
        bool,
        typer.Option("--locate", help="Run red cells once more to name the first module or function off."),
    ] = False,
    values: Annotated[
        bool,
        typer.Option("--values", help="Tell which unnoticed mutants change a value of the stack's functions."),
    ] = False,
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    out: Annotated[Path | None, typer.Option(help="Directory of the runs.", show_default="runs/mutate-<time>")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume --out; run only missing mutants.")] = False,
    workers: Workers = None,
    keep_free: KeepFree = request.RunRequest.keep_free_gb,
    cold: Annotated[bool, typer.Option("--cold", help="Import the stack in every rank.", hidden=True)] = False,
    offline: Offline = None,
    as_json: AsJson = False,
) -> None:
    """Change the installed stack in small ways; report the share of changes that the cells of the grid notice."""
    if reviews is not None:
        review(reviews, out, as_json=as_json)
        return
    console = Console(stderr=True)
    directory = out or request.RUNS / f"mutate-{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}"
    if again is not None and mutants is not None:
        raise UserError("--again and --mutants exclude each other")
    check(resume=resume, out=out, directory=directory)
    run_request = request.RunRequest(
        sets=sets,
        where=where,
        profile=profile,
        device=device,
        torch_backend=torch_backend,
        workers=workers,
        keep_free_gb=keep_free,
        cold=cold,
        offline=offline,
    )
    scores = mutation.run(
        mutation.MutationRequest(
            run=run_request,
            directory=directory,
            count=count,
            seed=seed,
            most=cells,
            minutes=minutes,
            files=files,
            hand_written=mutants,
            again=None if again is None else mutant_reviews.drawn_results(again, "--again"),
            locate=locate,
            values=values,
            watcher=lambda planned: progress_bar.choose(console, planned=planned),
            say=console.print,
        )
    )
    document = mutation_score.document(scores, seed=seed, run=run_facts(directory))
    store.write_json(directory / DOCUMENT, document)
    (directory / PAGE).write_text(mutation_text.markdown(scores), encoding="utf-8")
    typer.echo(json.dumps(document, indent=1) if as_json else "\n".join(mutation_text.lines(scores)))


def review(path: Path, directory: Path | None, *, as_json: bool) -> None:
    """Add reviews to stored results.

    Raises:
        UserError: there are no results, or the reviews do not belong to them.
    """
    if directory is None or not all((directory / name).exists() for name in (DOCUMENT, PAGE)):
        raise UserError("--reviews needs the directory of a finished mutation run; name it with --out")
    document = mutant_reviews.results(directory / DOCUMENT, "--out")
    mutant_reviews.add(document, mutant_reviews.read(path))
    store.write_json(directory / DOCUMENT, document)
    page = directory / PAGE
    text = mutation_text.with_reviews(page.read_text(encoding="utf-8"), document)
    page.write_text(text, encoding="utf-8")
    typer.echo(json.dumps(document, indent=1) if as_json else "\n".join(mutation_text.review_lines(document)))


def check(*, resume: bool, out: Path | None, directory: Path) -> None:
    """Refuse a directory that holds another mutation run, unless that continues.

    Raises:
        UserError: ``--resume`` without ``--out``, or ``--out`` has a run.
    """
    if resume and out is None:
        raise UserError("--resume needs the directory of the mutation run to resume; name it with --out")
    if not resume and (directory / mutation.MUTANTS_FOLDER).exists():
        raise UserError(f"{directory} has a mutation run; continue it with --resume, or choose another --out")


def run_facts(directory: Path) -> dict[str, Any]:
    """Return the hardware, the code and the start of a mutation run; empty if no cell ran."""
    if not (directory / mutation.CLEAN / store.RUN).exists():
        return {}
    record, _, _ = store.read(directory / mutation.CLEAN)
    return {
        "device": record.device,
        "hardware": record.hardware,
        "started": record.started.isoformat(),
        "harness": record.harness,
        "code": record.code,
    }
