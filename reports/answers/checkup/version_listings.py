"""Reads files and texts that list versions: requirements, `pip freeze`, `pip list`, `conda list`, locks and projects.

A format is recognised by the name of its file, otherwise by its content.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from packaging.markers import InvalidMarker, Marker

from matrix.errors import UserError
from reports.answers.checkup import version_entries as entries
from reports.answers.checkup.version_entries import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

ENVIRONMENT_FILE: Final = re.compile(r"(environment|conda).*\.ya?ml$", re.IGNORECASE)
LOCKS: Final = ("uv.lock", "poetry.lock", "pdm.lock")
PYTHON: Final = re.compile(r"python\s*={1,2}\s*(3\.\d+(?:\.\d+)?)(?:[=\s].*)?$")
TABLE: Final = re.compile(r"^Package\s+Version\b", re.MULTILINE)  # `pip list`, `uv pip list`
CONDA_TABLE: Final = re.compile(r"^#\s+Name\s+Version\s+Build\b", re.MULTILINE)
INCLUDE: Final = re.compile(r"(-r|--requirement|-c|--constraint)[\s=]*(.+)")
INDEX: Final = re.compile(
    r"(?:-i|--index-url|--extra-index-url|-f|--find-links)[\s=]+\S*?/whl/(cu\d+|cpu|rocm[\d.]+|xpu)\b"
)
ROW_OPTION: Final = re.compile(r"\s--[a-z-]+[=\s].*$")  # --hash=...
# Every installation of one of the six packages has these, as torch and huggingface_hub require them.
ALWAYS_INSTALLED: Final = frozenset({"filelock", "typing-extensions"})
LARGEST: Final = 20_000_000  # bytes; locks of large projects have several MB
DEEPEST: Final = 10  # files that include each other


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The packages of a listing.

    ``whole``: it has everything that is installed, so a package that it lacks is not installed. ``build`` is the build
    of torch that the index of the listing has.
    """

    kind: str
    entries: tuple[Entry, ...]
    whole: bool = False
    python: str = ""
    build: str = ""


@dataclass
class RequirementsFile:
    """Collects the entries of a requirements file and of the files that it includes."""

    found: list[Entry] = field(default_factory=list)
    build: str = ""


def of_text(text: str, path: Path) -> Listing:
    """Return what a text lists; ``path`` names its format and the folder of the files that it includes.

    Raises:
        UserError: the text is malformed, or a file that it includes cannot be read.
    """
    reader = reader_by_name(path.name) or reader_by_content(text)
    if reader is not None:
        return reader(text, path)
    if text.lstrip().startswith(("[{", "[\n")):
        return of_json(text, path)
    if CONDA_TABLE.search(text):
        return of_table(text, "conda list")
    return of_table(text, "pip list") if TABLE.search(text) else of_requirements(text, path)


def reader_by_name(name: str) -> Callable[[str, Path], Listing] | None:
    if name in LOCKS or re.fullmatch(r"pylock(\..+)?\.toml", name):
        return of_lock
    if name == "pyproject.toml":
        return of_project
    return of_conda_file if ENVIRONMENT_FILE.search(name) or name.endswith((".yml", ".yaml")) else None


def reader_by_content(text: str) -> Callable[[str, Path], Listing] | None:
    """Recognise files that are piped, or have another name."""
    return next((reader for pattern, reader in CONTENTS.items() if pattern.search(text)), None)


def of_requirements(text: str, path: Path) -> Listing:
    collected = RequirementsFile()
    collect_requirements(text, path, collected, (path.resolve(),))
    found = tuple(collected.found)
    return Listing(kind="requirements", entries=found, whole=is_whole(found), build=collected.build)


def is_whole(found: Iterable[Entry]) -> bool:
    """Tell if a listing is one of everything installed, such as a freeze: it has what nobody lists by hand."""
    return {each.name for each in found if each.version} >= ALWAYS_INSTALLED


