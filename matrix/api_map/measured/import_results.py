"""The import matrix: measured imports of combinations of releases, compact in one file per environment."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from matrix.errors import UserError
from matrix.keys import without_local

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.imports.wire import CombinationResult, StepResult

SCHEMA: Final = 1
FOLDER: Final = Path(__file__).parents[1] / "import_results"
PATH_IN_MESSAGE: Final = re.compile(r"\s?\((?:unknown location|/[^)\s]*)\)|(?:/[\w.+-]+)+/(?=[\w.-]+)")
LONGEST: Final = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredImports:
    """One combination: what each step raised (empty if nothing), or why the process ended.

    ``libraries`` are the versions of the environment's other modules; none if they were not recorded. ``measured`` is
    when its file was written; the beginning of that day if only the day was recorded.
    """

    versions: Mapping[str, str]
    errors: Mapping[str, str]
    python: str
    torch: str
    measured: datetime
    ended: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)

    def is_from(self, *, python: str, torch: str) -> bool:
        """Tell if it was measured with these versions; builds of one version of torch, such as +cpu, are the same."""
        return (self.python, without_local(self.torch)) == (python, torch)

    def imports(self, package: str) -> bool | None:
        """Tell if a package was imported without an error; None if that was not measured."""
        error = self.errors.get(f"import {package}")
        return None if error is None else not error


def measured_imports(result: CombinationResult, *, measured: datetime) -> MeasuredImports:
    """Return a result of the process that imports combinations as it is stored, without the libraries."""
    return MeasuredImports(
        versions=result.versions,
        errors={step.step: error_text(step) for step in result.steps},
        python=result.python,
        torch=result.torch,
        measured=measured,
        ended=result.ended,
    )


def save(
    results: Sequence[CombinationResult], path: Path, *, measured: datetime, libraries: Mapping[str, str] | None = None
) -> None:
    """Write the results of one environment: the last one of each combination, and each error once."""
    results = list({tuple(sorted(each.versions.items())): each for each in results}.values())
    packages = sorted({name for each in results for name in each.versions})
    steps = list(dict.fromkeys(step.step for each in results for step in each.steps))
    errors: dict[str, int] = {"": 0}
    rows = []
    for each in sorted(results, key=lambda result: sorted(result.versions.items())):
        by_step = {step.step: errors.setdefault(error_text(step), len(errors)) for step in each.steps}
        rows.append(
            [[each.versions.get(name, "") for name in packages], [by_step.get(step, -1) for step in steps], each.ended]
        )
    document = {
        "schema": SCHEMA,
        "measured": measured.isoformat(timespec="seconds"),
        "python": results[0].python,
        "torch": results[0].torch,
        "libraries": dict(libraries or {}),
        "packages": packages,
        "steps": steps,
        "errors": list(errors),
        "rows": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    head = json.dumps({name: value for name, value in document.items() if name != "rows"}, indent=0)
    path.write_text(f'{head[:-2]},\n"rows": [\n{lines}\n]}}\n', encoding="utf-8")


def error_text(step: StepResult) -> str:
    """Return an error without the folders of the machine; empty if there was none."""
    if not step.error:
        return ""
    text = f"{step.error}: {PATH_IN_MESSAGE.sub('', step.message)}"
    place = next((each for each in reversed(step.places) if not each.startswith("cases.")), "")
    return f"{text[:LONGEST]}{f' [{place}]' if place else ''}"


def load(folder: Path = FOLDER) -> Iterator[MeasuredImports]:
    """Yield the last measurement of each combination with one Python and torch; none if there are no files.

    Raises:
        UserError: a file cannot be read, or has a newer schema.
    """
    found = [each for path in sorted(folder.glob("*.json")) for each in of_file(path)]
    last: dict[tuple[object, ...], MeasuredImports] = {}
    for each in sorted(found, key=lambda result: result.measured):
        key = *sorted(each.versions.items()), each.python, without_local(each.torch)
        last.pop(key, None)
        last[key] = each
    yield from last.values()


def of_file(path: Path) -> Iterator[MeasuredImports]:
    """Yield the combinations of a file, also those that were measured again later.

    Raises:
        UserError: the file cannot be read, has a newer schema, or has no such results.
    """
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from error
    try:
        if document["schema"] > SCHEMA:
            raise UserError(f"{path}: schema {document['schema']} is newer than {SCHEMA}; update ftmatrix")
        yield from combinations_of(document)
    except (KeyError, IndexError, TypeError, ValueError):
        raise UserError(f"{path}: no results of imports; `ftmatrix map measure` writes them") from None


def combinations_of(document: Mapping[str, Any]) -> Iterator[MeasuredImports]:
    measured = datetime.fromisoformat(document["measured"])
    measured = measured if measured.tzinfo else measured.replace(tzinfo=UTC)
    for versions, numbers, ended in document["rows"]:
        yield MeasuredImports(
            versions={name: each for name, each in zip(document["packages"], versions, strict=True) if each},
            errors={
                step: document["errors"][number]
                for step, number in zip(document["steps"], numbers, strict=True)
                if number >= 0
            },
            python=document["python"],
            torch=document["torch"],
            measured=measured,
            ended=ended,
            libraries=document.get("libraries", {}),
        )
