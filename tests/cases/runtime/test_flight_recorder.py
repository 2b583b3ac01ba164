"""Of ranks that hang, the collective that they disagree on."""

from __future__ import annotations

import os
import pickle
import time
from typing import TYPE_CHECKING, Any

from cases.runtime import flight_recorder

if TYPE_CHECKING:
    from pathlib import Path


def entry(number: int, name: str = "all_reduce", size: tuple[int, ...] = (64, 32), **other: Any) -> dict[str, Any]:
    return {
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "profiling_name": f"nccl:{name}",
        "input_sizes": [size],
        "input_dtypes": ["Float"],
        "state": "scheduled",
        **other,
    }


def test_who_never_entered_is_named_with_what_the_other_waits_in() -> None:
    found = flight_recorder.disagreement({0: [entry(1), entry(2)], 1: [entry(1)]})
    assert found == "rank 0 is in collective 2, all_reduce of [64, 32] Float; rank 1 never entered collective 2"


def test_ranks_in_different_collectives_are_told_apart() -> None:
    found = flight_recorder.disagreement({0: [entry(1, "all_gather")], 1: [entry(1, "reduce_scatter")]})
    assert "rank 0 is in collective 1, all_gather" in found
    assert "rank 1 is in collective 1, reduce_scatter" in found


def test_shapes_that_differ_are_a_disagreement() -> None:
    found = flight_recorder.disagreement({0: [entry(1)], 1: [entry(1, size=(64, 16))]})
    assert "[64, 32]" in found
    assert "[64, 16]" in found


def test_the_first_disagreement_counts() -> None:
    found = flight_recorder.disagreement({0: [entry(1, "barrier"), entry(2)], 1: [entry(1, "broadcast")]})
    assert "collective 1" in found
    assert "collective 2" not in found


def test_ranks_that_agree_say_nothing() -> None:
    assert flight_recorder.disagreement({0: [entry(1), entry(2)], 1: [entry(1), entry(2)]}) == ""


def test_what_the_recorder_has_forgotten_is_no_disagreement() -> None:
    assert flight_recorder.disagreement({0: [entry(2), entry(3)], 1: [entry(1), entry(2), entry(3)]}) == ""


def test_a_rank_without_any_collective_is_named() -> None:
    assert flight_recorder.disagreement({0: [entry(1)], 1: []}) == "rank 1 entered no collective"


def test_what_only_the_root_brings_is_no_disagreement() -> None:
    root, other = entry(1, "scatter"), {**entry(1, "scatter"), "input_sizes": [], "input_dtypes": []}
    assert flight_recorder.disagreement({0: [root], 1: [other]}) == ""


def test_groups_are_looked_at_one_by_one() -> None:
    both = [entry(1), entry(1, "barrier", process_group=("1", "dp"))]
    assert flight_recorder.disagreement({0: both, 1: both}) == ""


def test_entries_of_torch_2_3_have_other_names() -> None:
    old = [{"seq_id": n, "profiling_name": "nccl:all_reduce", "input_sizes": [[4]]} for n in (1, 2)]
    found = flight_recorder.disagreement({0: old, 1: old[:1]})
    assert found == "rank 0 is in collective 2, all_reduce of [4]; rank 1 never entered collective 2"


def test_a_summary_shows_the_last_collectives() -> None:
    shown = flight_recorder.summary([entry(n) for n in range(1, 31)]).splitlines()
    assert shown[0] == "(10 earlier ones)"
    assert shown[-1].startswith("   30  scheduled  all_reduce of [64, 32] Float")


def asked(folder: Path, ranks: list[int], limit_s: float = 5.0) -> flight_recorder.Dumps:
    return flight_recorder.read_dumps(folder, flight_recorder.request_dumps(folder, ranks), limit_s)


def test_a_rank_dumps_as_often_as_it_is_asked(tmp_path: Path) -> None:
    told = iter(([entry(1)], [entry(1), entry(2)]))
    flight_recorder.listen(tmp_path, 0, lambda: pickle.dumps({"entries": next(told)}))
    assert asked(tmp_path, [0, 1]).entries == {0: [entry(1)]}
    assert asked(tmp_path, [0, 1]).entries == {0: [entry(1), entry(2)]}


def test_a_rank_that_cannot_dump_says_why(tmp_path: Path) -> None:
    def refuse() -> bytes:
        raise RuntimeError("no recorder")

    flight_recorder.listen(tmp_path, 0, refuse)
    found = asked(tmp_path, [0])
    assert found.entries == {}
    assert "RuntimeError: no recorder" in found.errors[0]


def test_a_rank_that_does_not_answer_is_waited_for_no_longer_than_the_limit(tmp_path: Path) -> None:
    flight_recorder.listen(tmp_path, 0, slow)
    assert asked(tmp_path, [0], limit_s=0.1) == flight_recorder.Dumps()


def test_a_folder_that_can_hold_no_pipe_costs_only_the_answer(tmp_path: Path) -> None:
    flight_recorder.listen(tmp_path / "missing", 0)
    assert asked(tmp_path, [0]) == flight_recorder.Dumps()


def slow() -> bytes:
    time.sleep(2)
    return b""


def test_a_dump_of_earlier_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    (tmp_path / "flight-0").write_bytes(pickle.dumps({"entries": []}))
    assert asked(tmp_path, [0]) == flight_recorder.Dumps()


def test_a_dump_runs_nothing(tmp_path: Path) -> None:
    flight_recorder.listen(tmp_path, 0, lambda: pickle.dumps({"entries": [os.system]}))
    assert "no plain value" in asked(tmp_path, [0]).errors[0]
