"""Compares predicted imports with measured ones: precision, recall, and each disagreement."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases.imports.steps import IMPORTS
from matrix.api_map.predictions import predict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from matrix.api_map.measured.import_results import MeasuredImports
    from matrix.api_map.query import ApiMap


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
    """Counts of imports of packages: broken in both, only predicted, only measured, and whole in both."""

    broken: int
    only_predicted: int
    only_measured: int
    whole: int
    disagreements: tuple[Disagreement, ...]

    @property
    def precision(self) -> float | None:
        predicted = self.broken + self.only_predicted
        return self.broken / predicted if predicted else None

    @property
    def recall(self) -> float | None:
        measured = self.broken + self.only_measured
        return self.broken / measured if measured else None


def evaluate(
    api: ApiMap, results: Iterable[MeasuredImports], *, counts: Callable[[str], bool] = lambda _: True
) -> Evaluation:
    """Compare each measured import of a package with its prediction.

    ``counts`` tells by the error if a failure belongs to the question; others are left out on both sides.
    """
    totals: Counter[tuple[bool, bool]] = Counter()
    apart: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], str] = {}
    for each in results:
        predicted = predict(api, {**each.versions, "torch": each.torch}, later=False).at_import
        for package in IMPORTS:
            error = each.errors.get(f"import {package}")
            if error is None or (error and not counts(error)):
                continue
            misses = predicted.get(package, ())
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
        disagreements=tuple(
            Disagreement(package=key[0], measured=key[1], predicted=key[2], count=count, example=examples[key])
            for key, count in apart.most_common()
        ),
    )
