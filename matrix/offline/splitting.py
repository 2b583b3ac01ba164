"""Splits a pack into parts of a fixed size, with checksums, for connections that carry only small or few files.

The parts are one tar archive. Its order and times are fixed, so that packing the same again gives the same parts, and
a carry that was interrupted goes on with those that are missing.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from packaging.utils import parse_wheel_filename

from matrix.errors import UserError
from matrix.offline import joining
from matrix.offline.manifest import Pack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from matrix.offline.interpreters import PackedPython

SIZE: Final = re.compile(r"(\d+)([KMG])B?", re.IGNORECASE)
UNITS: Final = {"K": 1_000, "M": 1_000_000, "G": 1_000_000_000}
SMALLEST: Final = 1_000_000  # bytes
SCRIPT: Final = "unpack.py"
MANYLINUX: Final = re.compile(r"manylinux_(\d+)_(\d+)_")
LEGACY: Final = {"manylinux1_": (2, 5), "manylinux2010_": (2, 12), "manylinux2014_": (2, 17)}  # PEP 600


def part_size(text: str) -> int:
    """Bytes of a size such as 60M, in decimal units.

    Raises:
        UserError: it is no size, or below 1M.
    """
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise UserError(f"--split {text}: expected a size such as 60M")
    size = int(match[1]) * UNITS[match[2].upper()]
    if size < SMALLEST:
        raise UserError(f"--split {text}: expected at least 1M")
    return size


@dataclass(frozen=True, kw_only=True)
class SplitPack:
    """The parts of a pack, and the folder with them, their list and the script that joins them."""

    folder: Path
    parts: Sequence[Path]

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(each.stat().st_size for each in self.parts)


def split(pack: Path, folder: Path, *, part_bytes: int, pythons: Sequence[PackedPython] = ()) -> SplitPack:
    """Write the parts of a pack and of interpreters into a folder, ``parts.json`` last.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / joining.INDEX).unlink(missing_ok=True)
        for old in folder.glob("part-*"):
            old.unlink()
        writer = PartWriter(folder=folder, part_bytes=part_bytes)
        unpacked = write_archive(writer, pack, pythons)
        shutil.copyfile(joining.__file__, folder / SCRIPT)
        text = json.dumps(index(pack, writer, pythons, unpacked), indent=1)
        (folder / joining.INDEX).write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{folder}: {error.strerror or error}; name a folder that can be written, with --out"
        ) from error
    return SplitPack(folder=folder, parts=[folder / each["name"] for each in writer.rows])


def write_archive(writer: PartWriter, pack: Path, pythons: Sequence[PackedPython]) -> int:
    """Write everything into one archive; return the bytes of its files."""
    total = 0
    with tarfile.open(fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        for path, name in members(pack, pythons):
            archive.add(path, name, recursive=False, filter=anonymous)
            total += 0 if path.is_symlink() else path.stat().st_size
    writer.finish()
    return total


def members(pack: Path, pythons: Sequence[PackedPython]) -> Iterator[tuple[Path, str]]:
    for path in sorted(pack.rglob("*")):
        if path.is_file():
            yield path, path.relative_to(pack).as_posix()
    for each in pythons:
        for path in each.files():
            yield path, f"{joining.PYTHONS}/{each.version}/{path.relative_to(each.prefix).as_posix()}"


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out owner and times, which differ from one packing to the next."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


@dataclass(kw_only=True)
class PartWriter:
    """A file that writes parts: names, sizes and SHA-256 are in ``rows``."""

    folder: Path
    part_bytes: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    waiting: bytearray = field(default_factory=bytearray)

    def write(self, data: bytes) -> int:
        self.waiting += data
        while len(self.waiting) >= self.part_bytes:
            self.write_part(bytes(self.waiting[: self.part_bytes]))
            del self.waiting[: self.part_bytes]
        return len(data)

    def finish(self) -> None:
        if self.waiting:
            self.write_part(bytes(self.waiting))
            self.waiting.clear()

    def write_part(self, data: bytes) -> None:
        name = f"part-{len(self.rows):04}"
        (self.folder / name).write_bytes(data)
        self.rows.append({"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})


def index(pack: Path, writer: PartWriter, pythons: Sequence[PackedPython], unpacked: int) -> dict[str, Any]:
    """What the target reads first. ``digest`` identifies the content, ``bytes`` is the size when unpacked."""
    names = [path.name for path in sorted(pack.rglob("*.whl"))]
    checksums = "".join(each["sha256"] for each in writer.rows)
    return {
        "schema": 1,
        "digest": hashlib.sha256(checksums.encode()).hexdigest(),
        "bytes": unpacked,
        "machine": machine(names),
        "glibc": glibc(names),
        "pythons": {each.version: str(each.prefix) for each in pythons},
        "harness_pythons": harness_pythons(pack),
        "set_pythons": set_pythons(pack),
        "parts": writer.rows,
    }


def set_pythons(pack: Path) -> dict[str, list[str]]:
    """The keys of the packed sets by the Python that they are locked for."""
    found: dict[str, list[str]] = {}
    for key, row in Pack(folder=pack).rows.items():
        found.setdefault(str(row["python"]), []).append(key)
    return found


def machine(names: Iterable[str]) -> str:
    """The architecture that compiled wheels are for; empty if there are none."""
    platforms = [tag.platform for name in names for tag in parse_wheel_filename(name)[3]]
    return next((each for each in ("x86_64", "aarch64") if any(one.endswith(each) for one in platforms)), "")


def glibc(names: Iterable[str]) -> str:
    """The oldest glibc on which all wheels work, such as 2.28; empty if none needs one."""
    needed = [
        min(found)
        for name in names
        if (found := [version for tag in parse_wheel_filename(name)[3] if (version := glibc_of(tag.platform))])
    ]
    return ".".join(map(str, max(needed))) if needed else ""


def glibc_of(platform: str) -> tuple[int, int] | None:
    if match := MANYLINUX.match(platform):
        return int(match[1]), int(match[2])
    return next((version for prefix, version in LEGACY.items() if platform.startswith(prefix)), None)


def harness_pythons(pack: Path) -> list[str]:
    """Minor versions of Python that the packed ftmatrix can run on: those that its compiled wheels are for."""
    names = [path.name for path in (pack / joining.HARNESS).glob("*.whl")]
    interpreters = [
        {tag.interpreter for tag in parse_wheel_filename(name)[3] if tag.interpreter.startswith("cp3")}
        for name in names
        if not any(tag.abi in {"none", "abi3"} for tag in parse_wheel_filename(name)[3])
    ]
    common = set.intersection(*interpreters) if interpreters else set()
    return sorted((f"{each[2]}.{each[3:]}" for each in common), key=joining.numbers)
