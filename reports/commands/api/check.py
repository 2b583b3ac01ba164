"""``ftmatrix check``: checks a user's script, notebook or configuration against the releases of the stack.

Exit codes: 0 fits, 1 does not fit the given versions or no release of a package fits, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
import sys
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Final

import typer

from matrix.api_map import store
from matrix.errors import UserError
from reports.commands.options import AsJson
from reports.results.wording import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.api_map.query import ApiMap
    from reports.answers.check.check import CodeCheck
    from reports.answers.checkup.installed import Installed

MISFIT: Final = 1


def check(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Scripts, notebooks, configuration files and command lines of one job.", show_default=False
        ),
    ],
    versions: Annotated[
        str | None,
        typer.Option(
            "--versions",
            help="Versions to check: 'transformers==4.46.3 trl==0.12.0', or - for the output of pip freeze.",
        ),
    ] = None,
    set_key: Annotated[str | None, typer.Option("--set", help="Version set to check, by its key.")] = None,
    have: Annotated[
        Path | None,
        typer.Option("--have", help="File with the versions to check: of pip freeze, requirements, or a lock."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="List every name, also those that all releases have.")] = False,
    folder: Annotated[
        Path, typer.Option("--map", help="Folder of the map of the API.", show_default="the packaged map")
    ] = store.DATA,
    as_json: AsJson = False,
) -> None:
    """Tell with which releases of the stack a script, notebook or configuration fits, and what it takes from them."""
    from matrix.api_map.query import ApiMap
    from reports.answers.check.check import check as check_files
    from reports.render.text import check_document, check_text

    api = ApiMap(folder)
    given = given_versions(versions, set_key, have, api)
    checked = check_files(files, api)
    if given is not None:
        raise typer.Exit(against(checked, given, api, every=every, as_json=as_json))
    if as_json:
        typer.echo(json.dumps(check_document.document(checked), indent=1))
    else:
        typer.echo(plain("\n".join(check_text.lines(checked, every=every))))
    raise typer.Exit(0 if checked.has_common_range else MISFIT)


def given_versions(versions: str | None, key: str | None, have: Path | None, api: ApiMap) -> Installed | None:
    """Return the versions to check, if any.

    Raises:
        UserError: several options name them, or they cannot be read.
    """
    from matrix.versions import sets
    from reports.answers.checkup import given_versions as reading

    given = [each for each in (versions, key, have and str(have)) if each]
    if len(given) > 1:
        raise UserError("--versions, --set and --have each name the versions to check; give one of them")
    if not given:
        return None
    known = sets.load() if versions or key else ()
    if key and key not in {each.key for each in known}:
        raise UserError(f'unknown version set "{key}"; `ftmatrix sets` lists them')
    if have and not have.is_file():
        raise UserError(f"{have}: there is no such file; give --have the output of `pip freeze`")
    packages = [each.replace("_", "-") for each in api.packages]
    return reading.read(given[0], known, sys.stdin.buffer, packages)


def against(checked: CodeCheck, given: Installed, api: ApiMap, *, every: bool, as_json: bool) -> int:
    """Print the check of given versions, and return the exit code."""
    from reports.answers.check.check import misfits, unchecked
    from reports.render.text import check_document, check_text

    versions = {name.replace("-", "_"): version for name, version in given.versions.items()}
    source = given.source or str(given.where)
    missing, left_out = misfits(checked, versions, api), unchecked(checked, versions, api)
    if as_json:
        row = check_document.version_document(versions, source, missing, left_out)
        typer.echo(json.dumps({**check_document.document(checked), "given": row}, indent=1))
    else:
        texts: Sequence[str] = list(check_text.version_lines(checked, source, versions, missing, left_out, every=every))
        typer.echo(plain("\n".join(texts)))
    return MISFIT if missing else 0
