"""Recommends the version set to pin: the newest on which every query is green, with the cells that show it.

A set fulfils a query if it is green for it, with or without a setting (see ``status``). A query is about one flow,
training by default; a user who trains and merges gives two queries. Unknown, skipped, blocked and flaky cells fulfil
nothing.

A newer set comes first even if it needs a setting that an older one does not. The answer then names the setting, the
plain cells that are red without it, and the newest set that needs no setting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

from matrix.errors import UserError
from reports.answers.judgement.known_errors import MeasuredErrors
from reports.answers.judgement.nearest_sets import public
from reports.answers.pairs.kept_versions import combination, kept_versions
from reports.answers.support.candidates import Candidate, candidates, unmet_json
from reports.answers.support.query import Query, check, parse
from reports.answers.support.requirements import has
from reports.answers.support.status import CPU, NOT_RUN, SupportIndex, SupportStatus
from reports.answers.support.whole_job import implied

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from packaging.requirements import Requirement

    from matrix.api_map.query import ApiMap
    from reports.answers.pairs.kept_versions import KeptVersions
    from reports.results.grid import Grid

SHOWN: Final = 3  # other sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """Something to give up, and the newest set that then fulfils the rest; ``key`` is empty if none does."""

    gives_up: str
    key: str
    instead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The newest set that fulfils all queries (``best``), and the next ones (``others``).

    ``without_settings`` is the newest set that needs no setting. If no set fulfils all queries, ``nearest`` is the
    newest of those that fulfil most, ``obstacles`` are the sets that ran some of the unfulfilled queries, and ``hints``
    list what to give up. ``around`` are the nearest sets before and after the given versions that fulfil all queries,
    if both exist. ``kept`` is what the map of the API says of the given versions with green sets, if no set with them
    is green. ``measured`` is False if nothing was measured on the device; ``on_cpu`` then holds the answer for a CPU,
    which is no answer for a GPU.
    """

    queries: tuple[Query, ...]
    have: tuple[Requirement, ...]
    device: str
    considered: int
    measured: bool = True
    best: Candidate | None = None
    others: tuple[Candidate, ...] = ()
    without_settings: Candidate | None = None
    nearest: Candidate | None = None
    obstacles: tuple[Candidate, ...] = ()
    hints: tuple[Hint, ...] = ()
    around: tuple[Candidate, ...] = ()
    kept: KeptVersions | None = None
    unmeasured: tuple[Query, ...] = ()
    on_cpu: Recommendation | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "device": self.device,
            "measured": self.measured,
            "needs": [{"need": each.text, "terms": each.terms} for each in self.queries],
            "have": [str(each) for each in self.have],
            "best": self.best and self.best.as_json(),
            "others": [each.as_json() for each in self.others],
            "as_it_is": self.without_settings and self.without_settings.as_json(),
            "nearest": self.nearest and self.nearest.as_json(),
            "in_the_way": [each for candidate in self.obstacles for each in unmet_json(candidate)],
            "hints": [{"gives_up": each.gives_up, "set": each.key} for each in self.hints],
            "around": [each.as_json() for each in self.around],
            "kept": self.kept and self.kept.as_json(),
            "unmeasured": [each.terms for each in self.unmeasured],
            "on_cpu": self.on_cpu and self.on_cpu.as_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualJob:
    """A common job with its queries."""

    job: str
    needs: tuple[str, ...]


USUAL: Final = (
    UsualJob(job="QLoRA on one GPU", needs=("qlora",)),
    UsualJob(job="QLoRA + FSDP2", needs=("qlora fsdp2",)),
    UsualJob(job="DoRA + FSDP", needs=("dora fsdp",)),
    UsualJob(job="8-bit + DDP", needs=("8-bit ddp",)),
    UsualJob(job="full fine-tuning + FSDP2", needs=("full fsdp2",)),
    UsualJob(job="adapters merged for serving", needs=("lora merge", "lora merge_reload")),
)


def recommended(index: SupportIndex, *, device: str) -> tuple[tuple[UsualJob, Recommendation], ...]:
    """Return a recommendation for each usual job."""
    return tuple((each, recommend(index, tuple(map(parse, each.needs)), device=device)) for each in USUAL)


def recommend(
    index: SupportIndex,
    queries: Sequence[Query],
    have: Sequence[Requirement] = (),
    *,
    device: str,
    api: ApiMap | None = None,
) -> Recommendation:
    """Return the newest set that fulfils the queries and has the packages; ``api`` narrows what it may advise.

    Raises:
        UserError: no legal case can match a query.
    """
    everything = candidates(index, queries)
    fitting = [each for each in everything if has(each.column.pins, have)]
    good = [each for each in fitting if each.fulfils]
    recommendation = Recommendation(queries=tuple(queries), have=tuple(have), device=device, considered=len(fitting))
    if not good:
        unmeasured = tuple(query for query in queries if not index.ways(query))
        nearest = max(fitting, key=lambda each: sum(query_status.good for query_status in each.statuses), default=None)
        partly = (
            nearest if nearest is not None and any(query_status.good for query_status in nearest.statuses) else None
        )
        kept = narrowed(everything, have, api) if api is not None and have else None
        return replace(
            recommendation,
            nearest=partly,
            obstacles=tuple(each for each in fitting if tried(each)) if len(unmeasured) < len(queries) else (),
            hints=hints(index, queries, have, everything),
            around=() if any(map(tried, fitting)) else importable(around(everything, have), kept, api),
            kept=kept,
            unmeasured=unmeasured,
        )
    plain = next((each for each in good if each.without_settings), None)
    return replace(
        recommendation,
        best=good[0],
        others=tuple(good[1 : SHOWN + 1]),
        without_settings=None if plain is good[0] else plain,
    )


