"""Joins the parts of a pack on the host that they were carried to.

`ftmatrix pack --split` writes a copy of this file beside the parts, as ``unpack.py``. It imports only the standard
library and works from Python 3.8 on, as the host has nothing else yet:

    python3 PARTS/unpack.py FOLDER run --device cuda

verifies the parts, unpacks them into FOLDER, installs the packed interpreters and the packed ftmatrix, and then runs
``ftmatrix run --offline FOLDER/pack --device cuda``. A second call continues with what is missing.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

INDEX = "parts.json"
PACK, PYTHONS, HARNESS, ENVIRONMENT = "pack", "pythons", "harness", "environment"
BLOCK = 1 << 20
SHOWN = 5  # names of parts in one sentence
BAD_INPUT = 2
OFFLINE_COMMANDS = ("run", "plan", "fix", "bench", "selfcheck", "mutate")  # they install sets, so they get the pack


class UnpackError(Exception):
    """The parts or the host prevent unpacking; the message says what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Unpack the parts beside this file, then run ftmatrix, if its arguments are given."""
    parser = argparse.ArgumentParser(description="Unpack an ftmatrix pack that was split into parts.")
    parser.add_argument("folder", type=Path, help="folder to create")
    parser.add_argument("--parts", type=Path, default=Path(__file__).resolve().parent, help="folder with the parts")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="arguments for ftmatrix, such as: run --device cuda")
    options = parser.parse_args(argv)
    try:
        for line in unpack(options.parts, options.folder):
            print(line, file=sys.stderr, flush=True)
        if not options.command:
            return 0
        return run(options.folder, options.command)
    except UnpackError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT


def unpack(parts: Path, folder: Path) -> Iterator[str]:
    """Verify and unpack parts; yield what was done.

    Raises:
        UnpackError: parts are missing or damaged, or the host cannot use the pack. Nothing is unpacked then.
    """
    index = read_index(parts)
    if is_complete(folder / PACK, index):
        yield f"{folder / PACK} is complete"
    else:
        check_parts(parts, index)
        check_host(index, folder)
        extract(parts, folder, index)
        yield f"unpacked {len(index['parts'])} parts into {folder / PACK}"
    for python, prefix in sorted(index["pythons"].items()):
        yield install_python(folder, python, Path(prefix))
    yield from missing_pythons(index)
    if (folder / PACK / HARNESS).is_dir():
        yield install_harness(folder, index)


def read_index(parts: Path) -> dict[str, Any]:
    """The list of the parts.

    Raises:
        UnpackError: it is missing, damaged, or of a newer release.
    """
    path = parts / INDEX
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnpackError(f"{path} is missing; carry it with the parts") from None
    except (OSError, ValueError) as error:
        raise UnpackError(f"{path} is damaged ({error}); carry it again") from None
    if not isinstance(index, dict) or index.get("schema") != 1:
        raise UnpackError(f"{path} is not of this release of ftmatrix; carry the unpack.py of the same pack")
    return index


def check_parts(parts: Path, index: Mapping[str, Any]) -> None:
    """Compare sizes and SHA-256 of all parts.

    Raises:
        UnpackError: names the parts to carry again.
    """
    bad = [each["name"] for each in index["parts"] if not is_intact(parts / each["name"], each)]
    if bad:
        more = f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        names = ", ".join(bad[:SHOWN])
        raise UnpackError(
            f"{len(bad)} of {len(index['parts'])} parts are missing or damaged: {names}{more}; carry them again"
        )


def is_intact(path: Path, row: Mapping[str, Any]) -> bool:
    try:
        return bool(path.stat().st_size == row["bytes"] and sha256(path) == row["sha256"])
    except OSError:
        return False


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def check_host(index: Mapping[str, Any], folder: Path) -> None:
    """Check the host before anything is written.

    Raises:
        UnpackError: another architecture, an older glibc, or too little disk space.
    """
    machine = platform.machine()
    if index["machine"] and machine != index["machine"]:
        raise UnpackError(f"the pack is for {index['machine']}, this host is {machine}")
    libc, version = platform.libc_ver()
    if index["glibc"] and (libc != "glibc" or numbers(version) < numbers(index["glibc"])):
        found = f"{libc} {version}".strip() or "another C library"
        raise UnpackError(f"the wheels need glibc {index['glibc']}, this host has {found}; use a newer image")
    free = shutil.disk_usage(existing_parent(folder)).free
    if free < index["bytes"]:
        needed = f"{index['bytes'] / 1e9:.1f} GB"
        raise UnpackError(f"{folder}: {needed} needed, {free / 1e9:.1f} GB free; name a folder on a larger disk")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in version.split(".") if each.isdigit())


def existing_parent(folder: Path) -> Path:
    folder = folder.absolute()
    return next(each for each in (folder, *folder.parents) if each.exists())


def extract(parts: Path, folder: Path, index: Mapping[str, Any]) -> None:
    """Unpack into a folder of its own, which replaces an older one in one step.

    Raises:
        UnpackError: the disk is full, or the folder cannot be written. Nothing is left then.
    """
    partial = folder / f"{PACK}.partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with io.BufferedReader(Joined(parts, index)) as joined, tarfile.open(fileobj=joined, mode="r|") as archive:
            archive.extraction_filter = getattr(tarfile, "tar_filter", None)  # the default of newer Pythons warns
            for member in archive:
                check_member(member)
                archive.extract(member, partial)
        write_digest(partial, index)
        shutil.rmtree(folder / PACK, ignore_errors=True)
        partial.rename(folder / PACK)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        hint = "free some space, or name a folder on a larger disk" if error.errno == errno.ENOSPC else "choose another"
        raise UnpackError(f"{folder}: {error.strerror or error}; {hint}") from error


def check_member(member: tarfile.TarInfo) -> None:
    """Refuse names and links that leave the folder, as the parts can come from anywhere."""
    for name in (member.name, member.linkname if member.issym() or member.islnk() else ""):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise UnpackError(f"{member.name}: leads out of the folder; pack the sets again")


class Joined(io.RawIOBase):
    """The bytes of all parts, one after the other."""

    def __init__(self, parts: Path, index: Mapping[str, Any]) -> None:
        super().__init__()
        self.waiting = [parts / each["name"] for each in index["parts"]]
        self.file: io.BufferedReader | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self.file is None:
                if not self.waiting:
                    return 0
                self.file = self.waiting.pop(0).open("rb")
            count = self.file.readinto(buffer)
            if count:
                return count
            self.file.close()
            self.file = None

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        super().close()


def write_digest(folder: Path, index: Mapping[str, Any]) -> None:
    """Mark a folder as complete, with the interpreters of its pack."""
    row = {"digest": index["digest"], "pythons": index["pythons"]}
    (folder / INDEX).write_text(json.dumps(row), encoding="utf-8")


def is_complete(folder: Path, index: Mapping[str, Any]) -> bool:
    return bool(marker(folder).get("digest") == index["digest"])


def marker(folder: Path) -> dict[str, Any]:
    try:
        row = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return row if isinstance(row, dict) else {}


def install_python(folder: Path, python: str, prefix: Path) -> str:
    """Put a packed interpreter where it was built for, as it finds its libraries by that path.

    Raises:
        UnpackError: the path cannot be written.
    """
    program = Path("bin") / f"python{python}"
    if (prefix / program).exists():
        return f"Python {python} is at {prefix}"
    try:
        copy_into(folder / PACK / PYTHONS / python, prefix, last=program)
    except OSError as error:
        hint = f"the packed Python {python} only works there, install another one"
        if error.errno == errno.ENOSPC:
            hint = "free some space, then call again"
        raise UnpackError(f"{prefix}: {error.strerror or error}; {hint}") from error
    return f"installed Python {python} at {prefix}"


def missing_pythons(index: Mapping[str, Any]) -> Iterator[str]:
    """Name the sets that cannot be installed here, before anything runs; the others can."""
    for python, keys in sorted(index.get("set_pythons", {}).items()):
        if python not in index["pythons"] and not shutil.which(f"python{python}"):
            sets = ", ".join(keys)
            yield f"no Python {python} is here, so {sets} will be blocked; install it, or pack with --interpreter"


def copy_into(source: Path, target: Path, *, last: Path) -> None:
    """Copy all files below a folder, the one at the path ``last`` at the end: while it is missing, a copy is partial.

    The target may have other files, and those of a copy that was interrupted.

    Raises:
        OSError: the disk is full, or the target cannot be written.
    """
    for path in sorted(source.rglob("*"), key=lambda path: path == source / last):
        if path.is_symlink() or path.is_file():
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.is_symlink() or place.exists():
                place.unlink()
            shutil.copy2(path, place, follow_symlinks=False)


def install_harness(folder: Path, index: Mapping[str, Any]) -> str:
    """Install ftmatrix from the pack into an environment of its own.

    Raises:
        UnpackError: there is no interpreter for it, or pip fails.
    """
    root = folder / ENVIRONMENT
    if is_complete(root, index):
        return f"ftmatrix is in {root}"
    shutil.rmtree(root, ignore_errors=True)
    pip = [str(root / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    steps = (
        [harness_python(index), "-m", "venv", str(root)],
        [*pip, "--no-index", "--find-links", str(folder / PACK / HARNESS), "ftmatrix"],
    )
    for step in steps:
        done = subprocess.run(step, check=False, capture_output=True, text=True)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
            raise UnpackError(f"ftmatrix could not be installed in {root}: {lines[-1]}")
    write_digest(root, index)
    return f"installed ftmatrix in {root}"


def harness_python(index: Mapping[str, Any]) -> str:
    """The newest of the packed interpreters and this one, if it fits the packed wheels of ftmatrix.

    Raises:
        UnpackError: none does.
    """
    fitting = sorted(index["harness_pythons"], key=numbers, reverse=True)
    for python in fitting:
        prefix = index["pythons"].get(python)
        found = str(Path(prefix) / "bin" / f"python{python}") if prefix else shutil.which(f"python{python}")
        if found:
            return found
    if f"{sys.version_info[0]}.{sys.version_info[1]}" in fitting:
        return sys.executable
    raise UnpackError(
        f"ftmatrix needs Python {' or '.join(fitting)}, which is not here; install it, or pack with --interpreter"
    )


def run(folder: Path, command: Sequence[str]) -> int:
    """Run the packed ftmatrix on the pack; return its exit code.

    Raises:
        UnpackError: the pack has no ftmatrix.
    """
    program = folder / ENVIRONMENT / "bin" / "ftmatrix"
    if not program.exists():
        raise UnpackError("the pack has no ftmatrix; pack with --with-harness, or run an installed one")
    verb, *rest = command
    pack = ["--offline", str(folder / PACK)] if verb in OFFLINE_COMMANDS else []
    return subprocess.run([str(program), verb, *pack, *rest], env=environment(folder), check=False).returncode


def environment(folder: Path) -> dict[str, str]:
    """Variables of this process, with the packed interpreters on PATH, behind those of the host."""
    prefixes = marker(folder / PACK).get("pythons", {}).values()
    folders = [folder / ENVIRONMENT / "bin", *(Path(prefix) / "bin" for prefix in prefixes)]
    return {**os.environ, "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, folders)])}


if __name__ == "__main__":
    sys.exit(main())
