"""``ftmatrix pack``: downloads the wheels of version sets, for a host without access to package indexes.

Exit codes: 0 packed, 2 bad input, such as a set that does not resolve for the target's Python, or a full disk.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from matrix.environments.environment import cache_folder
from matrix.errors import UserError
from matrix.offline import interpreters, packing, splitting
from matrix.versions import locks, sets, uv
from reports.commands.options import AsJson, Versions
from reports.render.text import pack_text

if TYPE_CHECKING:
    from matrix.offline.packing import PackResult
    from matrix.offline.splitting import SplitPack
    from matrix.versions.uv import Uv


def pack(
    chosen: Annotated[
        str, typer.Option("--sets", help="Version sets: default, newest, slices, all, or keys separated by commas.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the wheels; earlier packs in it are kept.")],
    system_torch: Annotated[
        bool, typer.Option("--system-torch", help="Leave out torch and its own dependencies, which the target has.")
    ] = False,
    exclude: Annotated[
        str,
        typer.Option(help="Packages that the target has: names or patterns such as 'nvidia-*', separated by commas."),
    ] = "",
    python: Annotated[
        str, typer.Option(help="Python version of the target, e.g. 3.12.", show_default="that of each set")
    ] = "",
    with_harness: Annotated[
        bool, typer.Option("--with-harness", help="Also pack ftmatrix and its dependencies, including uv.")
    ] = False,
    split: Annotated[
        str,
        typer.Option(
            help="Also write the pack as parts of at most this size, e.g. 60M, into OUT-parts, with unpack.py to join"
            " them.",
        ),
    ] = "",
    interpreter: Annotated[
        bool, typer.Option("--interpreter", help="With --split: also pack the Python of the sets.")
    ] = False,
    versions: Versions = sets.PACKAGED,
    as_json: AsJson = False,
) -> None:
    """Download the wheels of version sets into a folder; `run --offline FOLDER` then needs no network."""
    part_bytes = splitting.part_size(split) if split else 0
    if interpreter and not split:
        raise UserError("--interpreter needs --split, as unpack.py installs the interpreter; add --split 60M")
    request = packing.PackRequest(
        sets=sets.select(sets.load(versions), chosen),
        folder=out,
        python=python,
        system_torch=system_torch,
        exclude=[word.strip() for word in exclude.split(",") if word.strip()],
        with_harness=with_harness,
        lock_folder=locks.locks_folder(versions),
    )
    tool = uv.on_this_machine(cache_folder())
    result = packing.pack(request, uv=tool, say=lambda text: typer.echo(text, err=True))
    parts = split_pack(result, part_bytes, with_interpreters=interpreter, uv=tool) if split else None
    if as_json:
        typer.echo(json.dumps(pack_text.document(result, parts), indent=1))
        return
    console = Console(highlight=False)
    console.print(pack_text.table(result))
    for line in pack_text.lines(result, parts):
        console.print(line, soft_wrap=True, markup=False)


def split_pack(result: PackResult, part_bytes: int, *, with_interpreters: bool, uv: Uv) -> SplitPack:
    pythons = [interpreters.find(version, uv=uv) for version in result.pythons] if with_interpreters else []
    folder = result.folder.with_name(f"{result.folder.name}-parts")
    return splitting.split(result.folder, folder, part_bytes=part_bytes, pythons=pythons)
