"""Resolves version sets with uv, stores their locks, and adds sets to the versions file."""

from __future__ import annotations

import re
import tomllib
from datetime import datetime
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from cases.space.verdict import Phase
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.versions import sets
from matrix.versions.locks import (
    PACKAGED,
    PLATFORM,
    RESOLVE_LIMIT_S,
    Lock,
    folder_beside,
    header,
    pins_only,
    read,
    write,
)
from matrix.versions.uv import blame_machine, reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import date
    from pathlib import Path

    from matrix.processes import Finished
    from matrix.versions.sets import VersionSet
    from matrix.versions.uv import Uv


def read_or_make(version_set: VersionSet, *, uv: Uv, folder: Path = PACKAGED) -> Lock | Evidence:
    """The stored lock if it fits the set, else a new one, stored."""
    stored = read(version_set, folder=folder)
    if stored is not None and not stored.stale:
        return stored
    made = lock(version_set, uv=uv)
    if isinstance(made, Lock):
        write(made, folder=folder)
    return made


def lock(version_set: VersionSet, *, uv: Uv) -> Lock | Evidence:
    """Resolve the set as of its date, or, from a folder of files, as they are."""
    source = uv.without_links() if uv.dated else uv
    done = source.compile(
        version_set.requirements,
        "--generate-hashes",
        *(("--exclude-newer", f"{version_set.as_of}T23:59:59Z") if uv.dated else ()),
        *("--python-version", version_set.python),
        *("--python-platform", PLATFORM),
        timeout_s=RESOLVE_LIMIT_S,
    )
    if done.exit_code == 0:
        return Lock(version_set=version_set, text=f"{header(version_set)}\n{pins_only(done.log)}")
    blame_machine(done, doing=f"locking {version_set.key}")
    if uv.variables.get("UV_OFFLINE"):  # uv takes what it may not look for as absent
        raise UserError(f"locking {version_set.key}: uv may not use the network (UV_OFFLINE); allow it once")
    return Evidence(phase=Phase.RESOLVE, reason=why_unresolvable(done), exit_code=done.exit_code, log=done.log)


def why_unresolvable(done: Finished) -> str:
    """The resolver's words; with a remark if it only passed over what it missed, for want of an upload time."""
    said = reason(done.log)
    for missed in map(Requirement, re.findall(r"no versions? of ([A-Za-z0-9._-]+==[^\s,]+)", said)):
        for name, version in undated(done.log):
            if name == canonicalize_name(missed.name) and missed.specifier.contains(version):
                return f"{said} (The index has {missed}, but does not say since when; lock where it does.)"
    return said


def undated(log: str) -> Iterator[tuple[str, str]]:
    for file in re.findall(r"`([^`]+\.whl)` is missing an upload date", log):
        name, version, _, _ = parse_wheel_filename(file)
        yield name, str(version)


def released(name: str, version: str, *, python: str, uv: Uv) -> date | None:
    """When the version was uploaded, None where the index does not say; bad input where there is no such version."""
    done = uv.compile(
        (f"{name}=={version}",),
        *("--no-deps", "--format", "pylock.toml"),
        *("--python-version", python, "--python-platform", PLATFORM),
        timeout_s=RESOLVE_LIMIT_S,
    )
    if done.exit_code != 0:
        blame_machine(done, doing=f"looking for {name} {version}")
        if f"no version of {name}=={version}" in done.log:
            raise UserError(
                f"there is no {name} {version} on the configured index; `pip index versions {name}` lists all"
            )
        raise UserError(f"{name}=={version} cannot be had for Python {python}: {reason(done.log)}")
    return earliest_upload(done.log)


def earliest_upload(log: str) -> date | None:
    document = tomllib.loads(log[log.index("lock-version") :])
    files = [file for package in document.get("packages", ()) for file in package.get("wheels", ())]
    times = [file["upload-time"] for file in files if isinstance(file.get("upload-time"), datetime)]
    return min(times).date() if times else None


def add(
    key: str,
    pins: Mapping[str, str],
    *,
    base: VersionSet,
    uv: Uv,
    path: Path = sets.PACKAGED,
    as_of: date | None = None,
    why: str = "",
) -> tuple[VersionSet, Lock | Evidence]:
    """Append ``base`` with some pins moved to the versions file, and lock it.

    As of the first day on which all of its pins existed: what someone had who made this move then. An unresolvable
    set is added as well; it is a finding, and its column says why.
    """
    added = moved(key, pins, base=base, uv=uv, as_of=as_of, why=why)
    sets.write(added, path=path)
    return added, read_or_make(added, uv=uv, folder=folder_beside(path))


def moved(
    key: str, pins: Mapping[str, str], *, base: VersionSet, uv: Uv, as_of: date | None = None, why: str = ""
) -> VersionSet:
    """``base`` with some pins moved, as of the first day on which all of its pins existed."""
    names = " ".join(f"{name}=={version}" for name, version in pins.items())
    sets.moved(base, pins, key=key, as_of=base.as_of, why="checked before the network is asked")
    days = [released(name, version, python=base.python, uv=uv) for name, version in pins.items()]
    day = as_of or max([base.as_of, *(each for each in days if each)])
    return sets.moved(base, pins, key=key, as_of=day, why=why or f"{base.key} moved to {names}")


def remove(key: str, *, path: Path = sets.PACKAGED) -> None:
    """Take the set out of the versions file, and its lock out of the folder beside it."""
    sets.remove(key, path=path)
    (folder_beside(path) / f"{key}.txt").unlink(missing_ok=True)
