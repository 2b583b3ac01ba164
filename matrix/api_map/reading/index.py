"""Lists the releases of a package on the configured index, and reads files of their wheels.

The Simple API states upload times and addresses (https://packaging.python.org/en/latest/specifications/simple-repository-api/).
Wheels are read by HTTP ranges, because of a wheel of hundreds of megabytes only the Python files matter.
"""

from __future__ import annotations

import io
import os
import re
import ssl
import zipfile
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urljoin

import httpx
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from matrix.environments.environment import cache_folder
from matrix.errors import UserError
from matrix.versions import indexes
from matrix.versions.uv import on_this_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

JSON: Final = {"Accept": "application/vnd.pypi.simple.v1+json"}
TIMEOUT_S: Final = 120.0
WHOLE_BYTES: Final = 30 * 10**6  # smaller wheels are read by one request
BLOCK_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelFile:
    """The wheel of a final release. ``size`` is in bytes."""

    package: str
    version: str
    uploaded: date
    url: str
    size: int
    sha256: str = ""
    yanked: bool = False
    requires_python: str = ""


@dataclass(kw_only=True)
class RangeFile(io.RawIOBase):
    """A file on a server, of which only the blocks that are read are fetched."""

    url: str
    size: int
    client: httpx.Client
    place: int = 0
    blocks: dict[int, bytes] = field(default_factory=dict)

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.place, os.SEEK_END: self.size}[whence]
        self.place = start + offset
        return self.place

    def read(self, size: int = -1) -> bytes:
        end = self.size if size < 0 else min(self.place + size, self.size)
        parts = []
        while self.place < end:
            number, inside = divmod(self.place, BLOCK_BYTES)
            part = self.block(number)[inside : inside + end - self.place]
            parts.append(part)
            self.place += len(part)
        return b"".join(parts)

    def block(self, number: int) -> bytes:
        if number not in self.blocks:
            first = number * BLOCK_BYTES
            last = min(first + BLOCK_BYTES, self.size) - 1
            answer = self.client.get(self.url, headers={"Range": f"bytes={first}-{last}"})
            answer.raise_for_status()
            if answer.status_code != httpx.codes.PARTIAL_CONTENT:
                raise UserError(f"{self.url}: the index does not serve parts of files; use one that does")
            self.blocks[number] = answer.content
        return self.blocks[number]


class PackageIndex:
    """The default index of uv and pip on this machine: of their variables and files, or else the one that uv knows.

    ``python`` is a version such as 3.12.1: of each release the wheel for it, if it has one. Without it, any wheel will
    do, because files of Python do not depend on the interpreter.
    """

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        transport: httpx.BaseTransport | None = None,
        *,
        python: str = "",
        ask: Callable[[], str] | None = None,
    ) -> None:
        self.certificate = indexes.pip_settings(environ).get("cert", "")
        self.transport = transport
        self.python = python
        self.ask = ask or (lambda: on_this_machine(cache_folder(), environ=environ).default_index())

    @cached_property
    def address(self) -> str:
        """The address of the Simple API.

        Raises:
            UserError: no index is configured, or it is a folder.
        """
        found = self.ask().rstrip("/")
        if not found.startswith(("https://", "http://")):
            raise UserError(f"{found or 'no index'}: the map needs an index with the JSON form of the Simple API")
        return found

    @cached_property
    def client(self) -> httpx.Client:
        verify = ssl.create_default_context(cafile=self.certificate) if self.certificate else True
        return httpx.Client(verify=verify, follow_redirects=True, timeout=TIMEOUT_S, transport=self.transport)

    def releases(self, package: str, *, since: date) -> tuple[WheelFile, ...]:
        """Return one wheel of each final release uploaded since a day, in the order of versions.

        Raises:
            UserError: the index cannot be reached, or states no upload times.
        """
        address = f"{self.address}/{canonicalize_name(package)}/"
        try:
            answer = self.client.get(address, headers=JSON)
            answer.raise_for_status()
            files = answer.json()["files"]
        except (httpx.HTTPError, ValueError, KeyError) as error:
            raise UserError(
                f"{address}: cannot list releases ({error}); the map needs the JSON form of an index"
            ) from error
        found: dict[Version, list[WheelFile]] = {}
        for row in files:
            wheel = wheel_file(package, row, address)
            if wheel is not None and wheel.uploaded >= since and is_for(wheel, self.python):
                found.setdefault(Version(wheel.version), []).append(wheel)
        return tuple(min(found[version], key=preference) for version in sorted(found))

    def open(self, wheel: WheelFile) -> zipfile.ZipFile:
        """Open a wheel on the index.

        Raises:
            UserError: it is missing or damaged.
        """
        try:
            if wheel.size <= WHOLE_BYTES:
                answer = self.client.get(wheel.url)
                answer.raise_for_status()
                return zipfile.ZipFile(io.BytesIO(answer.content))
            source = RangeFile(url=wheel.url, size=wheel.size, client=self.client)
            return zipfile.ZipFile(cast("Any", source))
        except (httpx.HTTPError, zipfile.BadZipFile) as error:
            raise UserError(f"{wheel.package} {wheel.version}: its wheel cannot be read ({error})") from error


def wheel_file(package: str, row: Mapping[str, Any], address: str) -> WheelFile | None:
    """Return the wheel of a final release that a row of the index describes; None for anything else."""
    try:
        _, version, _, _ = parse_wheel_filename(row["filename"])
    except (InvalidWheelFilename, ValueError):
        return None
    if version.is_prerelease or version.local or "upload-time" not in row:
        return None
    return WheelFile(
        package=package,
        version=str(version),
        uploaded=datetime.fromisoformat(row["upload-time"]).date(),
        url=urljoin(address, row["url"]),
        size=int(row.get("size") or 0),
        sha256=row.get("hashes", {}).get("sha256", ""),
        yanked=bool(row.get("yanked")),
        requires_python=row.get("requires-python") or "",
    )


def is_for(wheel: WheelFile, python: str) -> bool:
    """Tell if a wheel can be installed with a version of CPython on Linux; any can if no version is stated."""
    if not python:
        return True
    major, minor = map(int, python.split(".")[:2])
    tags = parse_wheel_filename(wheel.url.rpartition("/")[2])[3]
    for tag in tags:
        found = re.fullmatch(r"cp(\d)(\d+)", tag.interpreter)
        own = found is not None and (int(found[1]), int(found[2])) == (major, minor)
        stable = found is not None and tag.abi == "abi3" and int(found[1]) == major and int(found[2]) <= minor
        on_linux = tag.platform == "any" or ("linux" in tag.platform and "x86_64" in tag.platform)
        if on_linux and (own or stable or tag.interpreter == f"py{major}"):
            return True
    return False


def preference(wheel: WheelFile) -> tuple[bool, bool, int, str]:
    """The sort key of the wheels of a release: for Linux on x86-64, then for Python 3.11 or any, then the smallest."""
    name = wheel.url.rpartition("/")[2]
    linux = "-any." in name or ("x86_64" in name and "linux" in name and "musl" not in name)
    return not linux, not any(tag in name for tag in ("-py3-", "cp311-", "abi3")), wheel.size, name
