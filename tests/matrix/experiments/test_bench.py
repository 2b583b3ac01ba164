from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.runtime.wire import CellReport, ServerStart
from cases.space.verdict import Verdict
from matrix.experiments import bench, profile
from matrix.experiments.launchers import LAUNCHERS, Launch, OccupiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

NAMES = [f"cell-{number:02}" for number in range(40)]


def a_row(name: str, seconds: float = 0.5, verdict: str = "pass") -> CellReport:
    server = ServerStart("warm", preload_s=8.0)
    return CellReport(name, Verdict(verdict), seconds=seconds, metrics={"body_s": 0.5}, server=server)


def a_pass(*, wall_s: float, seconds: float = 0.5, names: Sequence[str] = NAMES) -> bench.Pass:
    return bench.Pass(wall_s=wall_s, rows=tuple(a_row(name, seconds) for name in names))


def a_launch(seconds: float, *, launcher: str = "torchrun", case: str = "cell-00", verdict: str = "pass") -> Launch:
    return Launch(launcher=launcher, case=case, seconds=seconds, verdict=Verdict(verdict), reason="")


class Case:
    source = ""

    def __init__(self, name: str, ranks: int = 2, flow: str = "train") -> None:
        self.id, self.ranks = name, ranks
        self.options = type("Options", (), {"flow": flow, "world_size": ranks, "state_dict_type": "full"})


class FakeContext:
    version_set = type("Set", (), {"key": "2025-09"})
    hardware, workers, device = "cpu: X x 2", 2, "cpu"
    say: Callable[[str], None]

    def __init__(self, *cases: Case) -> None:
        self.cases = {case.id: case for case in cases or [Case(name) for name in NAMES]}
        self.facts = {"os": "Linux"}

    def case(self, name: str) -> Case:
        return self.cases[name]


def summary(
    passes: Sequence[bench.Pass], launches: Sequence[Launch] = (), installs: Sequence[float] = (1.0, 3.0, 2.0)
) -> bench.BenchResult:
    return bench.summarise(FakeContext(), passes, launches, installs)  # type: ignore[arg-type]


def start_method(found: bench.BenchResult, name: str) -> bench.StartMethod:
    return next(each for each in found.ways if each.name == name)


def test_the_pass_with_the_median_wall_time_counts() -> None:
    found = summary([a_pass(wall_s=30.0), a_pass(wall_s=20.0), a_pass(wall_s=90.0)])
    assert found.harness_wall_s == 30.0


def test_the_ideal_is_one_import_and_the_bodies_shared_by_the_workers() -> None:
    found = summary([a_pass(wall_s=27.0)])
    assert (found.ideal_wall_s, found.wall_over_ideal) == (18.0, 1.5)


def test_a_launcher_has_the_median_of_its_cells_one_after_the_other() -> None:
    found = summary([a_pass(wall_s=24.0)], [a_launch(each) for each in (15.0, 30.0, 12.0)])
    assert found.harness_cells_per_minute == 100.0
    assert (start_method(found, "torchrun").median_s, start_method(found, "torchrun").cells_per_minute) == (15.0, 4.0)


def test_a_launcher_is_so_many_times_the_warm_cells_of_its_sample() -> None:
    rows = (a_row(NAMES[0], seconds=3.0), *(a_row(name) for name in NAMES[1:]))
    found = summary([bench.Pass(wall_s=24.0, rows=rows)], [a_launch(30.0)])
    assert (start_method(found, bench.WARM).median_s, start_method(found, bench.WARM_SAME).median_s) == (0.5, 3.0)
    assert start_method(found, "torchrun").times == 10.0


def test_a_cell_that_hung_in_the_median_pass_is_not_compared() -> None:
    """The launchers run a sample of the last pass, in which the cell did not hang."""
    hung = bench.Pass(wall_s=20.0, rows=(a_row("cell-00", verdict="hang"), *(a_row(name) for name in NAMES[1:])))
    found = summary([a_pass(wall_s=10.0), hung, a_pass(wall_s=30.0)], [a_launch(30.0)])
    assert [each.name for each in found.ways] == [bench.WARM, "torchrun"]


def test_a_result_lists_every_start_method() -> None:
    launches = [a_launch(9.0, launcher=launcher) for launcher in LAUNCHERS]
    names = [each.name for each in summary([a_pass(wall_s=24.0)], launches).ways]
    assert names == [bench.WARM, bench.WARM_SAME, "torchrun", "accelerate launch"]


def test_a_launched_cell_with_another_verdict_is_a_disagreement() -> None:
    found = summary([a_pass(wall_s=24.0)], [a_launch(9.0), a_launch(9.0, case="cell-01", verdict="fail")])
    assert len(found.disagreements) == 1
    assert found.disagreements[0].startswith("cell-01: the verdict is pass after a warm fork, fail under torchrun")


def test_install_time_is_a_median() -> None:
    assert summary([a_pass(wall_s=24.0)]).install_warm_cache_s == 2.0


def test_install_time_that_was_not_measured_is_none() -> None:
    assert summary([a_pass(wall_s=24.0)], installs=()).install_warm_cache_s is None


@pytest.mark.parametrize(("verdict", "counts"), [("pass", True), ("fail", True), ("skip", False), ("lost", False)])
def test_only_cells_that_ran_count(verdict: str, counts: bool) -> None:  # noqa: FBT001 - a column of the table
    assert bench.ran(a_row("a", verdict=verdict)) is counts


def compared(*cases: Case, **verdicts: str) -> tuple[str, ...]:
    rows = [a_row(case.id, verdict=verdicts.get(case.id, "pass")) for case in cases]
    return bench.comparable(FakeContext(*cases), rows)  # type: ignore[arg-type]


def test_cells_of_two_ranks_are_compared() -> None:
    assert compared(Case("one", 1), Case("two"), Case("four", 4)) == ("two",)


def test_cells_of_other_sizes_are_compared_if_none_has_two_ranks() -> None:
    assert compared(Case("one", 1), Case("four", 4)) == ("one", "four")


def test_cells_that_hang_or_start_their_own_ranks_are_not_compared() -> None:
    assert compared(Case("hangs"), Case("script", flow="script"), Case("two"), hangs="hang") == ("two",)


def test_the_profile_covers_cells_whose_ranks_are_forked_once() -> None:
    one = bench.Pass(wall_s=24.0, rows=(a_row("trains", 1.0), a_row("saves", 9.0)))
    ctx = FakeContext(Case("trains"), Case("saves", flow="save_reload"))
    found = bench.summarise(ctx, [one], [], []).profile  # type: ignore[arg-type]
    assert (found.cells, found.parts[profile.REST]) == (1, 1.0)


def test_a_cell_for_which_one_launcher_finds_no_gpus_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def launch(_launcher: object, launcher: str, case: Case) -> Launch:
        if (case.id, launcher) == ("cell-01", "accelerate launch"):
            raise OccupiedError("needs 2 GPUs that are free: GPU 0 has 900 MiB in use")
        return a_launch(3.0, launcher=launcher, case=case.id)

    monkeypatch.setattr("matrix.experiments.launchers.CellLauncher.launch", launch)
    messages: list[str] = []
    ctx = FakeContext(Case("cell-00"), Case("cell-01"))
    ctx.say = messages.append
    last = a_pass(wall_s=1.0, names=["cell-00", "cell-01"])
    found = bench.run_launchers(ctx, None, tmp_path, last, 2)  # type: ignore[arg-type]
    assert {each.case for each in found} == {"cell-00"}
    assert "cell-01: not measured: needs 2 GPUs that are free: GPU 0 has 900 MiB in use" in messages
