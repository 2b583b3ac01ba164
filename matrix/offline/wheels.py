"""The one wheel of each distribution that a target takes, where it lies, and how it is brought into a folder.

uv, which knows the indexes, says where the wheels are; pip, which knows passwords, proxies and broken lines, brings
them. A wheel counts as brought only when it has the hash that it was asked for by.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from matrix import processes
from matrix.errors import UserError
from matrix.offline.manifest import digest
from matrix.versions.locks import PLATFORM, RESOLVE_LIMIT_S
from matrix.versions.uv import INSTALL_LIMIT_S, blame_machine, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from matrix.versions.uv import Uv

AT_ONCE: Final = 4
BATCH, BATCH_BYTES = 12, 100 * 10**6
GLIBC: Final = int(PLATFORM.rpartition("_")[2])  # of the oldest host that takes these wheels: 2.28
OLDER_NAMES: Final = {17: "manylinux2014_x86_64", 12: "manylinux2010_x86_64", 5: "manylinux1_x86_64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A file on an index or on this machine. ``stated_size`` in bytes; 0 where the index does not say."""

    name: str
    version: str
    url: str
    sha256: str
    stated_size: int = 0

    @property
    def file(self) -> str:
        return unquote(urlsplit(self.url).path.rpartition("/")[2])

    @property
    def tags(self) -> AbstractSet[Tag]:
        return parse_wheel_filename(self.file)[3]

    @property
    def here(self) -> Path | None:
        """Where it lies, if that is on this machine."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def size(self) -> int:
        return self.here.stat().st_size if self.here else self.stated_size


def chosen(requirements: Sequence[str], *, python: str, uv: Uv, with_dependencies: bool = False) -> tuple[Wheel, ...]:
    """The wheel of each requirement that this Python on Linux takes first.

    Raises:
        UserError: a requirement that cannot be met, or has no wheel for the target.
    """
    source = uv.without_links() if uv.dated else uv  # as locks are made
    done = source.compile(
        requirements,
        *(() if with_dependencies else ("--no-deps",)),
        *("--format", "pylock.toml"),
        *("--python-version", python, "--python-platform", PLATFORM),
        timeout_s=RESOLVE_LIMIT_S,
    )
    if done.exit_code != 0:
        blame_machine(done, doing="looking for the wheels")
        raise UserError(f"the wheels for Python {python} cannot be had: {reason(done.log)}")
    document = tomllib.loads(done.log[done.log.index("lock-version") :])
    order = {tag: place for place, tag in enumerate(accepted(python))}
    return tuple(first(package, order, python=python) for package in document.get("packages", ()))


def first(package: Mapping[str, Any], order: Mapping[Tag, int], *, python: str) -> Wheel:
    fitting = [
        (min(order[tag] for tag in each.tags if tag in order), each)
        for each in offered(package)
        if not each.tags.isdisjoint(order)
    ]
    if not fitting:
        raise UserError(
            f"{package['name']} {package['version']}: there is no wheel for Python {python} on Linux (x86-64), and"
            " nothing is built"
        )
    return min(fitting, key=lambda each: each[0])[1]


def offered(package: Mapping[str, Any]) -> tuple[Wheel, ...]:
    return tuple(
        Wheel(
            name=canonicalize_name(package["name"]),
            version=package["version"],
            url=row["url"],
            sha256=row["hashes"]["sha256"],
            stated_size=row.get("size", 0),
        )
        for row in package.get("wheels", ())
    )


def accepted(python: str) -> list[Tag]:
    """What a CPython of this version takes on the oldest Linux that locks are made for, the best first."""
    version = tuple(int(part) for part in python.split("."))
    interpreter = f"cp{python.replace('.', '')}"
    platforms = list(accepted_platforms())
    return [
        *cpython_tags(version, abis=[interpreter], platforms=platforms),
        *compatible_tags(version, interpreter=interpreter, platforms=platforms),
    ]


def accepted_platforms() -> list[str]:
    found: list[str] = []
    for minor in range(GLIBC, 4, -1):
        found.append(f"manylinux_2_{minor}_x86_64")
        found += [OLDER_NAMES[minor]] if minor in OLDER_NAMES else []
    return [*found, "linux_x86_64"]


def fetched(wheels: Sequence[Wheel], folder: Path, *, python: str, uv: Uv, say: Callable[[str], None]) -> int:
    """Bring into the folder what is not there, or there in part or damaged; the number of files that were brought.

    Raises:
        UserError: the disk is too small, or a file cannot be brought.
    """
    make(folder)
    distinct = {each.file: each for each in wheels}.values()
    lacking = sorted((each for each in distinct if not is_there(each, folder)), key=lambda each: -each.size)
    room(sum(each.size for each in lacking), folder)
    if lacking:
        say(f"{len(lacking)} wheels to fetch, {sum(each.size for each in lacking) / 1e6:.0f} MB")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for _ in pool.map(lambda batch: bring(batch, folder, python=python, uv=uv), batches(lacking)):
                pass
        except KeyboardInterrupt:
            processes.end_calls()  # or the threads would wait for the last byte
            raise
    return len(lacking)


def batches(wheels: Sequence[Wheel]) -> list[list[Wheel]]:
    """Large ones alone, small ones together: starting pip takes as long as a small wheel."""
    made: list[list[Wheel]] = []
    for each in wheels:
        if made and goes_with(each, made[-1]):
            made[-1].append(each)
        else:
            made.append([each])
    return made


def goes_with(wheel: Wheel, batch: Sequence[Wheel]) -> bool:
    """Whether one call of pip can bring it as well: no two releases of one package."""
    small = sum(each.size for each in batch) + wheel.size < BATCH_BYTES
    return small and len(batch) < BATCH and wheel.name not in {each.name for each in batch}


def make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made ({error.strerror}); name a folder that can be: --out") from error


def is_there(wheel: Wheel, folder: Path) -> bool:
    path = folder / wheel.file
    return path.is_file() and digest(path) == wheel.sha256


def room(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{folder}: {needed / 1e9:.1f} GB are to come, {free / 1e9:.1f} GB are free; name another: --out"
        )


def bring(batch: Sequence[Wheel], folder: Path, *, python: str, uv: Uv) -> None:
    """Into a folder beside first: a file that has its name is whole."""
    beside = folder / f".{batch[0].file}.new"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        remote = [each for each in batch if each.here is None]
        if remote:
            download(remote, beside, python=python, uv=uv)
        for each in batch:
            if each.here is not None:
                shutil.copyfile(each.here, beside / each.file)
            if not is_there(each, beside):
                raise UserError(f"{each.file}: what was fetched has another hash than the lock says; it was not kept")
            (beside / each.file).replace(folder / each.file)
    except OSError as error:
        raise UserError(f"{folder}: {batch[0].file} cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def download(batch: Sequence[Wheel], into: Path, *, python: str, uv: Uv) -> None:
    tags = [tag for each in batch for tag in each.tags]
    target = [f"--abi={each}" for each in sorted({tag.abi for tag in tags})]
    target += [f"--platform={each}" for each in sorted({tag.platform for tag in tags})]
    done = uv(
        *("tool", "run", "--python", sys.executable, "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-index", "--no-cache-dir", "--only-binary=:all:", f"--python-version={python}", *target),
        *("--dest", into.absolute()),  # uv works in a folder of its own
        *(f"{each.url}#sha256={each.sha256}" for each in batch),
        timeout_s=INSTALL_LIMIT_S,
    )
    if done.exit_code != 0:
        names = batch[0].file if len(batch) == 1 else f"one of {', '.join(each.name for each in batch)}"
        blame_machine(done, doing=f"fetching {names}")
        raise UserError(f"{names} cannot be fetched: {reason(done.log)}")
