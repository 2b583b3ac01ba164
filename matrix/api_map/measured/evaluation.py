"""Compares predicted imports with measured ones: precision, recall, and each disagreement."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cases.imports.steps import IMPORTS
from matrix.api_map.packages import PACKAGES
from matrix.api_map.predictions import predict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matrix.api_map.imports import Miss
    from matrix.api_map.measured.import_results import MeasuredImports
    from matrix.api_map.query import ApiMap


NAMED: Final = re.compile(
    r"(?:from|No module named|module) ['\"]?(?P<name>\w+)"
    r"|^\w+: (?P<required>[\w-]+)[<>=!]|(?P<member>object|unexpected keyword)"
)


def concerns_map(error: str) -> bool:
    """Tell if an error names a package of the map, or a member of a class; others come from other libraries."""
    found = NAMED.search(error)
    if found is None:
        return False
    name = found["name"] or found["required"] or ""
    return bool(found["member"]) or name.replace("-", "_") in PACKAGES


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """Imports of a package on which prediction and measurement differ, by the error or the predicted name."""

    package: str
    measured: str
    predicted: str
    count: int
    example: str


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Counts of imports of packages: broken in both, only predicted, only measured, and whole in both.

    ``outside`` are those of the only measured ones whose error names no package of the map.
    """

    broken: int
    only_predicted: int
    only_measured: int
    whole: int
    outside: int
    disagreements: tuple[Disagreement, ...]

    @property
    def precision(self) -> float | None:
        predicted = self.broken + self.only_predicted
        return self.broken / predicted if predicted else None

    @property
    def recall(self) -> float | None:
        measured = self.broken + self.only_measured
        return self.broken / measured if measured else None

    @property
    def recall_of_map(self) -> float | None:
        """The recall among failures that name a package of the map."""
        measured = self.broken + self.only_measured - self.outside
        return self.broken / measured if measured else None


def compared(api: ApiMap, result: MeasuredImports) -> Iterator[tuple[str, Sequence[Miss], str]]:
    """Yield each measured import of a package with the names that are predicted to be missing, and the error."""
    versions = {**result.versions, "torch": result.torch}
    predicted = predict(api, versions, result.libraries or None, later=False).at_import
    for package in IMPORTS:
        error = result.errors.get(f"import {package}")
        if error is not None:
            yield package, predicted.get(package, ()), error


def is_mispredicted(api: ApiMap, result: MeasuredImports) -> bool:
    """Tell if an import of a package was predicted to fail but worked, or failed unpredicted."""
    return any(bool(misses) != bool(error) for _, misses, error in compared(api, result))


def evaluate(api: ApiMap, results: Iterable[MeasuredImports]) -> Evaluation:
    """Compare each measured import of a package with its prediction."""
    outside = 0
    totals: Counter[tuple[bool, bool]] = Counter()
    apart: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], str] = {}
    for each in results:
        for package, misses, error in compared(api, each):
            outside += bool(error) and not concerns_map(error) and not misses
            totals[bool(misses), bool(error)] += 1
            if bool(misses) != bool(error):
                key = package, error, misses[0].target if misses else ""
                apart[key] += 1
                examples.setdefault(key, " ".join(f"{name}=={version}" for name, version in each.versions.items()))
    return Evaluation(
        broken=totals[True, True],
        only_predicted=totals[True, False],
        only_measured=totals[False, True],
        whole=totals[False, False],
        outside=outside,
        disagreements=tuple(
            Disagreement(package=key[0], measured=key[1], predicted=key[2], count=count, example=examples[key])
            for key, count in apart.most_common()
        ),
    )
