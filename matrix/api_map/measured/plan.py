"""Plans the import matrix: combinations so that each covers as many open pairs of releases as possible.

A pair is open if it was neither imported nor failed on each other. A combination is made for one open pair; the other
packages are releases whose pair with the same transformers is open too, if the requirements of all admit them.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from matrix.api_map.measured.combinations import BASE, FILLED, PARTNERS, PlannedCombination, pairs, release
from matrix.api_map.measured.compatibility import Compatibility, admits, bounds, places
from matrix.api_map.measured.pair_evidence import pair_evidence
from matrix.api_map.pairs import measurements, minor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import date

    from matrix.api_map.measured.combinations import Pair
    from matrix.api_map.measured.import_results import MeasuredImports
    from matrix.api_map.query import ApiMap

# bitsandbytes takes nothing from transformers, which takes parts of bitsandbytes.
PROVIDERS: Final = frozenset({"bitsandbytes"})


def open_pairs(api: ApiMap, results: Iterable[MeasuredImports]) -> set[Pair]:
    """Return the pairs of minor releases that no combination imported, and of which none failed on the other."""
    evidence = pair_evidence(results)
    known = {
        name: measurements(evidence.get((BASE, name) if name in PROVIDERS else (name, BASE), {})) for name in PARTNERS
    }
    return {
        (base, name, version)
        for base, name, version in pairs(api)
        if ((minor(base), minor(version)) if name in PROVIDERS else (minor(version), minor(base))) not in known[name]
    }


class Planner:
    """Makes combinations for open pairs.

    Args:
        api: the map.
        left: the open pairs; those that a combination has are removed.
        has_wheel: tells if a release can be installed with the environment's interpreter.
        newest: packages of which a combination has the newest release unless it is made for another one.
        libraries: versions of the environment's modules. A package of which the map has no release that a transformers
            admits is left to the environment, if its version is admitted.
    """

    def __init__(
        self,
        api: ApiMap,
        left: Collection[Pair],
        *,
        has_wheel: Callable[[str, str], bool] = lambda _package, _version: True,
        newest: Collection[str] = (),
        libraries: Mapping[str, str] | None = None,
    ) -> None:
        self.api = api
        self.left = set(left)
        self.newest = newest
        self.libraries = libraries or {}
        self.compatibility = Compatibility(api, has_wheel)

    def planned(self, partners: Collection[str], *, variants: int) -> Iterator[PlannedCombination]:
        """Yield combinations until each open pair of some partners that requirements admit is in one.

        ``variants`` is the most releases of trl in a combination.
        """
        for pair in sorted(pairs(self.api), key=lambda each: PARTNERS.index(each[1])):
            if pair in self.left and pair[1] in partners:
                self.left.discard(pair)
                found = self.combination(pair, variants)
                if found is not None:
                    self.left -= found.pairs
                    yield found

    def combination(self, pair: Pair, variants: int) -> PlannedCombination | None:
        """Return a combination for a pair; None if no installation has it."""
        base, partner, version = pair
        outside = self.compatibility.unmapped(BASE, base)
        names = self.in_order([each for each in FILLED if each not in outside], base)
        chosen = {BASE: base, partner: version}
        if not all(self.compatibility.possible(chosen, names).values()) or not self.environment_meets(base, outside):
            return None
        day = max(self.uploaded(*each) for each in chosen.items())
        for name in (each for each in names if each not in chosen):
            found = self.choice(name, chosen, names, day)
            if not found:
                return None
            chosen[name] = found
        rest = {name: each for name, each in chosen.items() if name != "trl"}
        further = self.open_releases("trl", base, self.compatibility.possible(rest, names)["trl"])
        random.Random(repr(pair)).shuffle(further)  # noqa: S311 - a sample, no secret
        trl = dict.fromkeys([chosen["trl"], *further])
        return PlannedCombination(versions=chosen, variants=tuple(trl)[:variants])

    def in_order(self, names: Sequence[str], base: str) -> list[str]:
        """Return packages in the order in which to choose their releases.

        Partners that have an open pair come first: what is chosen for the others bounds them.
        """
        open_partners = {name for of_base, name, _ in self.left if of_base == base}
        return sorted(names, key=lambda name: name in PARTNERS and name not in open_partners)

    def environment_meets(self, base: str, outside: Collection[str]) -> bool:
        """Tell if the environment has what a transformers needs from before the map."""
        wanted = bounds(release(self.api, BASE, base))
        return all(
            name in self.libraries and admits(bound, self.libraries[name]) for name in outside for bound in wanted[name]
        )

    def choice(self, name: str, chosen: Mapping[str, str], names: Collection[str], day: date) -> str:
        """Return the first preferred release of a package with which an installation is possible; empty if none is."""
        possible = self.compatibility.possible(chosen, names)[name]
        for place in self.preferred(name, chosen[BASE], possible, day):
            version = self.api.releases[name][place].version
            if all(self.compatibility.possible({**chosen, name: version}, names).values()):
                return version
        return ""

    def preferred(self, name: str, base: str, possible: int, day: date) -> list[int]:
        """Return the places of a package's releases in the order in which to try them.

        First those whose pair is open, those of the same time first, so that few break each other; then the newest
        until the day, and those after it.
        """
        releases = self.api.releases[name]
        every = list(places(possible))
        if name in self.newest:
            return every[::-1]
        wanted = [each for each in every if (base, name, releases[each].version) in self.left]
        wanted.sort(key=lambda place: abs(releases[place].uploaded - day))
        earlier = [each for each in every if releases[each].uploaded <= day]
        return [*wanted, *earlier[::-1], *(each for each in every if releases[each].uploaded > day)]

    def open_releases(self, name: str, base: str, possible: int) -> list[str]:
        versions = [self.api.releases[name][place].version for place in places(possible)]
        return [each for each in versions if (base, name, each) in self.left]

    def uploaded(self, name: str, version: str) -> date:
        return release(self.api, name, version).uploaded