def collect_requirements(
    text: str, path: Path, collected: RequirementsFile, opened: tuple[Path, ...], *, constraints: bool = False
) -> None:
    for line in logical_lines(text):
        index, include = INDEX.match(line), INCLUDE.match(line)
        if index is not None:
            collected.build = index[1]
        elif include is not None:
            other = (path.parent / include[2].strip()).resolve()
            if other in opened or len(opened) > DEEPEST:
                continue
            of_constraints = constraints or include[1] in ("-c", "--constraint")
            more = text_of(other, included_by=path.name)
            collect_requirements(more, other, collected, (*opened, other), constraints=of_constraints)
        else:
            entry = entries.from_requirement(ROW_OPTION.sub("", line)) if is_requirement(line) else None
            collected.found.extend([replace(entry, optional=constraints)] if entry is not None else ())


def is_requirement(line: str) -> bool:
    return not line.startswith("-") or line.startswith(("-e", "--editable"))


def logical_lines(text: str) -> Iterator[str]:
    """Yield the lines of a requirements file without comments; a backslash continues a line."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        content = re.sub(r"(^|\s)#(?!egg=).*$", "", line).strip()
        if content:
            yield content


def text_of(path: Path, *, included_by: str = "") -> str:
    """Return the text of a listing.

    Raises:
        UserError: the file cannot be read, is too large, or is no text.
    """
    reason = f", which {included_by} includes," if included_by else ""
    try:
        if path.stat().st_size > LARGEST:
            raise UserError(f"{path}{reason} is larger than {LARGEST // 1_000_000} MB; give a list of versions")
        return decoded(path.read_bytes(), f"{path}{reason}")
    except OSError as error:
        raise UserError(f"{path}{reason} cannot be read: {error.strerror}") from error


def decoded(raw: bytes, name: str) -> str:
    """Decode a listing; PowerShell redirects ``pip freeze`` as UTF-16.

    Raises:
        UserError: it is no text.
    """
    encoding = "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not text; give a list of versions, such as of `pip freeze`") from error
    if "\0" in text:
        raise UserError(f"{name} is not text; give a list of versions, such as of `pip freeze`")
    return text


def of_table(text: str, kind: str) -> Listing:
    """Read the table of ``pip list`` or ``conda list``."""
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    cells = [row for row in rows if len(row) > 1 and re.match(r"\d", row[1])]
    if kind == "pip list":
        return Listing(kind=kind, entries=tuple(entries.exact(*row[:2]) for row in cells), whole=True)
    built = (entries.conda_build(entries.package_name(row[0]), row[1], "".join(row[2:3])) for row in cells)
    python = next((row[1] for row in cells if row[0] == "python"), "")
    return Listing(kind=kind, entries=tuple(built), whole=True, python=python)


def of_json(text: str, path: Path) -> Listing:
    """Read ``pip list --format json``.

    Raises:
        UserError: it is no such list.
    """
    try:
        rows = json.loads(text)
        found = tuple(entries.exact(row["name"], row["version"]) for row in rows)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not a list of `pip list --format json`: {type(error).__name__}") from error
    return Listing(kind="pip list", entries=found, whole=True)


def toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not valid TOML: {error}") from error


def of_lock(text: str, path: Path) -> Listing:
    """Read a lock of uv, Poetry or PDM, or a ``pylock.toml``.

    Raises:
        UserError: it is not valid TOML, or has no packages.
    """
    document = toml(text, path)
    rows = document.get("package", document.get("packages"))
    if not isinstance(rows, list):
        raise UserError(f"{path}: no packages are locked in it")
    found = (from_lock(row) for row in rows if isinstance(row, dict) and isinstance(row.get("name"), str))
    return Listing(kind="lock", entries=tuple(each for each in found if each is not None), whole=True)


def from_lock(row: Mapping[str, Any]) -> Entry | None:
    """Read a locked package; None if its markers exclude Linux."""
    marks = row.get("resolution-markers", row.get("marker", row.get("markers", ())))
    several = [marks] if isinstance(marks, str) else marks if isinstance(marks, list) else ()
    if several and not any(map(holds, several)):
        return None
    name, source = str(row["name"]), row.get("source", row.get("vcs"))
    git = source.get("git", source.get("url")) if isinstance(source, dict) else None
    from_git = isinstance(source, dict) and ("git" in source or source.get("type") in ("git", "directory", "url"))
    if from_git or "vcs" in row:
        package = entries.package_name(name)
        return Entry(name=package, why=entries.unknown_version(package, str(git or "a repository")))
    version = row.get("version")
    return entries.exact(name, version) if isinstance(version, str) else None


def holds(marker: object) -> bool:
    """Evaluate a marker for Linux; one that is malformed excludes nothing."""
    try:
        return entries.applies(Marker(str(marker)), "")
    except InvalidMarker:
        return True


def of_project(text: str, path: Path) -> Listing:
    """Read the dependencies of a ``pyproject.toml``; those of extras and groups count for packages not named otherwise.

    Raises:
        UserError: it is not valid TOML.
    """
    document = toml(text, path)
    project, poetry = table(document, "project"), table(table(document, "tool"), "poetry")
    required = [
        *from_lines(project.get("dependencies")),
        *from_poetry(table(poetry, "dependencies")),
    ]
    groups = (
        *table(project, "optional-dependencies").values(),
        *table(document, "dependency-groups").values(),
    )
    of_groups = [each for group in groups for each in from_lines(group)]
    of_groups += [
        each
        for group in table(poetry, "group").values()
        if isinstance(group, dict)
        for each in from_poetry(table(group, "dependencies"))
    ]
    return Listing(kind="project", entries=(*required, *(replace(each, optional=True) for each in of_groups)))


def table(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def from_lines(lines: object) -> Iterator[Entry]:
    several = lines if isinstance(lines, list) else ()
    found = (entries.from_requirement(each) for each in several if isinstance(each, str))
    yield from (each for each in found if each is not None)


def from_poetry(rows: Mapping[str, Any]) -> Iterator[Entry]:
    """Read Poetry's own table, where a bare version is exact, and ``^`` and ``~`` are ranges."""
    for name, row in rows.items():
        package = entries.package_name(name)
        version = row.get("version", "") if isinstance(row, dict) else row
        place = (
            next((row[key] for key in ("git", "url", "path") if key in row), None) if isinstance(row, dict) else None
        )
        if place is not None:
            yield entries.from_wheel(str(place)) or Entry(
                name=package, why=entries.unknown_version(package, str(place))
            )
        elif isinstance(version, str):
            pin = re.fullmatch(r"\s*(?:==)?\s*(\d[\w.+!]*)\s*", version)
            yield entries.exact(name, pin[1]) if pin else Entry(name=package, why=f"not pinned: {package} {version}")


