"""Tests the fix search with a fake runner: nearest first, minimal, proven by two runs, no cell run again."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.case import Case
from cases.space.options import Options
from cases.space.verdict import Verdict
from matrix.errors import UserError
from matrix.keys import CellKey
from matrix.search.earlier import EarlierFixes
from matrix.search.finder import FixSearch
from matrix.search.fixes import Fix, Kind
from matrix.search.target import FixTask
from matrix.versions.sets import PACKAGES, VersionSet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

RED, GREEN = Verdict.FAIL, Verdict.PASS


def a_set(key: str = "2025-09", **pins: str) -> VersionSet:
    every = {**dict.fromkeys(PACKAGES, "1.0"), **pins}
    return VersionSet(key=key, python="3.11", as_of=date(2025, 9, 15), pins=every, why="a test")


def a_case(**changes: Any) -> Case:
    return Case("tests", "a test", Options().but(strategy="fsdp1", **changes))


@dataclass
class FakeRunner:
    """Takes verdicts from ``verdict``. ``flaky`` cells are red in every second run; ``runs`` counts the runs."""

    verdict: Callable[[VersionSet, Options], Verdict]
    known: dict[str, list[Verdict]] = field(default_factory=lambda: defaultdict(list))
    flaky: frozenset[str] = frozenset()
    greens: frozenset[str] = frozenset()  # cells that are green on another machine
    runs: Counter[str] = field(default_factory=Counter)
    order: list[str] = field(default_factory=list)
    unknown_pins: frozenset[str] = frozenset()

    def seen(self, version_set: VersionSet, case: Case) -> tuple[Verdict, ...]:
        return tuple(self.known[str(CellKey(version_set.key, case.id))])

    def modules(self, version_set: VersionSet, case: Case) -> str:
        return f"{case.options.strategy}={version_set.pins['peft']}"

    def measure(self, version_set: VersionSet, times: Mapping[Case, int]) -> None:
        for case, count in times.items():
            cell = str(CellKey(version_set.key, case.id))
            while len(self.known[cell]) < count:
                odd = cell in self.flaky and self.runs[cell] % 2
                self.known[cell].append(RED if odd else self.verdict(version_set, case.options))
                self.runs[cell] += 1
                self.order.append(cell)

    def hint(self, version_set: VersionSet, case: Case) -> bool:
        return str(CellKey(version_set.key, case.id)) in self.greens

    def moved(self, base: VersionSet, pins: Mapping[str, str]) -> VersionSet:
        if set(pins.values()) & self.unknown_pins:
            raise UserError("no such version")
        key = base.key + "".join(f"+{name}{version}" for name, version in sorted(pins.items()))
        return replace(base, key=key, pins={**base.pins, **pins})


def search(runner: FakeRunner, case: Case, table: Sequence[VersionSet] = (), **more: Any) -> Fix:
    task = FixTask(version_set=a_set(), case=case)
    kind = EarlierFixes if "known" in more else FixSearch
    (found,) = kind(runner=runner, tasks=[task], table=[a_set(), *table], cases={}, **more).run()
    return found


def green_if(condition: Callable[[Options], bool]) -> Callable[[VersionSet, Options], Verdict]:
    return lambda _set, options: GREEN if condition(options) else RED


def green_on(condition: Callable[[Mapping[str, str]], bool]) -> Callable[[VersionSet, Options], Verdict]:
    return lambda version_set, _options: GREEN if condition(version_set.pins) else RED


def changed(fix: Fix) -> dict[str, object]:
    return {each.name: each.new for each in fix.changes}


# Nearest first.


def test_a_setting_is_found_before_anything_else() -> None:
    fix = search(FakeRunner(green_if(lambda o: o.auto_wrap_policy == "peft" or o.strategy == "ddp")), a_case())
    assert (fix.kind, changed(fix)) == (Kind.SETTINGS, {"auto_wrap_policy": "peft"})


def test_the_cheapest_of_several_settings_is_chosen() -> None:
    fix = search(FakeRunner(green_if(lambda o: o.auto_wrap_policy == "peft" or not o.use_orig_params)), a_case())
    assert changed(fix) == {"use_orig_params": False}


def test_versions_come_before_alternatives() -> None:
    newer = a_set("2025-12", peft="2.0")
    runner = FakeRunner(
        lambda v, o: GREEN if v.pins["peft"] == "2.0" or o.strategy == "ddp" else RED,
        greens=frozenset({str(CellKey("2025-12", a_case().id))}),
    )
    fix = search(runner, a_case(), [newer])
    assert (fix.kind, fix.to_set, changed(fix)) == (Kind.VERSIONS, "2025-12", {"peft": "2.0"})


def test_an_alternative_is_recorded_as_one() -> None:
    fix = search(FakeRunner(green_if(lambda o: o.strategy == "ddp")), a_case())
    assert (fix.kind, changed(fix)) == (Kind.ALTERNATIVE, {"strategy": "ddp"})


def test_without_a_fix_the_record_describes_what_was_tried() -> None:
    runner = FakeRunner(green_if(lambda _: False))
    fix = search(runner, a_case())
    assert fix.kind is Kind.NONE
    assert fix.tried == len(runner.runs) - 1  # all but the red cell itself
    assert "single settings" in fix.within
    assert "no set is known to be green" in fix.within


# Minimal.


def test_a_pair_has_a_red_witness_for_each_change() -> None:
    runner = FakeRunner(green_if(lambda o: o.auto_wrap_policy == "peft" and not o.use_orig_params))
    fix = search(runner, a_case())
    assert changed(fix) == {"auto_wrap_policy": "peft", "use_orig_params": False}
    assert fix.minimal
    assert len(fix.witnesses) == 2
    assert all(set(runner.known[witness]) == {RED} for witness in fix.witnesses)


def test_only_the_package_that_matters_moves() -> None:
    far = a_set("2026-11", torch="2.0", peft="2.0", trl="2.0")
    runner = FakeRunner(
        green_on(lambda pins: pins["peft"] == "2.0"), greens=frozenset({str(CellKey("2026-11", a_case().id))})
    )
    fix = search(runner, a_case(), [far])
    assert (fix.to_set, changed(fix)) == ("2025-09+peft2.0", {"peft": "2.0"})


def test_two_packages_that_have_to_move_together_are_found() -> None:
    far = a_set("2026-11", torch="2.0", peft="2.0", trl="2.0")
    both = green_on(lambda pins: pins["peft"] == pins["trl"] == "2.0")
    runner = FakeRunner(both, greens=frozenset({str(CellKey("2026-11", a_case().id))}))
    fix = search(runner, a_case(), [far], environments=20)
    assert (changed(fix), fix.minimal) == ({"peft": "2.0", "trl": "2.0"}, True)


def test_a_move_whose_parts_exceed_the_budget_is_not_minimal() -> None:
    far = a_set("2026-11", torch="2.0", peft="2.0", trl="2.0")
    runner = FakeRunner(green_on(lambda pins: pins["peft"] == pins["trl"] == "2.0"))
    runner.known[str(CellKey("2026-11", a_case().id))] = [GREEN, GREEN]
    runner.greens = frozenset(runner.known)
    fix = search(runner, a_case(), [far], environments=0)
    assert (fix.kind, fix.minimal, len(fix.changes)) == (Kind.VERSIONS, False, 3)


# Proven.


def test_a_fix_is_proven_by_two_red_and_two_green_runs() -> None:
    runner = FakeRunner(green_if(lambda o: o.auto_wrap_policy == "peft"))
    fix = search(runner, a_case())
    assert fix.runs == 2
    assert runner.known[str(CellKey(fix.set, fix.case))] == [RED, RED]
    assert runner.known[str(CellKey(fix.to_set, fix.to_case))] == [GREEN, GREEN]


def test_a_cell_that_is_green_only_once_is_no_fix() -> None:
    flaky = str(CellKey("2025-09", a_case(auto_wrap_policy="peft").id))
    runner = FakeRunner(green_if(lambda o: o.auto_wrap_policy in {"peft", "size"}), flaky=frozenset({flaky}))
    assert changed(search(runner, a_case())) == {"auto_wrap_policy": "size"}


def test_a_cell_that_is_not_red_every_time_is_not_searched() -> None:
    runner = FakeRunner(green_if(lambda _: True), flaky=frozenset({str(CellKey("2025-09", a_case().id))}))
    fix = search(runner, a_case())
    assert (fix.kind, fix.within) == (Kind.NONE, "it is not red every time: pass, fail")


def test_a_cell_that_cannot_run_has_that_as_its_reason() -> None:
    skipped = search(FakeRunner(lambda *_: Verdict.SKIP), a_case())
    lost = FakeRunner(lambda *_: RED)
    lost.measure = lambda *_: None  # type: ignore[method-assign]  # every run is lost
    assert skipped.within == "it cannot run on this machine: skip, skip"
    assert search(lost, a_case()).within == "it could not run"
    assert search(lost, a_case(), kinds=frozenset({Kind.VERSIONS})).within == "it could not run"


def test_a_cell_that_cannot_run_is_no_fix() -> None:
    fix = search(FakeRunner(lambda _, o: RED if o == a_case().options else Verdict.SKIP), a_case())
    assert (fix.kind, fix.tried) == (Kind.NONE, 0)


# No unnecessary runs.


def test_cells_with_known_results_are_not_run_again() -> None:
    runner = FakeRunner(green_if(lambda o: o.auto_wrap_policy == "peft"))
    search(runner, a_case())
    again = FakeRunner(green_if(lambda _: False), known=runner.known)
    fix = search(again, a_case())
    assert (again.runs, changed(fix)) == (Counter(), {"auto_wrap_policy": "peft"})


def test_a_cell_that_two_tasks_reach_is_run_once() -> None:
    runner = FakeRunner(green_if(lambda _: False))
    tasks = [FixTask(version_set=a_set(), case=each) for each in (a_case(), a_case(use_orig_params=False))]
    FixSearch(runner=runner, tasks=tasks, table=[a_set()], cases={}, radius=1).run()
    assert {each for each, count in runner.runs.items() if count > 1} == {
        str(CellKey("2025-09", each.case.id)) for each in tasks
    }


def test_the_search_installs_no_more_environments_than_allowed() -> None:
    far = a_set("2026-11", **dict.fromkeys(PACKAGES, "2.0"))
    runner = FakeRunner(green_if(lambda _: False), greens=frozenset({str(CellKey("2026-11", a_case().id))}))
    search(runner, a_case(), [far], environments=2)
    assert len({cell.partition("__")[0] for cell in runner.runs} - {"2025-09"}) == 2


def test_the_record_gives_a_reason_for_each_green_set_that_was_not_tried() -> None:
    sets = [a_set("2025-12", peft="9.9", trl="2.0"), a_set("2026-11", peft="2.0", trl="3.0", torch="2.0")]
    runner = FakeRunner(green_if(lambda _: False), unknown_pins=frozenset({"9.9"}))
    runner.greens = frozenset(str(CellKey(each.key, a_case().id)) for each in sets)
    assert search(runner, a_case(), sets, environments=0, kinds=frozenset({Kind.VERSIONS})).within == (
        "sets not tried: 2025-09+peft9.9 (cannot be resolved), 2025-09+trl2.0 (no environment left),"
        " 2025-12 (no environment left), 2026-11 (no environment left)"
    )


def test_the_record_names_a_blocked_set_as_blocked() -> None:
    other = a_set("2025-12", peft="2.0")
    blocked = FakeRunner(lambda v, _: Verdict.BLOCKED if v.pins["peft"] == "2.0" else RED)
    blocked.greens = frozenset({str(CellKey("2025-12", a_case().id))})
    found = search(blocked, a_case(), [other], kinds=frozenset({Kind.VERSIONS}))
    assert "sets not tried: 2025-09+peft2.0 (blocked), 2025-12 (blocked)" in found.within


def test_a_set_that_cannot_be_resolved_without_a_move_is_no_red_witness() -> None:
    far = a_set("2026-11", peft="2.0", trl="2.0")

    def verdict(version_set: VersionSet, _: Options) -> Verdict:
        moved = [version_set.pins[name] == "2.0" for name in ("peft", "trl")]
        return GREEN if all(moved) else Verdict.BLOCKED if moved[0] else RED

    fix = search(FakeRunner(verdict, greens=frozenset({str(CellKey("2026-11", a_case().id))})), a_case(), [far])
    assert fix.blocked == (str(CellKey("2025-09+peft2.0", a_case().id)),)
    assert set(fix.blocked) < set(fix.witnesses)


def test_a_radius_of_one_tries_no_pairs() -> None:
    runner = FakeRunner(green_if(lambda o: o.auto_wrap_policy == "peft" and not o.use_orig_params))
    assert search(runner, a_case(), radius=1).kind is Kind.NONE


def test_only_the_requested_kinds_are_tried() -> None:
    runner = FakeRunner(green_if(lambda o: o.auto_wrap_policy == "peft" or o.strategy == "ddp"))
    assert search(runner, a_case(), kinds=frozenset({Kind.ALTERNATIVE})).kind is Kind.ALTERNATIVE


def test_a_version_that_no_index_has_is_skipped() -> None:
    far = a_set("2026-11", peft="9.9", trl="2.0")
    runner = FakeRunner(green_on(lambda pins: pins["trl"] == "2.0"), unknown_pins=frozenset({"9.9"}))
    runner.greens = frozenset({str(CellKey("2026-11", a_case().id))})
    assert changed(search(runner, a_case(), [far])) == {"trl": "2.0"}


def test_what_is_decided_is_noted_after_each_wave() -> None:
    noted: list[tuple[Fix, ...]] = []
    fixable, other = a_case(), a_case(torch_dtype="bf16")
    runner = FakeRunner(green_if(lambda o: o.auto_wrap_policy == "peft" and o.torch_dtype != "bf16"))
    tasks = [FixTask(version_set=a_set(), case=each) for each in (fixable, other)]
    kinds = frozenset({Kind.SETTINGS})
    FixSearch(runner=runner, tasks=tasks, table=[a_set()], cases={}, kinds=kinds, note=noted.append).run()
    assert len(noted) > 1
    assert all([changed(fix) for fix in each] == [{"auto_wrap_policy": "peft"}] for each in noted)


def test_a_search_that_goes_on_notes_no_cell_as_without_a_fix() -> None:
    noted: list[tuple[Fix, ...]] = []
    search(FakeRunner(green_if(lambda _: False)), a_case(), note=noted.append)
    assert set(noted) == {()}


def test_a_use_that_a_known_problem_recommends_is_tried() -> None:
    use = Case("api", "a test", Options().but(flow="api", call="fails"))
    other = Case("api", "a test", Options().but(flow="api", call="works"))
    runner = FakeRunner(green_if(lambda o: o.call == "works"))
    fix = search(runner, use, advised={str(CellKey("2025-09", use.id)): (other,)})
    assert (fix.kind, changed(fix)) == (Kind.ALTERNATIVE, {"call": "works"})


# Earlier fixes again.


def again(runner: FakeRunner, condition: Callable[[Options], bool], table: Sequence[VersionSet] = ()) -> Fix:
    """Search with one stack, and run what was found again on another."""
    earlier = search(FakeRunner(green_if(condition)), a_case(), table)
    return search(runner, a_case(), table, known={str(CellKey(a_set().key, a_case().id)): earlier})


def test_an_earlier_fix_is_proven_again_without_trying_others() -> None:
    runner = FakeRunner(green_if(lambda o: o.auto_wrap_policy == "peft" and not o.use_orig_params))
    fix = again(runner, lambda o: o.auto_wrap_policy == "peft" and not o.use_orig_params)
    assert changed(fix) == {"auto_wrap_policy": "peft", "use_orig_params": False}
    assert (fix.runs, fix.minimal, len(fix.witnesses)) == (2, True, 2)
    assert sorted(runner.runs.values()) == [1, 1, 2, 2]  # both witnesses, the red cell, and the green one
    assert fix.within.startswith("only the fix found earlier ran again; ")


def test_an_earlier_fix_of_which_a_part_is_enough_becomes_that_part() -> None:
    runner = FakeRunner(green_if(lambda o: o.auto_wrap_policy == "peft"))
    fix = again(runner, lambda o: o.auto_wrap_policy == "peft" and not o.use_orig_params)
    assert changed(fix) == {"auto_wrap_policy": "peft"}


def test_an_earlier_fix_that_is_red_now_is_none() -> None:
    fix = again(FakeRunner(green_if(lambda _: False)), lambda o: o.auto_wrap_policy == "peft")
    assert (fix.kind, fix.to_case) == (Kind.NONE, "")


def an_earlier_move() -> Fix:
    green = frozenset({str(CellKey("2026-11", a_case().id))})
    return search(
        FakeRunner(green_on(lambda pins: pins["peft"] == "2.0"), greens=green),
        a_case(),
        [a_set("2026-11", peft="2.0", trl="2.0")],
    )


def test_an_earlier_move_runs_again_on_the_same_set() -> None:
    earlier = an_earlier_move()
    assert earlier.to_set == "2025-09+peft2.0"
    runner = FakeRunner(green_on(lambda pins: pins["peft"] == "2.0"))
    fix = search(runner, a_case(), known={str(CellKey(a_set().key, a_case().id)): earlier})
    assert (fix.kind, fix.to_set, fix.runs) == (Kind.VERSIONS, earlier.to_set, 2)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"environments": 0}, "no environment left"),
        ({"runner": FakeRunner(green_if(lambda _: True), unknown_pins=frozenset({"2.0"}))}, "cannot be resolved"),
    ],
)
def test_an_earlier_fix_that_cannot_run_is_left_out_with_the_reason(limits: Mapping[str, Any], why: str) -> None:
    task = FixTask(version_set=a_set(), case=a_case())
    given = {"runner": FakeRunner(green_if(lambda _: True)), "known": {task.cell: an_earlier_move()}, **limits}
    again = EarlierFixes(tasks=[task], table=[a_set()], cases={}, **given)
    assert again.run() == ()
    assert again.left_out == {task.cell: why}
