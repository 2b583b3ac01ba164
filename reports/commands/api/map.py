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
from matrix.keys import without_local
from reports.commands.options import AsJson
from reports.render.text import map_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.api_map.measured.series import LeftOut

DIFFERS: Final = 1
CHOSEN: Final = 400  # combinations that `measure` chooses
DEFAULTS_OF: Final = ("transformers", "peft", "bitsandbytes", "accelerate", "trl", "datasets", "huggingface_hub")
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
    from matrix.api_map.reading.index import PackageIndex
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
    from matrix.api_map.reading.index import PackageIndex
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


@app.command("changes")
def changes(
    package: Annotated[str, typer.Argument(help="Package, e.g. trl.")],
    old: Annotated[str, typer.Argument(help="Older release.")],
    new: Annotated[str, typer.Argument(help="Newer release.")],
    folder: Folder = store.DATA,
    as_json: AsJson = False,
) -> None:
    """Show which names, parameters and defaults of a package's API changed between two releases."""
    from matrix.api_map.changes import of_package

    api = ApiMap(folder)
    for version in (old, new):
        check_release(api, package, version)
    found = of_package(api, package, old, new)
    typer.echo(json.dumps(asdict(found), indent=1) if as_json else "\n".join(map_text.change_lines(found)))


@app.command("pairs")
def pairs(
    out: Annotated[Path, typer.Option("--out", help="Markdown file to write.", show_default=False)],
    folder: Folder = store.DATA,
) -> None:
    """Write a page about each pair of packages: which releases were imported together, which break, on which name."""
    from matrix.api_map.measured import import_results
    from matrix.api_map.pairs import all_pairs
    from reports.render.files import write_whole
    from reports.render.pairs_page import markdown

    api = ApiMap(folder)
    results = list(import_results.load())
    tables = all_pairs(api, results)
    newest = {name: api.versions(name)[-1] for name in api.packages}
    pythons = sorted({each.python for each in results})
    torches = sorted({without_local(each.torch) for each in results}, key=Version)
    write_whole(out, markdown(tables, newest, pythons, torches))
    typer.echo(f"{counted(len(tables), 'pair')} of packages in {out}")


@app.command("defaults")
def defaults(
    out: Annotated[Path, typer.Option("--out", help="Folder for a Markdown file of each package.", show_default=False)],
    packages: Packages = "",
    folder: Folder = store.DATA,
) -> None:
    """Write a page for each package: which release moved the default of which parameter or configuration field."""
    from matrix.api_map.changes import moved_defaults
    from reports.render.defaults_page import markdown
    from reports.render.files import write_whole

    api = ApiMap(folder)
    out.mkdir(parents=True, exist_ok=True)
    for package in chosen(packages) if packages else DEFAULTS_OF:
        versions = api.versions(package)
        found = list(moved_defaults(api, package))
        write_whole(out / f"{package}.md", markdown(package, found, versions[0], versions[-1]))
        typer.echo(f"{package}: {counted(sum(len(each.defaults) for each in found), 'moved default')}")


