"""A series of measurements in one environment: what was imported in it, and which combinations to import next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NoReturn

from matrix.api_map.measured import combinations, evaluation, import_results, listing, measure
from matrix.api_map.measured.plan import Planner, open_pairs
from matrix.api_map.reading.index import PackageIndex
from matrix.errors import UserError
from matrix.keys import without_local

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cases.imports.wire import Combination
    from matrix.api_map.measured.combinations import PlannedCombination
    from matrix.api_map.measured.import_results import MeasuredImports
    from matrix.api_map.query import ApiMap

TRL_VARIANTS: Final = 5  # further releases of trl with each combination


class LeftOut(Enum):
    """The measurements that leave a pair out of new combinations."""

    OF_ENVIRONMENT = "environment"  # the same Python and the same torch
    OF_PYTHON = "python"  # the same Python and any torch
    OF_TORCH = "torch"  # the same torch and any Python
    OF_ANY = "any"

    def __bool__(self) -> NoReturn:
        raise TypeError("compare a LeftOut by name")


@dataclass(frozen=True, kw_only=True)
class Series:
    """Measurements in one environment, as ``in_environment`` makes it.

    ``version`` and ``torch`` are those of its Python and its torch; ``out`` has unpacked wheels, lists and results, and
    libraries in ``extra`` take precedence over those of the environment.
    """

    python: Path
    version: str
    torch: str
    out: Path
    extra: Path | None

    @classmethod
    def in_environment(cls, python: Path, out: Path, extra: Path | None) -> Series:
        """Return the series of an environment's interpreter.

        Raises:
            UserError: it cannot be started, or has no torch.
        """
        version, torch = measure.environment_versions(python)
        return cls(python=python, version=version, torch=torch, out=out, extra=extra)

    @property
    def results(self) -> Path:
        return self.out / f"{self.python.absolute().parents[1].name}.jsonl"

    @property
    def list_file(self) -> Path:
        return self.results.with_suffix(".combinations")

    @cached_property
    def done(self) -> tuple[MeasuredImports, ...]:
        """What earlier calls imported."""
        now = datetime.now(tz=UTC)
        return tuple(import_results.measured_imports(each, measured=now) for each in measure.resumed(self.results))

    @cached_property
    def wheels(self) -> measure.UnpackedWheels:
        folder = self.out / "wheels" / f"python{self.version}"
        return measure.UnpackedWheels(folder, PackageIndex(python=self.version))

    def again(self, api: ApiMap, file: Path, count: int) -> list[Combination]:
        """Unpack combinations of a file of results, mispredicted ones first."""
        wrong = partial(evaluation.is_mispredicted, api)
        plan = combinations.again(import_results.of_file(file), self.versions_done, first=wrong)
        return measure.unpacked(plan[:count], self.wheels)

    def for_open_pairs(
        self, api: ApiMap, count: int, *, partner: str, bases: str, left_out: LeftOut = LeftOut.OF_ENVIRONMENT
    ) -> list[Combination]:
        """Unpack combinations for pairs that were not measured yet.

        Args:
            api: the map.
            count: the most combinations.
            left_out: which measurements of a pair leave it out; those in ``out`` always do.
            partner: package whose pairs to measure; all if empty.
            bases: specifier of releases of transformers; all if empty.

        Raises:
            UserError: the package has no pairs, ``bases`` is no specifier, or a wheel cannot be read.
        """
        partners = combinations.chosen_partners(partner)
        stored = [each for each in import_results.load() if self.leaves_out(each, left_out)]
        planner = Planner(
            api,
            combinations.of_bases(open_pairs(api, [*self.done, *stored]), bases),
            has_wheel=self.wheels.has,
            newest=combinations.always_newest(self.torch),
            libraries=measure.environment_libraries(self.python, self.extra),
        )
        plan = (each for each in planner.planned(partners, variants=TRL_VARIANTS) if self.is_new(each))
        return measure.unpacked(islice(plan, count), self.wheels)

    def leaves_out(self, result: MeasuredImports, left_out: LeftOut) -> bool:
        """Tell if a stored measurement leaves its pairs out."""
        match left_out:
            case LeftOut.OF_ENVIRONMENT:
                return result.is_from(python=self.version, torch=self.torch)
            case LeftOut.OF_PYTHON:
                return result.python == self.version
            case LeftOut.OF_TORCH:
                return without_local(result.torch) == self.torch
            case LeftOut.OF_ANY:
                return True

    def listed(self) -> list[Combination]:
        """Return what is left to import of the list that an earlier call wrote."""
        return list(listing.without(listing.read(self.list_file), self.versions_done))

    @cached_property
    def versions_done(self) -> list[Mapping[str, str]]:
        return [each.versions for each in self.done]

    def is_new(self, combination: PlannedCombination) -> bool:
        return combination.versions not in self.versions_done

    def measured(self, found: list[Combination], *, minutes: float, processes: int) -> tuple[int, Path]:
        """Import combinations until some minutes are over; return how many are new, and the file of all results.

        Raises:
            UserError: there are none.
        """
        before = len(self.done)
        results = measure.import_combinations(
            found, python=self.python, results=self.results, minutes=minutes, extra=self.extra, processes=processes
        )
        if len(results) == before:
            raise UserError("no combination was imported: none is left to import, or --minutes ended before the first")
        now = datetime.now(tz=UTC)
        path = self.out / f"python{self.version}-torch{self.torch}-{now:%Y-%m-%d}.json"
        import_results.save(results, path, measured=now, libraries=measure.libraries_beside(self.results))
        return len(results) - before, path
