"""``ftmatrix map``: the map of the API between the packages: which releases have a name, and which use it.

Exit codes: 0 done, 1 a check found a difference, or no release has the name, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from packaging.version import Version

from cases.space.plural import counted
from matrix.api_map import store
from matrix.api_map.query import ApiMap
from matrix.errors import UserError
from reports.commands.options import AsJson
from reports.render.text import map_text

if TYPE_CHECKING:
    from collections.abc import Sequence

DIFFERS: Final = 1
Folder = Annotated[Path, typer.Option("--folder", help="Folder of the map.", show_default="the packaged map")]
Packages = Annotated[str, typer.Option("--packages", help="Packages, separated by commas.", show_default="all")]

app = typer.Typer(help="Show, build and update the map of the API between the packages.", invoke_without_command=True)


@app.callback()
def show(context: typer.Context, folder: Folder = store.DATA, as_json: AsJson = False) -> None:
    """Show which releases the map has."""
    if context.invoked_subcommand is not None:
        return
    releases = store.releases_of(folder)
    if as_json:
        rows = {name: [store.release_row(each) for each in rows] for name, rows in releases.items()}
        typer.echo(json.dumps(rows, indent=1))
        return
    size = sum(path.stat().st_size for path in folder.iterdir())
    typer.echo("\n".join(map_text.overview(releases, size)))


@app.command("build")
def build(
    out: Annotated[Path, typer.Option("--out", help="New folder for the map.", show_default=False)],
    packages: Packages = "",
) -> None:
    """Build the map from nothing: read every release of the index since June 2023."""
    if (out / store.RELEASES).exists():
        raise UserError(f"{out} has a map; name another folder, or add releases with `ftmatrix map update`")
    read_releases(out, packages)


@app.command("update")
def update(folder: Folder = store.DATA, packages: Packages = "") -> None:
    """Add the releases that the index has and the map lacks."""
    read_releases(folder, packages)


def read_releases(folder: Path, packages: str) -> None:
    from matrix.api_map import build as building
    from matrix.api_map.index import PackageIndex
    from matrix.environments.environment import cache_folder

    added = building.update(
        folder,
        index=PackageIndex(),
        cache=cache_folder() / building.CACHE,
        packages=chosen(packages),
        say=typer.echo,
    )
    typer.echo(f"{counted(len(added), 'release')} added")


@app.command("verify")
def verify(
    folder: Folder = store.DATA,
    packages: Packages = "",
    newest: Annotated[int, typer.Option(min=1, help="Releases of each package to read again.")] = 1,
) -> None:
    """Read releases again and compare them with the map."""
    from matrix.api_map import verify as verifying
    from matrix.api_map.build import CACHE
    from matrix.api_map.index import PackageIndex
    from matrix.environments.environment import cache_folder

    found = verifying.verify(
        folder,
        index=PackageIndex(),
        cache=cache_folder() / CACHE,
        packages=chosen(packages),
        newest=newest,
        say=typer.echo,
    )
    for each in found:
        typer.echo(
            f"{each.package} {each.version}: {each.only_stored} rows are only in the map, {each.only_read} only in the"
            " wheel"
        )
    raise typer.Exit(DIFFERS if found else 0)


@app.command("name")
def name(
    path: Annotated[str, typer.Argument(help="E.g. transformers.Trainer, or transformers.Trainer(tokenizer).")],
    folder: Folder = store.DATA,
    as_json: AsJson = False,
) -> None:
    """Show which releases have a name, and which packages use it."""
    from reports.answers.api.missing_names import MissingName
    from reports.answers.api.users import users_of

    api = ApiMap(folder)
    package = path.partition(".")[0].partition("(")[0]
    if package not in api.packages:
        raise UserError(f"{path}: begins with no package of the map; choose from {', '.join(api.packages)}")
    found = api.having(path)
    asked = MissingName(kind="import", owner=package, name=path, line="")
    users = tuple(users_of(path, asked, api, {}))
    if as_json:
        typer.echo(json.dumps({**asdict(found), "users": [each.as_json() for each in users]}, indent=1))
    else:
        typer.echo("\n".join(map_text.name_lines(found, users, api.versions(package)[-1])))
    raise typer.Exit(0 if found.known else DIFFERS)


@app.command("defaults")
def defaults(
    package: Annotated[str, typer.Argument(help="Package, e.g. trl.")],
    old: Annotated[str, typer.Argument(help="Older release.")],
    new: Annotated[str, typer.Argument(help="Newer release.")],
    folder: Folder = store.DATA,
    as_json: AsJson = False,
) -> None:
    """Show which defaults of parameters and fields changed between two releases."""
    from matrix.api_map.defaults import changed_defaults

    api = ApiMap(folder)
    places = [checked_place(api, package, version) for version in (old, new)]
    sides = [api.as_of(package, place).places for place in places]
    before, after = ({name: api.versions(name)[each] for name, each in side.items()} for side in sides)
    found = changed_defaults(api, package, before, {**before, package: after[package]})
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found], indent=1))
    else:
        typer.echo("\n".join(map_text.default_lines(found, package, old, new)))


def checked_place(api: ApiMap, package: str, version: str) -> int:
    if package not in api.packages:
        raise UserError(f"{package}: not in the map; choose from {', '.join(api.packages)}")
    place = api.place(package, version)
    if place is None:
        near = sorted(api.versions(package), key=Version)
        raise UserError(f"{package} {version}: not in the map, which has {near[0]} to {near[-1]}")
    return place


def chosen(packages: str) -> Sequence[str]:
    from matrix.api_map.packages import PACKAGES

    names = [each.strip().replace("-", "_") for each in packages.split(",") if each.strip()]
    for each in names:
        if each not in PACKAGES:
            raise UserError(f"--packages: unknown package {each!r}; choose from {', '.join(PACKAGES)}")
    return names or PACKAGES