@app.command("measure")
def measure(
    python: Annotated[Path, typer.Option("--python", help="Interpreter of an environment with torch.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for unpacked wheels and results; a later call continues.")],
    minutes: Annotated[float, typer.Option(min=0.1, help="Start no combination afterwards.")] = 25.0,
    extra: Annotated[
        Path | None, typer.Option("--extra", help="Folder with libraries that take precedence over the environment's.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, help="Combinations to choose at random.", show_default=str(CHOSEN)),
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Leave out pairs that any environment measured.")] = False,
    new_to: Annotated[
        str,
        typer.Option(
            "--new-to",
            help="'python' leaves out pairs that this Python measured with any torch, 'torch' those that any Python"
            " measured with this torch.",
            show_default="both together",
        ),
    ] = "",
    again: Annotated[
        Path | None,
        typer.Option("--again", help="Import the combinations of these results instead, mispredicted ones first."),
    ] = None,
    partner: Annotated[
        str, typer.Option("--with", help="Package whose pairs with transformers to measure.", show_default="all")
    ] = "",
    bases: Annotated[
        str, typer.Option("--transformers", help="Releases of transformers, e.g. '>=5.0'.", show_default="all")
    ] = "",
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Unpack and list the combinations in --out, but import none.")
    ] = False,
    planned: Annotated[
        bool, typer.Option("--planned", help="Import what --plan-only listed in --out; needs no network.")
    ] = False,
    processes: Annotated[int, typer.Option(min=1, help="Combinations to import at the same time.")] = 1,
    folder: Folder = store.DATA,
) -> None:
    """Import combinations of releases for real, and store what each raised.

    Pairs of releases that were measured with the same Python and torch before are left out. The last measurement of a
    combination counts.
    """
    chosen_pairs = new or new_to or partner or bases
    if again is not None and chosen_pairs:
        raise UserError(
            "--again has its combinations from a file; leave --new, --new-to, --with and --transformers out"
        )
    if planned and (plan_only or again is not None or chosen_pairs or count is not None):
        raise UserError("--planned has its combinations from a list; leave the options that choose or list them out")
    from matrix.api_map.measured import listing
    from matrix.api_map.measured.series import Series

    series = Series.in_environment(python, out, extra)
    if planned:
        left = series.listed()
    elif again is not None:
        left = series.again(ApiMap(folder), again, count or CHOSEN)
    else:
        left = series.for_open_pairs(
            ApiMap(folder), count or CHOSEN, partner=partner, bases=bases, left_out=left_out(new=new, new_to=new_to)
        )
    if plan_only:
        listing.write(series.list_file, left)
        typer.echo(f"{counted(len(left), 'combination')} listed in {series.list_file}; --planned imports them")
        return
    number, path = series.measured(left, minutes=minutes, processes=processes)
    typer.echo(f"{counted(number, 'combination')} imported; results in {path}")


def left_out(*, new: bool, new_to: str) -> LeftOut:
    from matrix.api_map.measured.series import LeftOut

    if new and new_to:
        raise UserError("--new leaves out what any environment measured, and --new-to less; give one of them")
    by_option = {"": LeftOut.OF_ENVIRONMENT, "python": LeftOut.OF_PYTHON, "torch": LeftOut.OF_TORCH}
    if new_to not in by_option:
        raise UserError(f"--new-to: {new_to!r} is neither 'python' nor 'torch'")
    return LeftOut.OF_ANY if new else by_option[new_to]


@app.command("agreement")
def agreement(
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder of results.", show_default="the packaged ones")
    ] = None,
    folder: Folder = store.DATA,
    as_json: AsJson = False,
) -> None:
    """Compare the imports that the map predicts with those that were measured."""
    from matrix.api_map.measured import evaluation, import_results

    found = list(import_results.load(results or import_results.FOLDER))
    if not found:
        raise UserError(f"{results or import_results.FOLDER}: no results; create some with `ftmatrix map measure`")
    outcome = evaluation.evaluate(ApiMap(folder), found)
    if as_json:
        typer.echo(json.dumps(asdict(outcome), indent=1))
    else:
        typer.echo("\n".join(map_text.agreement_lines(outcome, len(found))))


def check_release(api: ApiMap, package: str, version: str) -> None:
    if package not in api.packages:
        raise UserError(f"{package}: not in the map; choose from {', '.join(api.packages)}")
    if api.place(package, version) is None:
        known = api.versions(package)
        raise UserError(f"{package} {version}: not in the map, which has {known[0]} to {known[-1]}")


def chosen(packages: str) -> Sequence[str]:
    from matrix.api_map.packages import MAPPED

    names = [each.strip().replace("-", "_") for each in packages.split(",") if each.strip()]
    for each in names:
        if each not in MAPPED:
            raise UserError(f"--packages: unknown package {each!r}; choose from {', '.join(MAPPED)}")
    return names or MAPPED
