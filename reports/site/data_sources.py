"""The files that the site is built from, with their digests, so that a link or a download can name its results."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from matrix.run import store
from reports.answers.fixes import remedies

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

# Documents of a folder of published results beside the results themselves, and what they hold.
DOCUMENTS: Final = {
    "support.json.gz": "Support of every job by device: version ranges, settings, and the cells that show them",
    "devices.json": "Where CPU and GPU disagree on the nearest sets",
    "findings.json.gz": "Findings with cells, conditions and threads",
    "known_problems.json.gz": "Upstream reports, run as cells",
    "fixes.json.gz": "Proven fixes of red cells",
    "matrix.md": "The matrix of the default profile as Markdown, for GitHub",
}
SUMS: Final = "SHA256SUMS"
SHORT: Final = 12  # characters of a digest that pages show, as of a commit


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file of results with its path in their folder."""

    path: str
    sha256: str

    @property
    def line(self) -> str:
        """The file as a line of ``sha256sum``."""
        return f"{self.sha256}  {self.path}\n"


def source_files(folder: Path, results: Sequence[Path]) -> tuple[SourceFile, ...]:
    """Return the files of results, all files of a run, the fixes below a folder and the documents in it, by path."""
    runs = {path.parent for path in results if path.name == store.RUN}
    of_runs = (run / name for run in runs for name in (store.SETS, store.OUTCOMES))
    paths = {*results, *of_runs, *remedies.files(folder), *(folder / name for name in DOCUMENTS)}
    known = sorted((path.relative_to(folder).as_posix(), path) for path in paths if path.is_file())
    return tuple(SourceFile(path=name, sha256=sha256_of(path)) for name, path in known)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sums(files: Iterable[SourceFile]) -> str:
    """Return the files as ``sha256sum`` lists them; the digest of this text is that of all results."""
    return "".join(each.line for each in files)