def of_conda_file(text: str, path: Path) -> Listing:
    """Read an ``environment.yml``.

    Raises:
        UserError: it is not valid YAML, or lists no dependencies.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        document = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, RecursionError, ValueError) as error:
        raise UserError(f"{path}: not valid YAML; give an environment.yml of conda") from error
    rows = document.get("dependencies") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise UserError(f"{path}: lists no dependencies; give a file of the job with --config")
    own = [each for each in rows if isinstance(each, str)]
    lines = [line for each in rows if isinstance(each, dict) for line in each.get("pip") or ()]
    of_pip = of_requirements("\n".join(map(str, lines)), path)
    python = next((match[1] for each in own if (match := PYTHON.match(each))), "")
    found = (*filter(None, map(entries.from_conda, own)), *of_pip.entries)
    return Listing(kind="conda", entries=found, whole=is_whole(found), python=python, build=of_pip.build)


# By a line that no requirements file has.
CONTENTS: Final[Mapping[re.Pattern[str], Callable[[str, Path], Listing]]] = {
    re.compile(r"^\[\[packages?\]\]", re.MULTILINE): of_lock,
    re.compile(r"^\[(project|tool\.poetry\S*|build-system)\]", re.MULTILINE): of_project,
    re.compile(r"^dependencies:", re.MULTILINE): of_conda_file,
}
