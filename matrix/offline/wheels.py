"""Selects one wheel of each distribution for a target, and downloads the wheels into a folder.

uv, which knows the indexes, resolves their URLs. pip, which handles passwords, proxies and retries, downloads them. A
downloaded wheel must have the hash of its resolution.

``pip download --require-hashes --platform ...`` selects wheels by tag as well. This module repeats the selection,
because file names and sizes must be known before the first download.
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

PARALLEL_DOWNLOADS: Final = 4
BATCH, BATCH_BYTES = 12, 100 * 10**6
GLIBC: Final = int(PLATFORM.rpartition("_")[2])  # minor version on the oldest supported host: 28 of 2.28
OLDER_NAMES: Final = {17: "manylinux2014_x86_64", 12: "manylinux2010_x86_64", 5: "manylinux1_x86_64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel on an index or on this machine. ``stated_size`` is in bytes; 0 if the index does not state it."""

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
    def local_path(self) -> Path | None:
        """The file, if it is on this machine."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def size(self) -> int:
        return self.local_path.stat().st_size if self.local_path else self.stated_size


def select_wheels(
    requirements: Sequence[str], *, python: str, uv: Uv, with_dependencies: bool = False
) -> tuple[Wheel, ...]:
    """The preferred wheel of each requirement for this Python on Linux.

    Raises:
        UserError: a requirement cannot be met, or has no wheel for the target.
    """
    source = uv.without_links() if uv.dated else uv  # as for locks
    result = source.compile(
        requirements,
        *(() if with_dependencies else ("--no-deps",)),
        *("--format", "pylock.toml"),
        *("--python-version", python, "--python-platform", PLATFORM),
        timeout_s=RESOLVE_LIMIT_S,
    )
    if result.exit_code != 0:
        blame_machine(result, doing="resolving the wheels")
        raise UserError(f"the wheels for Python {python} cannot be resolved: {reason(result.log)}")
    document = tomllib.loads(result.log[result.log.index("lock-version") :])
    order = {tag: place for place, tag in enumerate(accepted_tags(python))}
    return tuple(preferred_wheel(package, order, python=python) for package in document.get("packages", ()))


def preferred_wheel(package: Mapping[str, Any], order: Mapping[Tag, int], *, python: str) -> Wheel:
    compatible = [
        (min(order[tag] for tag in each.tags if tag in order), each)
        for each in wheels_of(package)
        if not each.tags.isdisjoint(order)
    ]
    if not compatible:
        raise UserError(
            f"{package['name']} {package['version']} has no wheel for Python {python} on Linux (x86-64), and ftmatrix"
            " does not build packages; choose another --python, or leave it out with --exclude"
        )
    return min(compatible, key=lambda each: each[0])[1]


def wheels_of(package: Mapping[str, Any]) -> tuple[Wheel, ...]:
    """The wheels of a package of pylock.toml (https://packaging.python.org/en/latest/specifications/pylock-toml/)."""
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


def accepted_tags(python: str) -> list[Tag]:
    """Tags that a CPython of this version accepts on the oldest supported Linux, the preferred first."""
    version = tuple(int(part) for part in python.split("."))
    interpreter = f"cp{python.replace('.', '')}"
    platforms = list(accepted_platforms())
    return [
        *cpython_tags(version, abis=[interpreter], platforms=platforms),
        *compatible_tags(version, interpreter=interpreter, platforms=platforms),
    ]


def accepted_platforms() -> list[str]:
    platforms: list[str] = []
    for minor in range(GLIBC, 4, -1):
        platforms.append(f"manylinux_2_{minor}_x86_64")
        platforms += [OLDER_NAMES[minor]] if minor in OLDER_NAMES else []
    return [*platforms, "linux_x86_64"]


def fetch(wheels: Sequence[Wheel], folder: Path, *, python: str, uv: Uv, say: Callable[[str], None]) -> int:
    """Download the wheels that the folder lacks or has damaged; return their number.

    Raises:
        UserError: the disk is too small, or a download fails.
    """
    create_folder(folder)
    distinct = {each.file: each for each in wheels}.values()
    missing = sorted((each for each in distinct if not is_intact(each, folder)), key=lambda each: -each.size)
    check_space(sum(each.size for each in missing), folder)
    if missing:
        say(f"{len(missing)} wheels to fetch, {sum(each.size for each in missing) / 1e6:.0f} MB")
    with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
        try:
            for _ in pool.map(lambda batch: fetch_batch(batch, folder, python=python, uv=uv), batches(missing)):
                pass
        except KeyboardInterrupt:
            processes.end_calls()  # otherwise the threads wait for their downloads
            raise
    return len(missing)


def batches(wheels: Sequence[Wheel]) -> list[list[Wheel]]:
    """Batches for one call of pip: small wheels share one, because starting pip takes as long as a small wheel."""
    grouped: list[list[Wheel]] = []
    for each in wheels:
        if grouped and fits_batch(each, grouped[-1]):
            grouped[-1].append(each)
        else:
            grouped.append([each])
    return grouped


def fits_batch(wheel: Wheel, batch: Sequence[Wheel]) -> bool:
    """True if one call of pip can download the wheel as well. pip refuses two releases of one package."""
    small = sum(each.size for each in batch) + wheel.size < BATCH_BYTES
    return small and len(batch) < BATCH and wheel.name not in {each.name for each in batch}


def create_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be created ({error.strerror}); name another folder with --out") from error


def is_intact(wheel: Wheel, folder: Path) -> bool:
    path = folder / wheel.file
    return path.is_file() and digest(path) == wheel.sha256


def check_space(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{folder}: {needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free; name another folder with --out"
        )


def fetch_batch(batch: Sequence[Wheel], folder: Path, *, python: str, uv: Uv) -> None:
    """Download into a temporary folder first, so that a file in ``folder`` is complete."""
    new = folder / f".{batch[0].file}.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        remote = [each for each in batch if each.local_path is None]
        if remote:
            download(remote, new, python=python, uv=uv)
        for each in batch:
            if each.local_path is not None:
                shutil.copyfile(each.local_path, new / each.file)
            if not is_intact(each, new):
                raise UserError(f"{each.file}: the downloaded file has another hash than the lock; it was discarded")
            (new / each.file).replace(folder / each.file)
    except OSError as error:
        raise UserError(f"{folder}: {batch[0].file} cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def download(batch: Sequence[Wheel], into: Path, *, python: str, uv: Uv) -> None:
    tags = [tag for each in batch for tag in each.tags]
    target = [f"--abi={each}" for each in sorted({tag.abi for tag in tags})]
    target += [f"--platform={each}" for each in sorted({tag.platform for tag in tags})]
    result = uv(
        *("tool", "run", "--python", sys.executable, "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-index", "--no-cache-dir", "--only-binary=:all:", f"--python-version={python}", *target),
        *("--dest", into.absolute()),  # absolute, because uv runs in another folder
        *(f"{each.url}#sha256={each.sha256}" for each in batch),
        timeout_s=INSTALL_LIMIT_S,
    )
    if result.exit_code != 0:
        names = batch[0].file if len(batch) == 1 else f"one of {', '.join(each.name for each in batch)}"
        blame_machine(result, doing=f"downloading {names}")
        raise UserError(f"{names} could not be downloaded: {reason(result.log)}")
