"""The flight recorder shows the collective that hanging ranks disagree on."""

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


def test_a_rank_that_never_entered_a_collective_is_named() -> None:
    found = flight_recorder.disagreement({0: [entry(1), entry(2)], 1: [entry(1)]})
    assert found == "rank 0 is in collective 2, all_reduce of [64, 32] Float; rank 1 never entered collective 2"


def test_ranks_in_different_collectives_are_a_disagreement() -> None:
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


def test_ranks_that_agree_have_no_disagreement() -> None:
    assert flight_recorder.disagreement({0: [entry(1), entry(2)], 1: [entry(1), entry(2)]}) == ""


def test_entries_that_the_recorder_has_dropped_are_no_disagreement() -> None:
    assert flight_recorder.disagreement({0: [entry(2), entry(3)], 1: [entry(1), entry(2), entry(3)]}) == ""


def test_a_rank_without_any_collective_is_named() -> None:
    assert flight_recorder.disagreement({0: [entry(1)], 1: []}) == "rank 1 entered no collective"


def test_inputs_of_the_root_alone_are_no_disagreement() -> None:
    root, other = entry(1, "scatter"), {**entry(1, "scatter"), "input_sizes": [], "input_dtypes": []}
    assert flight_recorder.disagreement({0: [root], 1: [other]}) == ""


def test_each_process_group_is_compared_separately() -> None:
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


def request_and_read(folder: Path, ranks: list[int], limit_s: float = 5.0) -> flight_recorder.Dumps:
    return flight_recorder.read_dumps(folder, flight_recorder.request_dumps(folder, ranks), limit_s)


def test_a_rank_dumps_on_every_request(tmp_path: Path) -> None:
    dumps = iter(([entry(1)], [entry(1), entry(2)]))
    flight_recorder.listen(tmp_path, 0, lambda: pickle.dumps({"entries": next(dumps)}))
    assert request_and_read(tmp_path, [0, 1]).entries == {0: [entry(1)]}
    assert request_and_read(tmp_path, [0, 1]).entries == {0: [entry(1), entry(2)]}


def test_a_rank_that_cannot_dump_reports_the_reason(tmp_path: Path) -> None:
    def refuse() -> bytes:
        raise RuntimeError("no recorder")

    flight_recorder.listen(tmp_path, 0, refuse)
    found = request_and_read(tmp_path, [0])
    assert found.entries == {}
    assert "RuntimeError: no recorder" in found.errors[0]


def test_the_wait_for_a_rank_that_does_not_answer_is_limited(tmp_path: Path) -> None:
    flight_recorder.listen(tmp_path, 0, slow)
    assert request_and_read(tmp_path, [0], limit_s=0.1) == flight_recorder.Dumps()


def test_without_a_folder_for_pipes_there_is_no_dump_and_no_error(tmp_path: Path) -> None:
    flight_recorder.listen(tmp_path / "missing", 0)
    assert request_and_read(tmp_path, [0]) == flight_recorder.Dumps()


def slow() -> bytes:
    time.sleep(2)
    return b""


def test_an_earlier_dump_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "flight-0").write_bytes(pickle.dumps({"entries": []}))
    assert request_and_read(tmp_path, [0]) == flight_recorder.Dumps()


def test_reading_a_dump_executes_no_code(tmp_path: Path) -> None:
    flight_recorder.listen(tmp_path, 0, lambda: pickle.dumps({"entries": [os.system]}))
    assert "no plain value" in request_and_read(tmp_path, [0]).errors[0]
