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
    header,
    locks_folder,
    pins_only,
    read,
    write,
)
from matrix.versions.uv import blame_machine, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import date
    from pathlib import Path

    from matrix.processes import Finished
    from matrix.versions.sets import VersionSet
    from matrix.versions.uv import Uv


def read_or_resolve(version_set: VersionSet, *, uv: Uv, folder: Path = PACKAGED) -> Lock | Evidence:
    """The stored lock, or a new one, which is stored, if there is none or it is stale."""
    stored = read(version_set, folder=folder)
    if stored is not None and not stored.stale:
        return stored
    resolved = resolve(version_set, uv=uv)
    if isinstance(resolved, Lock):
        write(resolved, folder=folder)
    return resolved


def resolve(version_set: VersionSet, *, uv: Uv) -> Lock | Evidence:
    """Resolve the set as of its date; from a folder of wheels, which have no dates, with all of them.

    Raises:
        UserError: the machine is at fault, such as an unreachable index.
    """
    source = uv.without_links() if uv.dated else uv
    result = source.compile(
        version_set.requirements,
        "--generate-hashes",
        *(("--exclude-newer", f"{version_set.as_of}T23:59:59Z") if uv.dated else ()),
        *("--python-version", version_set.python),
        *("--python-platform", PLATFORM),
        timeout_s=RESOLVE_LIMIT_S,
    )
    if result.exit_code == 0:
        return Lock(version_set=version_set, text=f"{header(version_set)}\n{pins_only(result.log)}")
    return unresolvable(result, doing=f"locking {version_set.key}", uv=uv, why=why_unresolvable)


def unresolvable(result: Finished, *, doing: str, uv: Uv, why: Callable[[Finished], str] | None = None) -> Evidence:
    """Evidence that packages do not resolve, in the words of uv or of ``why``.

    Raises:
        UserError: the machine is at fault.
    """
    blame_machine(result, doing=doing)
    if uv.variables.get("UV_OFFLINE"):  # offline, uv reports packages that it cannot look up as missing
        raise UserError(f"{doing}: UV_OFFLINE forbids uv to use the network; unset it once")
    words = why(result) if why else reason(result.log)
    return Evidence(phase=Phase.RESOLVE, reason=words, exit_code=result.exit_code, log=result.log)


def why_unresolvable(result: Finished) -> str:
    """The explanation of uv, with a remark if uv ignored the version because the index states no upload date."""
    explanation = reason(result.log)
    for missing in map(Requirement, re.findall(r"no versions? of ([A-Za-z0-9._-]+==[^\s,]+)", explanation)):
        for name, version in undated_wheels(result.log):
            if name == canonicalize_name(missing.name) and missing.specifier.contains(version):
                return f"{explanation} (The index states no upload date for {missing}; use an index that does.)"
    return explanation


def undated_wheels(log: str) -> Iterator[tuple[str, str]]:
    for file in re.findall(r"`([^`]+\.whl)` is missing an upload date", log):
        name, version, _, _ = parse_wheel_filename(file)
        yield name, str(version)


def release_date(name: str, version: str, *, python: str, uv: Uv) -> date | None:
    """The day on which a version was uploaded; None if the index does not state it.

    Raises:
        UserError: the index does not have the version.
    """
    result = uv.compile(
        (f"{name}=={version}",),
        *("--no-deps", "--format", "pylock.toml"),
        *("--python-version", python, "--python-platform", PLATFORM),
        timeout_s=RESOLVE_LIMIT_S,
    )
    if result.exit_code != 0:
        blame_machine(result, doing=f"looking for {name} {version}")
        if f"no version of {name}=={version}" in result.log:
            raise UserError(
                f"the configured index has no {name} {version}; `pip index versions {name}` lists its versions"
            )
        raise UserError(f"{name}=={version} cannot be resolved for Python {python}: {reason(result.log)}")
    return earliest_upload(result.log)


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
    """Append a copy of ``base`` with some pins changed to the versions file, and resolve its lock.

    Its date is the first day on which all of its pins existed: a user who made the change then had this environment.
    An unresolvable set is added as well, because that is a result.
    """
    added = with_pins(key, pins, base=base, uv=uv, as_of=as_of, why=why)
    sets.write(added, path=path)
    return added, read_or_resolve(added, uv=uv, folder=locks_folder(path))


def with_pins(
    key: str, pins: Mapping[str, str], *, base: VersionSet, uv: Uv, as_of: date | None = None, why: str = ""
) -> VersionSet:
    """A copy of ``base`` with some pins changed, as of the first day on which all of its pins existed."""
    names = " ".join(f"{name}=={version}" for name, version in pins.items())
    sets.with_pins(base, pins, key=key, as_of=base.as_of, why="check the input before using the network")
    days = [release_date(name, version, python=base.python, uv=uv) for name, version in pins.items()]
    day = as_of or max([base.as_of, *(each for each in days if each)])
    return sets.with_pins(base, pins, key=key, as_of=day, why=why or f"{base.key} with {names}")