def narrowed(everything: Iterable[Candidate], have: Sequence[Requirement], api: ApiMap) -> KeptVersions | None:
    """Return what the map says of the given versions with the green sets."""
    return kept_versions(have, {each.key: each.column.pins for each in everything if each.fulfils}, api)


def importable(sets: tuple[Candidate, ...], kept: KeptVersions | None, api: ApiMap | None) -> tuple[Candidate, ...]:
    """Return sets if all of them import with the given versions, as far as the map knows; else none."""
    if kept is None or api is None:
        return sets
    works = not kept.broken and all(
        combination(each.key, {**each.column.pins, **kept.versions}, api).works for each in sets
    )
    return sets if works else ()


def around(everything: Iterable[Candidate], have: Sequence[Requirement]) -> tuple[Candidate, ...]:
    """Return the nearest set before and the nearest after some exact versions, both good; none without the two.

    Args:
        everything: the candidates, the newest first.
        have: what the user has; one that is a range has no sets around it.
    """
    wanted = {each.name: spec for each in have for spec in each.specifier if spec.operator == "=="}
    if not wanted or len(wanted) < len(have):
        return ()
    versions = {name: Version(spec.version.removesuffix(".*")) for name, spec in wanted.items()}
    good = [each for each in everything if each.fulfils]
    before = [each for each in good if all(public(each.column.pins[name]) < v for name, v in versions.items())]
    after = [each for each in good if all(public(each.column.pins[name]) > v for name, v in versions.items())]
    return (before[0], after[-1]) if before and after else ()


def tried(candidate: Candidate) -> bool:
    """Tell if a run measured a query that the set does not fulfil."""
    return candidate.is_red_later or any(
        query_status.status is SupportStatus.RED or query_status.reason != NOT_RUN for query_status in candidate.unmet
    )


def recommend_on(
    device: str,
    grids: Mapping[str, Grid],
    queries: Sequence[Query],
    have: Sequence[Requirement] = (),
    api: ApiMap | None = None,
) -> Recommendation:
    """Return a recommendation for a device, with the CPU's in ``on_cpu`` if the device has none.

    Raises:
        UserError: no legal case can match a query.
    """
    known = MeasuredErrors(grids[CPU]) if CPU in grids else None
    if device in grids:
        recommendation = recommend(
            SupportIndex(grids[device], known=known, device=device), queries, have, device=device, api=api
        )
    else:
        for query in queries:
            check(query)
        recommendation = Recommendation(
            queries=tuple(queries), have=tuple(have), device=device, considered=0, measured=False
        )
    if recommendation.best is not None or device == CPU or CPU not in grids:
        return recommendation
    on_cpu = recommend(SupportIndex(grids[CPU], known=known), queries, have, device=CPU, api=api)
    return replace(recommendation, on_cpu=on_cpu)


def hints(
    index: SupportIndex, queries: Sequence[Query], have: Sequence[Requirement], everything: Sequence[Candidate]
) -> tuple[Hint, ...]:
    """Return what helps if the user gives up one thing: the installed versions, a query, or one option of a query."""
    suggestions: list[Hint] = []
    alone = [
        Query(text=each.text, named={**each.named, "flow": ("train",)}) if implied(each) else each for each in queries
    ]
    if any(each.is_red_later for each in everything):
        key = newest_good(candidates(index, alone), have)
        suggestions.append(Hint(gives_up="saving and resuming", key=key, instead=", with flow=train"))
    if have:
        suggestions.append(Hint(gives_up=" ".join(f"--have {each}" for each in have), key=newest_good(everything, ())))
    if len(queries) > 1:
        for number, query in enumerate(queries):
            rest = [*queries[:number], *queries[number + 1 :]]
            key = newest_good(candidates(index, rest), have)
            suggestions.append(Hint(gives_up=f"the query {query.text}", key=key))
    for number, query in enumerate(queries):
        for name in query.named:
            less = [*queries[:number], query.without(name), *queries[number + 1 :]]
            found = candidates(index, less) if possible(index, query.without(name)) else ()
            key = newest_good(found, have)
            instead = f", with {query.without(name).term(name)}"
            suggestions.append(Hint(gives_up=query.term(name), key=key, instead=instead))
    return tuple(suggestions)


def possible(index: SupportIndex, query: Query) -> bool:
    """Tell if any case can match: without ``strategy=fsdp1``, for example, ``auto_wrap_policy`` has no effect."""
    try:
        index.ways(query)
    except UserError:
        return False
    return True


def newest_good(candidates: Iterable[Candidate], have: Sequence[Requirement]) -> str:
    return next((each.key for each in candidates if each.fulfils and has(each.column.pins, have)), "")
