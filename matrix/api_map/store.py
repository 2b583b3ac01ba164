"""The stored map: one folder with a table of releases, and a file of names and one of uses per package.

A row holds for a range of releases, ``first`` to ``last``, which are places in the package's list of releases in the
order of versions. A name that went and came back has several rows. The files depend on the releases only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from matrix.api_map import columns as column_file
from matrix.api_map.rows import Name, UsedName
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SCHEMA: Final = 2
DATA: Final = Path(__file__).with_name("data")
RELEASES: Final = "releases.json"
NAMES: Final = "{}-names.zip"
USES: Final = "{}-uses.zip"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedRelease:
    """A release that the map has, or, if ``unreadable`` says why, lacks."""

    version: str
    uploaded: date
    requires: tuple[str, ...] = ()
    requires_python: str = ""
    yanked: bool = False
    unreadable: str = ""


@dataclass(kw_only=True)
class PackageMap:
    """The names and uses of a package, each with the set of its releases: bit i is the release at place i."""

    package: str
    releases: list[MappedRelease] = field(default_factory=list)
    names: dict[Name, int] = field(default_factory=dict)
    uses: dict[UsedName, int] = field(default_factory=dict)


def ranges(bits: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last place of each range of consecutive releases in a set."""
    place = 0
    while bits:
        skipped = (bits & -bits).bit_length() - 1
        place, bits = place + skipped, bits >> skipped
        length = (~bits & (bits + 1)).bit_length() - 1
        yield place, place + length - 1
        place, bits = place + length, bits >> length


def releases_of(folder: Path = DATA) -> dict[str, list[MappedRelease]]:
    """Return the releases of each package, in the order of versions.

    Raises:
        UserError: the folder has no map, or one of a newer schema.
    """
    try:
        document: dict[str, Any] = json.loads((folder / RELEASES).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: no map of the API ({error}); create it with `ftmatrix map build`") from error
    if document["schema"] > SCHEMA:
        raise UserError(f"{folder}: schema {document['schema']} is newer than {SCHEMA}; update ftmatrix")
    return {
        package: [
            MappedRelease(
                version=row["version"],
                uploaded=date.fromisoformat(row["uploaded"]),
                requires=tuple(row.get("requires", ())),
                requires_python=row.get("requires_python", ""),
                yanked=row.get("yanked", False),
                unreadable=row.get("unreadable", ""),
            )
            for row in rows
        ]
        for package, rows in document["packages"].items()
    }


def save_releases(packages: Mapping[str, Sequence[MappedRelease]], folder: Path) -> None:
    rows = {name: [release_row(each) for each in releases] for name, releases in sorted(packages.items())}
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema": SCHEMA, "packages": rows}, indent=0)
    (folder / RELEASES).write_text(f"{text}\n", encoding="utf-8")


def release_row(release: MappedRelease) -> dict[str, Any]:
    row = asdict(release) | {"uploaded": release.uploaded.isoformat()}
    return {name: value for name, value in row.items() if value or name in {"version", "uploaded"}}


def save(mapped: PackageMap, folder: Path) -> None:
    """Write the names and uses of a package. Two maps with the same content have the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / NAMES.format(mapped.package), Name._fields, mapped.names)
    write_rows(folder / USES.format(mapped.package), UsedName._fields, mapped.uses)


def write_rows(path: Path, columns: Sequence[str], rows: Mapping[Any, int]) -> None:
    flat = sorted((*row, *each) for row, bits in rows.items() for each in ranges(bits))
    texts = [(*row[:-2], str(row[-2]), str(row[-1])) for row in flat]
    column_file.write(path, [*columns, "first", "last"], texts)


def load(package: str, folder: Path = DATA) -> PackageMap:
    """Load a package's map as it was built.

    Raises:
        UserError: the folder has no map of it.
    """
    return PackageMap(
        package=package,
        releases=releases_of(folder).get(package, []),
        names=read_rows(folder / NAMES.format(package), Name),
        uses=read_rows(folder / USES.format(package), UsedName),
    )


def read_rows(path: Path, row: Any) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for module, (*rest, first, last) in column_file.ColumnFile(path).all_rows():
        name = row(module, *rest)
        found[name] = found.get(name, 0) | ((1 << (int(last) - int(first) + 1)) - 1) << int(first)
    return found
