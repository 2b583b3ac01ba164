"""Comparison of CPU and GPU results: the compared cells, their differences and the cells left out."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import jsonschema
import pytest

from cases.space.verdict import RED, Verdict
from matrix.run.outcome import ErrorRecord
from reports.answers import knowledge
from reports.answers.devices import compare as devices
from reports.answers.devices import nearness
from reports.answers.devices.compare import compare, everything, of_run
from reports.render.markdown import differences
from reports.render.text.devices_text import NOTHING, causes, left_out, lines, notes, summary
from reports.results.comparison import Comparison, DifferenceKind, Nearness
from reports.results.grid import Grid, grid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matrix.run.outcome import Outcome, RunRecord, SetRecord

    Cells = Mapping[tuple[str, str], str]

CASE, OTHER = "train-lora-ddp-fp32", "train-dora-ddp-bf16"
OFFLOADED = (
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
)
CPU = "2026-06"
GPU = "2026-06+torch2.11.0+cu130"


class Build(Protocol):
    def __call__(self, cells: Cells, *columns: SetRecord, **other: Any) -> Grid: ...


@pytest.fixture
def build(build_run: Callable[..., RunRecord], build_outcome: Callable[..., Outcome]) -> Build:
    """``build({(case, set): "pass"}, *columns)``; a message may follow the verdict: ``fail ValueError: no``."""

    def build_grid(cells: Cells, *columns: SetRecord, hardware: str = "cpu: test", **other: Any) -> Grid:
        outcomes = []
        for (case, key), text in cells.items():
            verdict, _, reason = text.partition(" ")
            name, _, message = reason.partition(": ")
            error = ErrorRecord(type=name, message=message) if message else None
            outcomes.append(build_outcome(case, key, verdict, reason=reason, error=error, hardware=hardware, **other))
        return grid(build_run(), columns, outcomes)

    return build_grid


@pytest.fixture
def column(build_set: Callable[..., SetRecord]) -> Callable[..., SetRecord]:
    """Build a set with these versions of some packages, and 1.0 of the others."""

    def build_column(key: str, *, lock: str = "", backend: str = "", **pins: str) -> SetRecord:
        every = dict.fromkeys(("torch", "transformers", "peft", "bitsandbytes", "accelerate", "trl"), "1.0")
        return build_set(key, pins={**every, **pins}, lock=lock, torch_backend=backend)

    return build_column


@pytest.fixture
def both(build: Build, column: Callable[..., SetRecord]) -> Callable[..., Comparison]:
    """Compare a case on two sets that differ in torch only, on a CPU and on GPUs."""

    def compare_case(cpu: str, gpu: str, case: str = CASE) -> Comparison:
        return compare(
            build({(case, CPU): cpu}, column(CPU, torch="2.12.0")),
            build({(case, GPU): gpu}, column(GPU, torch="2.11.0+cu130"), hardware="cuda: test"),
        )

    return compare_case


# --- compared cells ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "near"),
    [
        ({"lock": "abc", "torch": "2.11.0"}, Nearness.LOCK),
        ({"lock": "def", "torch": "2.11.0"}, Nearness.PINS),
        ({"torch": "2.12.0"}, Nearness.TORCH),
        ({"torch": "2.11.0", "peft": "2.0"}, None),
        ({"torch": "2.12.0", "peft": "2.0"}, None),
    ],
)
def test_nearness_of_two_sets(
    versions: dict[str, str], near: Nearness | None, column: Callable[..., SetRecord]
) -> None:
    assert nearness.near(column(CPU, **versions), column(GPU, torch="2.11.0+cu130", lock="abc")) is near


def test_sets_without_a_lock_do_not_share_one(column: Callable[..., SetRecord]) -> None:
    assert nearness.near(column(CPU), column(GPU)) is Nearness.PINS


def test_nearby_sets_are_sorted_by_nearness_then_by_release_of_torch(column: Callable[..., SetRecord]) -> None:
    columns = [
        *(column("far", torch="2.13.1"), column("nearer", torch="2.12.0"), column(CPU, torch="2.12.0")),
        *(column("other", torch="2.11.0", trl="2.0"), column("pins", torch="2.11.0"), column("lock", lock="abc")),
    ]
    found = nearness.nearby(columns, column(GPU, torch="2.11.0+cu130", lock="abc"))
    assert [each.key for _, each in found] == ["lock", "pins", CPU, "nearer", "far"]


def test_a_case_that_the_nearest_set_lacks_is_taken_from_the_next(
    build: Build, column: Callable[..., SetRecord]
) -> None:
    columns = column("near", torch="2.11.0"), column("next", torch="2.10.0")
    cpu = build({(CASE, "near"): "pass", (CASE, "next"): "pass", (OTHER, "next"): "pass"}, *columns)
    gpu = build({(CASE, GPU): "pass", (OTHER, GPU): "pass"}, column(GPU, torch="2.11.0+cu130"))
    assert [(each.cpu, each.near, each.compared) for each in compare(cpu, gpu).pairs] == [
        ("near", Nearness.PINS, 1),
        ("next", Nearness.TORCH, 1),
    ]


def test_a_cell_without_a_counterpart_is_counted(build: Build, column: Callable[..., SetRecord]) -> None:
    cpu = build({(CASE, CPU): "pass", (OTHER, "old"): "pass"}, column(CPU), column("old", peft="0.9"))
    found = compare(cpu, build({(CASE, GPU): "pass", (OTHER, GPU): "fail ValueError: no"}, column(GPU)))
    assert (found.alone, found.total("compared"), found.differences) == (1, 1, ())


def test_a_pair_lists_differing_versions(both: Callable[..., Comparison], column: Callable[..., SetRecord]) -> None:
    (pair,) = both("pass", "pass").pairs
    assert pair.differs == {"torch": ("2.12.0", "2.11.0+cu130")}
    built = [column("a", backend=name, torch="2.11.0") for name in ("pypi", "cu130")]
    assert dict(nearness.differs(*built)) == {"build of torch": ("pypi", "cu130")}


def test_other_results_of_the_runs_own_device_are_left_out(build: Build, column: Callable[..., SetRecord]) -> None:
    cpu, gpu, elsewhere = (build({(CASE, CPU): verdict}, column(CPU)) for verdict in ("pass", "wrong", "pass"))
    assert [each.kind for each in of_run("cuda", gpu, {"cpu": cpu, "cuda": elsewhere}).differences] == [
        DifferenceKind.GPU
    ]
    assert of_run("cuda", gpu, {"cuda": elsewhere}) == Comparison()
    assert everything({"cpu": cpu, "cuda": gpu}) == of_run("cpu", cpu, {"cuda": gpu})


# --- differences -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("red", sorted(each.value for each in RED))
def test_red_on_one_of_them_is_a_difference(red: str, both: Callable[..., Comparison]) -> None:
    assert [each.kind for each in both("pass", f"{red} ValueError: no").differences] == [DifferenceKind.GPU]
    assert [each.kind for each in both(f"{red} ValueError: no", "pass").differences] == [DifferenceKind.CPU]


@pytest.mark.parametrize(
    ("cpu", "gpu", "kinds"),
    [
        ("pass", "pass", []),
        ("fail ValueError: nobody knows", "fail ValueError: nobody knows", []),
        ("fail ValueError: nobody knows", "fail ValueError: nobody else", [DifferenceKind.BOTH]),
        ("fail ValueError: nobody knows", "wrong ValueError: nobody knows", [DifferenceKind.BOTH]),
        (f"fail {OFFLOADED}", f"fail {OFFLOADED.replace('cuda:0', 'cuda:1')}", []),  # one cause, in other words
        (f"fail {OFFLOADED}", "fail ValueError: nobody knows", [DifferenceKind.BOTH]),
    ],
)
def test_two_red_cells_differ_in_their_verdict_or_cause(
    cpu: str, gpu: str, kinds: list[DifferenceKind], both: Callable[..., Comparison]
) -> None:
    found = both(cpu, gpu)
    assert [each.kind for each in found.differences] == kinds
    assert found.total("alike") == 1 - len(kinds)


@pytest.mark.parametrize(
    ("cpu", "gpu", "count"),
    [
        ("skip needs a GPU", "fail ValueError: no", "ran_on_gpu"),
        ("pass", "skip needs four GPUs", "ran_on_cpu"),
        ("blocked no wheel", "lost the disk was full", "ran_on_neither"),
    ],
)
def test_cells_that_did_not_run_are_counted_and_not_compared(
    cpu: str, gpu: str, count: str, both: Callable[..., Comparison]
) -> None:
    found = both(cpu, gpu)
    assert (found.total(count), found.total("compared"), found.differences) == (1, 0, ())


def test_sets_with_the_same_difference_share_a_row(build: Build, column: Callable[..., SetRecord]) -> None:
    messages = {"a": "fail ValueError: one", "b": "fail ValueError: one", "c": "fail ValueError: two"}
    columns = [column(key, lock=key) for key in messages]
    cpu = build({(CASE, key): "pass" for key in messages}, *columns)
    gpu = build({(CASE, key): text for key, text in messages.items()}, *columns, hardware="cuda: test")
    found = compare(cpu, gpu)
    assert [[on.gpu for on in each.sets] for each in found.differences] == [["a", "b"], ["c"]]
    assert [on.gpu_said for each in found.differences for on in each.sets] == [
        *("ValueError: one", "ValueError: one", "ValueError: two"),
    ]
    assert found.cells(DifferenceKind.GPU) == 3


def test_results_of_two_machines_stay_apart(
    build: Build, build_run: Callable[..., RunRecord], column: Callable[..., SetRecord]
) -> None:
    columns = [column(key, lock=key) for key in ("a", "b")]
    halves = [
        build({(CASE, each.key): "wrong"}, each, hardware=name)
        for each, name in zip(columns, ("cuda: H100 x 2", "cuda: H200 x 2"), strict=True)
    ]
    gpu = grid(build_run(), columns, [outcome for half in halves for outcome in half.outcomes])
    found = compare(build({(CASE, "a"): "pass", (CASE, "b"): "pass"}, *columns), gpu)
    assert {pair.gpu: pair.gpu_hardware for pair in found.pairs} == {"a": "cuda: H100 x 2", "b": "cuda: H200 x 2"}
    assert [each.gpu.hardware for each in found.differences] == ["cuda: H100 x 2", "cuda: H200 x 2"]


def test_a_difference_lists_sets_where_the_other_device_behaves_alike(
    build: Build, column: Callable[..., SetRecord]
) -> None:
    cells = {(CASE, CPU): "pass", (CASE, "old"): f"fail {OFFLOADED}", (CASE, "older"): "fail ValueError: no"}
    columns = column(CPU, torch="2.12.0"), column("old", torch="2.2.0", peft="0.9"), column("older", peft="0.8")
    gpu = build({(CASE, GPU): f"fail {OFFLOADED}"}, column(GPU, torch="2.11.0"), hardware="cuda: test")
    (found,) = compare(build(cells, *columns), gpu).differences
    assert (found.cpu_too, found.gpu_too) == (("old",), ())
    assert notes(found) == "the CPU shows the GPUs' result on old"


# One set has torch 2.11.5, which is between the two sets; another has torch 2.2, which is older than both.
@pytest.mark.parametrize(
    ("between", "behind", "may_be"),
    [
        ("pass", f"fail {OFFLOADED}", True),
        (f"fail {OFFLOADED}", "fail ValueError: no", True),
        (f"fail {OFFLOADED}", "pass", False),
        ("pass", "fail ValueError: no", False),
        ("skip", "pass", False),
    ],
)
def test_other_sets_decide_if_torch_may_be_the_reason(
    between: str,
    behind: str,
    may_be: bool,  # noqa: FBT001
    build: Build,
    column: Callable[..., SetRecord],
) -> None:
    cells = {(CASE, CPU): "pass", (CASE, "between"): between, (CASE, "behind"): behind}
    others = column("between", torch="2.11.5", peft="0.9"), column("behind", torch="2.2.0", peft="0.8")
    cpu = build(cells, column(CPU, torch="2.12.0"), *others)
    gpu = build({(CASE, GPU): f"fail {OFFLOADED}"}, column(GPU, torch="2.11.0"), hardware="cuda: test")
    found = compare(cpu, gpu)
    assert [each.torch_too for each in found.differences] == [may_be]
    assert ("1 of the differences may" in summary(found)) == may_be
    assert ("which may be the reason" in "\n".join(lines(found))) == may_be


def test_other_gpu_sets_count_too(build: Build, column: Callable[..., SetRecord]) -> None:
    cells = {(CASE, GPU): f"fail {OFFLOADED}", (CASE, "newer"): "pass"}
    columns = column(GPU, torch="2.11.0+cu130"), column("newer", torch="2.13.0", peft="0.9")
    (found,) = compare(build({(CASE, CPU): "pass"}, column(CPU, torch="2.12.0")), build(cells, *columns)).differences
    assert found.torch_too


def test_an_equal_torch_is_never_the_reason(build: Build, column: Callable[..., SetRecord]) -> None:
    cpu = build({(CASE, CPU): "pass", (CASE, "old"): f"fail {OFFLOADED}"}, column(CPU), column("old", torch="0.9"))
    (found,) = compare(cpu, build({(CASE, CPU): f"fail {OFFLOADED}"}, column(CPU))).differences
    assert (found.cpu_too, found.torch_too) == (("old",), False)


def test_causes_are_explained(both: Callable[..., Comparison]) -> None:
    found = both("pass", f"fail {OFFLOADED}")
    (sentence,) = causes(found).values()
    assert sentence.startswith("An operation combines tensors on the CPU with tensors on the GPU.")
    assert f"weights-on-cpu-and-gpu: {sentence}" in "\n".join(lines(found))
    assert f"- `weights-on-cpu-and-gpu`: {sentence}"[:60] in differences(found)
    assert "Causes" not in differences(both("pass", "fail"))


def test_differences_that_other_versions_show_too_come_last(build: Build, column: Callable[..., SetRecord]) -> None:
    columns = column(CPU, lock="abc"), column("old", peft="0.9")
    cpu = build({(CASE, CPU): "pass", (OTHER, CPU): "pass", (OTHER, "old"): f"fail {OFFLOADED}"}, *columns)
    gpu = build({(case, CPU): f"fail {OFFLOADED}" for case in (OTHER, CASE)}, columns[0])
    assert [each.case for each in compare(cpu, gpu).differences] == [CASE, OTHER]


def test_repeats_that_disagree_are_reported(
    build_run: Callable[..., RunRecord], build_outcome: Callable[..., Outcome], column: Callable[..., SetRecord]
) -> None:
    outcomes = [build_outcome(CASE, CPU, verdict, repeat=n) for n, verdict in enumerate(("pass", "wrong"), 1)]
    flaky = grid(build_run(), [column(CPU)], outcomes)
    steady = grid(build_run(), [column(CPU)], outcomes[:1])
    (found,) = compare(flaky, steady).differences
    assert (found.kind, found.sets[0].flaky, notes(found)) == (DifferenceKind.CPU, True, f"flaky on {CPU}")


@pytest.mark.parametrize(("cpu", "gpu", "same"), [("a", "a", 1), ("a", "b", 0), ("", "", 0)])
def test_the_case_code_of_both_is_compared(
    cpu: str, gpu: str, same: int, build: Build, column: Callable[..., SetRecord]
) -> None:
    found = compare(*(build({(CASE, CPU): "pass"}, column(CPU), code=code) for code in (cpu, gpu)))
    assert found.total("same_code") == same


# --- as text ----------------------------------------------------------------------------------------------------------


def test_an_empty_comparison_is_reported() -> None:
    assert summary(Comparison()) == NOTHING
    assert list(lines(Comparison())) == [NOTHING]
    assert NOTHING in differences(Comparison())


def test_a_difference_shows_both_sides(both: Callable[..., Comparison]) -> None:
    found = both("pass", f"fail {OFFLOADED}")
    listed = "\n".join(lines(found))
    assert "1 cell compared (1 on the same versions but torch): 0 equal, 1 red only on GPUs, " in listed
    assert (
        f"\n{GPU} compared with {CPU}: the same versions but torch; torch 2.12.0 on the CPU, 2.11.0+cu130 on GPUs\n"
        in listed
    )
    assert f"\n{CASE}: red only on GPUs (the same versions but torch)\n  CPU: pass\n  GPU: fail (" in listed
    assert OFFLOADED in listed


def test_cells_that_were_not_compared_are_counted(both: Callable[..., Comparison]) -> None:
    assert left_out(both("skip needs a GPU", "pass")).startswith("Not compared: 1 cell ran on GPUs only, 0 on the CPU")


# --- as data, and published files -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grids() -> dict[str, Grid]:
    return knowledge.by_device()


@pytest.fixture(scope="module")
def published(grids: dict[str, Grid]) -> Comparison:
    return everything(grids)


def test_the_committed_schema_is_current(assert_golden: Callable[[str, Any], None]) -> None:
    assert_golden(devices.json_schema(), devices.SCHEMA_FILE)


@pytest.mark.parametrize("suffix", [".json", ".md"])
def test_the_published_files_match_the_published_results(suffix: str, published: Comparison) -> None:
    rendered = {".json": devices.dumped, ".md": differences}[suffix](published)
    assert devices.PUBLISHED.with_suffix(suffix).read_text(encoding="utf-8") == rendered, (
        f"to accept what the results give now: ftmatrix devices --write {devices.PUBLISHED}"
    )


def test_the_published_file_is_valid() -> None:
    document = json.loads(devices.PUBLISHED.read_text(encoding="utf-8"))
    schema = json.loads(devices.SCHEMA_FILE.read_text())
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "pairs": 1}, schema)


def test_every_published_cell_on_gpus_is_counted_once(grids: dict[str, Grid], published: Comparison) -> None:
    counts = ("compared", "ran_on_gpu", "ran_on_cpu", "ran_on_neither")
    assert sum(map(published.total, counts)) + published.alone == len(grids["cuda"].outcomes)
    assert published.total("compared") - published.total("alike") == sum(map(published.cells, DifferenceKind))


def test_every_published_difference_is_in_the_results(grids: dict[str, Grid], published: Comparison) -> None:
    for each in published.differences:
        for on in each.sets:
            assert grids["cpu"].verdict(each.case, on.cpu) is each.cpu.verdict
            assert grids["cuda"].verdict(each.case, on.gpu) is each.gpu.verdict
    listed = Counter((each.case, on.gpu) for each in published.differences for on in each.sets)
    assert set(listed.values()) == {1}


def test_every_cell_that_is_green_on_one_device_only_is_listed(grids: dict[str, Grid], published: Comparison) -> None:
    """Counts independently: GPU cells with exactly one CPU set that has the same versions of the other packages."""
    cpu, ran = grids["cpu"], RED | {Verdict.PASS}
    listed = {(each.case, on.gpu) for each in published.differences for on in each.sets}
    expected = set()
    for column in grids["cuda"].sets:
        near = [each.key for each in cpu.sets if five(each) == five(column)]
        for outcome in (each for each in grids["cuda"].outcomes if each.set == column.key):
            on_cpu = [verdict for key in near if (verdict := cpu.verdict(outcome.case, key)) is not None]
            if len(on_cpu) == 1 and {outcome.verdict, *on_cpu} <= ran and Verdict.PASS in {outcome.verdict, *on_cpu}:
                expected |= {(outcome.case, outcome.set)} if outcome.verdict is not on_cpu[0] else set()
    assert expected
    assert expected <= listed


def five(column: SetRecord) -> dict[str, str]:
    return {name: version for name, version in column.pins.items() if name != "torch"}
