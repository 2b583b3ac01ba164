"""Takes what a source has at this moment: the files of a commit, or of a checkout with its uncommitted changes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matrix.environments import leases, repository
from matrix.environments.environment import lease_path
from matrix.environments.pytest_runner import remove_folder
from matrix.environments.repository import Repository
from matrix.errors import UserError
from matrix.replacements.source import SourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from matrix.replacements.source import ReplacementSource

SHORT: Final = 7  # digits in the name of a set
LONG: Final = 12  # digits in a lock
UNREACHABLE: Final = re.compile(r"Could not resolve host|Failed to connect|timed out|Could not connect|unreachable")
DUMB: Final = re.compile(r"dumb http transport does not support")
COMMIT: Final = re.compile(r"[0-9a-f]{7,40}")
# What builds and tools leave in a checkout. ``build`` at the top has files that setuptools would install again.
LEFT_AT_TOP: Final = frozenset({"build", "dist"})
LEFT_ANYWHERE: Final = frozenset({"__pycache__", ".git", ".hg", ".nox", ".tox", ".venv", "venv", "node_modules"})


@dataclass(frozen=True, kw_only=True)
class Content:
    """The files of a source at one moment.

    Attributes:
        label: how the name of a set states it, such as ``@1a2b3c4``.
        local: how a lock states it, as a local version label.
        digest: identifies the files.
        facts: the commit and digests, in words.
        copy: writes the files to a new folder; a wheel is one file.
    """

    label: str
    local: str
    digest: str
    facts: Mapping[str, str]
    copy: Callable[[Path], None] = field(repr=False)


def content_of(source: ReplacementSource, *, cache: Path) -> Content:
    """The present content of a commit, a checkout or a wheel.

    Raises:
        UserError: the commit cannot be fetched, or the files cannot be read.
    """
    if source.kind is SourceKind.GIT:
        return of_commit(source, cache=cache)
    try:
        return of_wheel(source) if source.kind is SourceKind.WHEEL else of_checkout(source)
    except OSError as error:
        raise UserError(f"{source.option}: cannot be read ({error.strerror or error}); correct it") from error


def of_commit(source: ReplacementSource, *, cache: Path) -> Content:
    folder = cache / f"{hashlib.sha256(source.place.encode()).hexdigest()[:LONG]}.git"
    store = Repository(folder=folder, option=source.option)
    with leases.held_exclusively(lease_path(folder)):  # git writes what it fetched to one file, FETCH_HEAD
        if not folder.exists():
            repository.git(["init", "--quiet", "--bare", str(folder)])
        commit = fetched(store, source)
        folder.touch()
    return Content(
        label=f"@{commit[:SHORT]}",
        local=f"g{commit[:LONG]}",
        digest=commit,
        facts={"source": f"git+{source.public}", "reference": source.reference, "commit": commit},
        copy=lambda folder: store.export(commit, folder),
    )


def fetched(store: Repository, source: ReplacementSource) -> str:
    """The commit that a reference names, which is then in the store.

    Raises:
        UserError: the repository cannot be reached, or it has no such reference.
    """
    if store.has(source.reference):
        return source.reference
    # Nothing but the files is needed, and a whole history takes minutes.
    shallow = repository.git(
        ["-C", str(store.folder), "fetch", "--quiet", "--depth", "1", "--", source.place, source.reference]
    )
    if shallow.exit_code == 0:
        return store.git("rev-parse", "FETCH_HEAD^{commit}").strip()
    if DUMB.search(shallow.log):  # a plain web server sends whole histories only
        store.git("fetch", "--quiet", "--", source.place, source.reference)
        return store.git("rev-parse", "FETCH_HEAD^{commit}").strip()
    if COMMIT.fullmatch(source.reference):  # some servers send only branches and tags
        store.git("fetch", "--quiet", "--", source.place, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        return store.git("rev-parse", f"{source.reference}^{{commit}}").strip()
    why = repository.failure_message(shallow.log)
    remedy = "check the network" if UNREACHABLE.search(why) else "correct the address or the reference"
    raise UserError(f"{source.option}: git cannot fetch it ({why}); {remedy}")


def of_wheel(source: ReplacementSource) -> Content:
    path = source.path
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()

    def copy(folder: Path) -> None:
        folder.mkdir(parents=True)
        shutil.copyfile(path, folder / path.name)

    return Content(
        label=f"@wheel.{digest[:SHORT]}",
        local=f"w{digest[:LONG]}",
        digest=digest,
        facts={"source": path.name, "sha256": digest},
        copy=copy,
    )


def of_checkout(source: ReplacementSource) -> Content:
    """The files of a folder as they are on disk; git says which of them belong to the project."""
    top = source.path
    files, commit = checkout_files(top)
    if commit and not changed_since_commit(top):
        facts = {"source": f"checkout {top.name}", "commit": commit}
        label, local, digest = f"@{commit[:SHORT]}", f"g{commit[:LONG]}", tree_digest(top, files)
    else:
        digest = tree_digest(top, files)
        changed = f"{commit[:SHORT]}.d{digest[:SHORT]}" if commit else f"tree.{digest[:SHORT]}"
        label, local = f"@{changed}", f"g{commit[:LONG]}.d{digest[:LONG]}" if commit else f"d{digest[:LONG]}"
        facts = {"source": f"checkout {top.name}", **({"commit": commit} if commit else {}), "tree_sha256": digest}

    def copy(folder: Path) -> None:
        for path in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(top / path, folder / path, follow_symlinks=False)

    return Content(label=label, local=local, digest=digest, facts=facts, copy=copy)


def checkout_files(top: Path) -> tuple[list[Path], str]:
    """The files of a checkout relative to its folder, and its commit; without git, all files and no commit."""
    listed = repository.git(["-C", str(top), "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    head = repository.git(["-C", str(top), "rev-parse", "--verify", "--quiet", "HEAD"])
    if listed.exit_code != 0 or head.exit_code != 0:
        return sorted(walked(top)), ""
    paths = {Path(name) for name in listed.log.split("\0") if name}  # files in conflict are listed several times
    return sorted(path for path in paths if (top / path).is_file() or (top / path).is_symlink()), head.log.strip()


def walked(top: Path) -> Iterable[Path]:
    for folder, folders, names in os.walk(top):
        at = Path(folder).relative_to(top)
        left = LEFT_ANYWHERE | (LEFT_AT_TOP if at == Path() else frozenset())
        folders[:] = [each for each in folders if each not in left and not each.endswith(".egg-info")]
        yield from (at / name for name in names)


def changed_since_commit(top: Path) -> bool:
    """Return whether the checkout has uncommitted changes or new files."""
    done = repository.git(["-C", str(top), "status", "--porcelain", "--", "."])
    return done.exit_code != 0 or bool(done.log.strip())


def tree_digest(top: Path, files: Iterable[Path]) -> str:
    """A hash of the paths and contents of files."""
    whole = hashlib.sha256()
    for path in files:
        full = top / path
        data = str(full.readlink()).encode() if full.is_symlink() else full.read_bytes()
        whole.update(f"{path}\0{len(data)}\0".encode() + data)
    return whole.hexdigest()


def write_copy(content: Content, folder: Path) -> None:
    """Write the files of a source to a folder, which is replaced.

    Raises:
        UserError: a file cannot be read or written.
    """
    remove_folder(folder)
    try:
        content.copy(folder)
    except (OSError, tarfile.TarError) as error:
        raise UserError(f"--with: the files of {content.facts['source']} cannot be copied: {error}") from error
