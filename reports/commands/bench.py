"""``ftmatrix bench``: measures the time that the harness itself takes.

Exit codes: 0 measured, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from matrix.errors import UserError
from matrix.experiments import bench_request
from matrix.run import request
from reports.commands.options import (
    AsJson,
    Device,
    Offline,
    SystemPython,
    SystemTorch,
    TorchBackend,
    Where,
    Workers,
)
from reports.render.files import write_whole
from reports.render.text import bench_text


def bench(
    sets: Annotated[str, typer.Option("--sets", help="Version set to measure.", show_default="the newest")] = "",
    where: Where = "",
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    workers: Workers = None,
    repeats: Annotated[int, typer.Option(min=1, help="Number of measured passes.")] = 3,
    sample: Annotated[
        int, typer.Option(min=0, help="Number of two-rank cells to start with each launcher, one at a time.")
    ] = 8,
    warm_up: Annotated[bool, typer.Option(help="Run one pass before the measured ones.")] = True,
    out: Annotated[Path | None, typer.Option(help="Also write the measurements to this file, as JSON.")] = None,
    offline: Offline = None,
    system_torch: SystemTorch = False,
    system_python: SystemPython = "python3",
    as_json: AsJson = False,
) -> None:
    """Measure the harness: a forked cell against torchrun and accelerate launch, and the time of each stage."""
    check(out)
    run_request = request.RunRequest(
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
    result = bench_request.run(
        run_request, repeats=repeats, sample=sample, warm_up=warm_up, say=lambda text: typer.echo(text, err=True)
    )
    text = json.dumps(result.as_json(), indent=1)
    if out is not None:
        write_whole(out, text + "\n")
    typer.echo(text if as_json else "\n".join(bench_text.lines(result)))


def check(out: Path | None) -> None:
    """Refuse, before anything is measured, a file that cannot be written.

    Raises:
        UserError: the path is a folder, or in no folder.
    """
    if out is not None and not out.parent.is_dir():
        raise UserError(f"--out {out}: {out.parent} does not exist; create it or name another file")
    if out is not None and out.is_dir():
        raise UserError(f"--out {out}: this is a folder; name a file")
