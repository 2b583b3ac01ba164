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

from matrix.errors import UserError
from matrix.locks import PLATFORM, RESOLVE_LIMIT_S
from matrix.packed import digest
from matrix.uv import INSTALL_LIMIT_S, blame_machine, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from matrix.uv import Uv

AT_ONCE: Final = 4
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
        for _ in pool.map(lambda each: bring(each, folder, python=python, uv=uv), lacking):
            pass
    return len(lacking)


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


def bring(wheel: Wheel, folder: Path, *, python: str, uv: Uv) -> None:
    """Into a folder beside first: a file that has its name is whole."""
    beside = folder / f".{wheel.file}.new"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        if wheel.here is not None:
            shutil.copyfile(wheel.here, beside / wheel.file)
        else:
            download(wheel, beside, python=python, uv=uv)
        if not is_there(wheel, beside):
            raise UserError(
                f"{wheel.file}: what was fetched has another hash than the lock says; nothing was kept of it"
            )
        (beside / wheel.file).replace(folder / wheel.file)
    except OSError as error:
        raise UserError(f"{folder / wheel.file} cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def download(wheel: Wheel, into: Path, *, python: str, uv: Uv) -> None:
    abis, platforms = ({getattr(tag, part) for tag in wheel.tags} for part in ("abi", "platform"))
    target = [*(f"--abi={each}" for each in sorted(abis)), *(f"--platform={each}" for each in sorted(platforms))]
    done = uv(
        *("tool", "run", "--python", sys.executable, "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-index", "--no-cache-dir", "--only-binary=:all:", f"--python-version={python}", *target),
        *("--dest", into, f"{wheel.url}#sha256={wheel.sha256}"),
        timeout_s=INSTALL_LIMIT_S,
    )
    if done.exit_code != 0:
        blame_machine(done, doing=f"fetching {wheel.file}")
        raise UserError(f"{wheel.file} cannot be fetched: {reason(done.log)}")
