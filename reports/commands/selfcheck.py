"""``ftmatrix selfcheck``: injects faults into a working stack and counts those that the checks catch.

Exit codes: 0 every fault was caught without a false alarm, 1 otherwise, 2 bad input, 130 interrupted.
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
from matrix.experiments import crash_injection
from matrix.experiments import selfcheck as fault_injection
from matrix.known import published_errors
from matrix.known.published_errors import PublishedErrors  # noqa: TC001
from matrix.run import location, request, store
from matrix.versions import sets as version_sets
from reports.commands.options import (
    AsJson,
    Device,
    KeepFree,
    Offline,
    SystemPython,
    SystemTorch,
    TorchBackend,
    Where,
    Workers,
)
from reports.render import progress_bar, published_errors_page
from reports.render.text import crash_text, selfcheck_text


def selfcheck(
    sets: Annotated[
        str, typer.Option("--sets", help="Version sets: keys.", show_default="the newest and one two years older")
    ] = "",
    where: Where = "",
    profile: Annotated[
        str, typer.Option("--profile", help="Profile of cases: quick, default, full, nightly or gpu.")
    ] = "full",
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Directory of the runs.", show_default="runs/selfcheck-<time>")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the selfcheck in --out.")] = False,
    workers: Workers = None,
    keep_free: KeepFree = request.RunRequest.keep_free_gb,
    crashes: Annotated[
        bool, typer.Option("--crashes", help="Inject hangs, crashes and broken GPUs instead of wrong results.")
    ] = False,
    locate: Annotated[
        bool, typer.Option("--locate", help="Locate each fault, and count the locations that name what it changed.")
    ] = False,
    disasters: Annotated[bool, typer.Option("--disasters", hidden=True)] = False,
    after: Annotated[int, typer.Option(help="Number of healthy cells to run after each injected crash.")] = 20,
    offline: Offline = None,
    system_torch: SystemTorch = False,
    system_python: SystemPython = "python3",
    published: Annotated[
        Path | None,
        typer.Option(
            "--published-errors",
            help="Inject only faults that repeat published errors; write published_errors.md and .json here.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Inject faults into a working stack; report the share that the checks catch, and the false alarms."""
    console = Console(stderr=True)
    crashes = crashes or disasters
    check(resume=resume, crashes=crashes, out=out, published=published)
    run_request = request.RunRequest(
        sets=sets or default_sets(offline),
        where=where,
        profile=profile,
        device=device,
        torch_backend=torch_backend,
        workers=workers,
        keep_free_gb=keep_free,
        resume=resume,
        locate="wrong" if locate else location.NONE,
        offline=offline,
        system_torch=system_torch,
        system_python=system_python,
    )
    directory = out or request.RUNS / f"selfcheck-{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}"
    place: dict[str, Any] = {
        "directory": directory,
        "watcher": lambda planned: progress_bar.choose(console, planned=planned),
        "say": console.print,
    }
    if crashes:
        injected = crash_injection.run(run_request, after=after, **place)
        document, lines = crash_text.document(injected), crash_text.lines(injected)
        sound = crash_text.is_sound(injected)
    else:
        errors = published_errors.load()
        only = published_errors.faults(errors.error) if published else ()
        results = fault_injection.run(run_request, only=only, **place)
        document, lines = selfcheck_text.document(results), selfcheck_text.lines(results)
        sound = selfcheck_text.is_sound(results)
    if published:
        write(published, errors, whole(directory, document))
    if as_json:
        typer.echo(json.dumps(whole(directory, document), indent=1))
    else:
        typer.echo("\n".join(lines))
    raise typer.Exit(0 if sound else 1)


def whole(directory: Path, document: dict[str, Any]) -> dict[str, Any]:
    """The results of a selfcheck with the hardware, code and versions of its clean run."""
    record, known, _ = store.read(directory / "clean")
    return selfcheck_text.run_document(record, known) | document


def write(folder: Path, errors: PublishedErrors, document: dict[str, Any]) -> None:
    """Write the results for published errors, and their page."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "published_errors.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "published_errors.md").write_text(published_errors_page.markdown(errors, document))


def check(*, resume: bool, crashes: bool, out: Path | None, published: Path | None) -> None:
    """Refuse options that exclude each other.

    Raises:
        UserError: ``--resume`` or ``--published-errors`` with ``--crashes``, or ``--resume`` without ``--out``.
    """
    if published and crashes:
        raise UserError("--published-errors injects faults, not crashes; leave one of them out")
    if resume and crashes:
        raise UserError("--resume cannot continue a run of --crashes; leave one of them out")
    if resume and out is None:
        raise UserError("--resume needs the directory of the selfcheck to resume; name it with --out")


def default_sets(offline: Path | None) -> str:
    """Return the newest set and one two years older; every set of an offline folder."""
    return "" if offline else ",".join(each.key for each in version_sets.two_years_apart(version_sets.load()))
