"""``ftmatrix unpack``: joins and verifies the parts of a pack, as their own ``unpack.py`` does without ftmatrix.

Exit codes: 0 unpacked, 2 parts are missing or damaged, or this host cannot use them.
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from matrix.errors import UserError
from matrix.offline import joining


def unpack(
    parts: Annotated[Path, typer.Argument(help="Folder with the parts that `ftmatrix pack --split` wrote.")],
    folder: Annotated[Path, typer.Argument(help="Folder to create; the pack is in its subfolder pack.")],
) -> None:
    """Join the parts of a pack, verify them and this host, and install the packed interpreter and ftmatrix."""
    try:
        for line in joining.unpack(parts, folder):
            typer.echo(line, err=True)
    except joining.UnpackError as error:
        raise UserError(str(error)) from error
    typer.echo(f"ftmatrix run --offline {folder / joining.PACK}")
