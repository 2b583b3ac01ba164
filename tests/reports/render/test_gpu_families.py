"""The section on families of failures on GPUs: red cells with the family's error, and cells green with a fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.known import known_problems
from matrix.known.known_problems import Cells, Problem
from reports.answers import knowledge
from reports.answers.devices import families, own_locks
from reports.render import gpu_families
from reports.render.gpu_families import NOT_MEASURED, which
from reports.results.grid import Grid, grid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matrix.run.outcome import Outcome, RunRecord, SetRecord

    Build = Callable[[Mapping[tuple[str, str], str]], Grid]

OLD, NEW = "2024-04", "2026-11"
PROBLEM = Problem(
    id="a",
    title="Two dtypes",
    family=True,
    red=(
        Cells(case="bare", sets=(NEW,), shows="two dtypes"),
        Cells(case="bare", sets=(OLD,), shows="no storage"),
        Cells(case="other", sets=(NEW,), shows="two devices"),
    ),
    green=(
        Cells(case="cast", sets=(NEW,), because="one dtype", neighbour_of=("bare",)),
        Cells(case="moved", sets=(NEW,), because="one device", neighbour_of=("other",)),
    ),
)


@pytest.fixture
def build(
    build_run: Callable[..., RunRecord],
    build_set: Callable[..., SetRecord],
    build_outcome: Callable[..., Outcome],
) -> Build:
    """``build({(case, set): "fail the reason"})``."""

    def build_grid(cells: Mapping[tuple[str, str], str]) -> Grid:
        outcomes = []
        for (case, key), words in cells.items():
            verdict, _, reason = words.partition(" ")
            outcomes.append(build_outcome(case, key, verdict, reason=reason, hardware="cuda: test"))
        return grid(build_run(), (build_set(OLD), build_set(NEW)), outcomes)

    return build_grid


def only(found: tuple[families.FamilyOnGpus, ...]) -> families.FamilyOnGpus:
    (family,) = found
    return family


def test_only_cells_with_the_error_of_the_family_count_as_red(build: Build) -> None:
    measured = build({("bare", OLD): "fail out of memory", ("bare", NEW): "fail two dtypes"})
    bare = only(families.on_gpus(measured, [PROBLEM])).red[0]
    assert (bare.case, bare.measured, bare.as_said) == ("bare", (OLD, NEW), (NEW,))


def test_a_case_with_an_error_of_its_own_on_each_set_is_one_row(build: Build) -> None:
    measured = build({("bare", OLD): "fail no storage", ("bare", NEW): "fail two dtypes"})
    found = only(families.on_gpus(measured, [PROBLEM]))
    assert [(each.case, each.as_said) for each in found.red] == [("bare", (OLD, NEW)), ("other", ())]


def test_a_skipped_cell_is_not_measured(build: Build) -> None:
    cast = only(families.on_gpus(build({("cast", OLD): "skip no such option", ("cast", NEW): "pass"}), [PROBLEM])).green
    assert (cast[0].measured, cast[0].as_said) == ((NEW,), (NEW,))


@pytest.mark.parametrize(
    ("cells", "both"),
    [
        ({("bare", NEW): "fail two dtypes", ("cast", NEW): "pass"}, (NEW,)),
        ({("bare", NEW): "fail two dtypes", ("cast", NEW): "fail two dtypes"}, ()),
        ({("bare", NEW): "fail two dtypes", ("cast", OLD): "pass"}, ()),
        ({("bare", NEW): "fail two dtypes", ("moved", NEW): "pass"}, ()),  # compared with another red case
        ({("bare", NEW): "pass", ("cast", NEW): "pass"}, ()),
    ],
)
def test_red_and_green_are_of_one_set_and_compared_with_each_other(
    cells: dict[tuple[str, str], str], both: tuple[str, ...], build: Build
) -> None:
    assert only(families.on_gpus(build(cells), [PROBLEM])).both == both


def test_rows_that_are_no_family_are_left_out(build: Build) -> None:
    assert families.on_gpus(build({}), [PROBLEM.model_copy(update={"family": False})]) == ()


def test_what_no_gpu_measured_is_named(build: Build) -> None:
    drawn = gpu_families.section(build({("train-full-ddp-fp32", NEW): "pass"}))
    rows = [each for each in known_problems.load() if each.family]
    cases = sum(len({cells.case for cells in each.red}) + len(each.green) for each in rows)
    assert drawn.count(NOT_MEASURED) == cases > 0
    assert drawn.count("Red, and green with a fix, on no set.") == len(rows)
    assert f"{len(rows)} families" in drawn
    assert "0 red with the error" in drawn
    assert "Versions of these sets" not in drawn


def test_the_published_section_has_each_family_and_the_versions_of_its_sets() -> None:
    everywhere = own_locks.whole_grid(knowledge.PUBLISHED)
    drawn = gpu_families.section(everywhere)
    for each in families.on_gpus(everywhere):
        assert all(f"`{case.case}`" in drawn for case in (*each.red, *each.green))
    versions = drawn.partition("### Versions of these sets")[2]
    torch = {each.key: each.pins["torch"] for each in everywhere.sets}
    named = {key for each in families.on_gpus(everywhere) for key in each.both}
    assert named
    assert all(f"| `{key}` | {torch[key]} |" in versions for key in named)


@pytest.mark.parametrize(
    ("some", "words"),
    [
        (("a", "b", "c"), "all sets"),
        (("a", "c"), "all sets but `b`"),
        (("b",), "`b`"),
        ((), ""),
    ],
)
def test_sets_are_named_by_the_shorter_list(some: tuple[str, ...], words: str) -> None:
    assert which(some, ("a", "b", "c")) == words
