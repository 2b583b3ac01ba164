"""Finds in an environment the names that an installed package takes from another and that are not there."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from matrix.api_map.holding import CONDITION
from matrix.api_map.predictions import predict
from matrix.api_map.reading.unbound import UNBOUND
from matrix.api_map.reading.uses import CHECKED
from reports.answers.checkup.problems import CheckupProblem
from reports.answers.judgement.judge import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.api_map.imports import Miss
    from matrix.api_map.predictions import Predicted
    from matrix.api_map.query import ApiMap
    from reports.answers.checkup.doctor import Checkup

FEWEST: Final = 2  # packages, of which one may use the other
MOST_LATER: Final = 8


@dataclass(frozen=True, kw_only=True)
class BrokenImport:
    """Packages from which an import fails, and the name that is missing first."""

    packages: tuple[str, ...]
    missing: Miss

    @property
    def pair(self) -> frozenset[str]:
        """The package that uses the name, and the one that lacks it."""
        return packages_of(self.missing)

    def sentence(self, versions: Mapping[str, str]) -> str:
        start = f"importing from {' and '.join(self.packages)} fails"
        if self.missing.kind == CHECKED:
            return f"{start}: transformers requires {self.missing.target} when it is imported"
        if self.missing.kind == UNBOUND:
            return f"{start}: {unbound_sentence(self.missing, versions)}"
        provider = self.missing.target.partition(".")[0].partition("(")[0]
        user = self.missing.module.partition(".")[0]
        by = f", which {self.missing.module} of {user} {versions.get(user, '')} uses" if user else ""
        return f"{start}: {provider} {versions.get(provider, '')} has no `{self.missing.target}`{by}"


@dataclass(frozen=True, kw_only=True)
class EnvironmentNames:
    """What the map says of an environment: imports that fail, and functions that use what is not there."""

    broken: tuple[BrokenImport, ...]
    later: tuple[Miss, ...]

    def added_to(self, checkup: Checkup) -> Checkup:
        """Return a checkup with these problems."""
        versions = checkup.installed.versions
        problems = tuple(problem(each, versions) for each in self.broken)
        sentences = tuple(dict.fromkeys(later_sentence(each, versions) for each in self.later))
        status = JobStatus.RED if problems else checkup.status
        return replace(checkup, problems=(*problems, *checkup.problems), status=status, used_later=sentences)


def packages_of(miss: Miss) -> frozenset[str]:
    """Return the package that uses a name, and the one that lacks it, or without which the name is not bound."""
    if miss.kind == UNBOUND:
        return frozenset({miss.module.partition(".")[0], *asked_packages(miss)})
    return frozenset({miss.module.partition(".")[0], re.split(r"\W", miss.target)[0]})


def problem(broken: BrokenImport, versions: Mapping[str, str]) -> CheckupProblem:
    return CheckupProblem(what=broken.sentence(versions), why="read from the releases, not run")


def asked_packages(miss: Miss) -> tuple[str, ...]:
    """Return the packages that the conditions of a miss ask for."""
    found = (CONDITION.fullmatch(each.removeprefix("!")) for each in miss.conditions.split(";"))
    return tuple(dict.fromkeys(each["name"] for each in found if each is not None))


def unbound_sentence(miss: Miss, versions: Mapping[str, str]) -> str:
    """Return a sentence about a name that a module has only if a check holds."""
    user = miss.module.partition(".")[0]
    asked = " and ".join(
        f"with {each} {versions[each]}" if each in versions else f"without {each}" for each in asked_packages(miss)
    )
    name = miss.target.rpartition(".")[2]
    return f"{miss.module} of {user} {versions.get(user, '')} uses `{name}`, which it lacks {asked}"


def later_sentence(miss: Miss, versions: Mapping[str, str]) -> str:
    """Return a sentence about a name that only a function uses."""
    provider = miss.target.partition(".")[0].partition("(")[0]
    return f"{miss.module} uses `{miss.target}`, which {provider} {versions.get(provider, '')} does not have"


def environment_names(versions: Mapping[str, str], api: ApiMap) -> EnvironmentNames:
    """Check the versions of an environment; unknown releases are left out."""
    if sum(api.place(name, version) is not None for name, version in versions.items()) < FEWEST:
        return EnvironmentNames(broken=(), later=())
    found = predict(api, versions)
    crossing = [each for each in found.later if each.target.partition(".")[0] != each.module.partition(".")[0]]
    return EnvironmentNames(broken=tuple(broken_imports(found)), later=tuple(crossing))


def broken_imports(predicted: Predicted) -> Iterator[BrokenImport]:
    """Yield the imports that fail, by the name that is missing first."""
    by_miss: dict[Miss, list[str]] = {}
    for name, misses in predicted.at_import.items():
        for miss in misses[:1]:
            by_miss.setdefault(miss, []).append(name)
    for miss, names in by_miss.items():
        yield BrokenImport(packages=tuple(names), missing=miss)
