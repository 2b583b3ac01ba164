"""Of ranks that hang, the collective that they disagree on."""

from __future__ import annotations

import os
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest

from cases import flight

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
    found = flight.disagreement({0: [entry(1), entry(2)], 1: [entry(1)]})
    assert found == "rank 0 is in collective 2, all_reduce of [64, 32] Float; rank 1 never entered collective 2"


def test_ranks_in_different_collectives_are_told_apart() -> None:
    found = flight.disagreement({0: [entry(1, "all_gather")], 1: [entry(1, "reduce_scatter")]})
    assert "rank 0 is in collective 1, all_gather" in found
    assert "rank 1 is in collective 1, reduce_scatter" in found


def test_shapes_that_differ_are_a_disagreement() -> None:
    found = flight.disagreement({0: [entry(1)], 1: [entry(1, size=(64, 16))]})
    assert "[64, 32]" in found
    assert "[64, 16]" in found


def test_the_first_disagreement_counts() -> None:
    found = flight.disagreement({0: [entry(1, "barrier"), entry(2)], 1: [entry(1, "broadcast")]})
    assert "collective 1" in found
    assert "collective 2" not in found


def test_ranks_that_agree_say_nothing() -> None:
    assert flight.disagreement({0: [entry(1), entry(2)], 1: [entry(1), entry(2)]}) == ""


def test_what_the_recorder_has_forgotten_is_no_disagreement() -> None:
    assert flight.disagreement({0: [entry(2), entry(3)], 1: [entry(1), entry(2), entry(3)]}) == ""


def test_a_rank_without_any_collective_is_named() -> None:
    assert flight.disagreement({0: [entry(1)], 1: []}) == "rank 1 entered no collective"


def test_groups_are_looked_at_one_by_one() -> None:
    both = [entry(1), entry(1, "barrier", process_group=("1", "dp"))]
    assert flight.disagreement({0: both, 1: both}) == ""


def test_a_rank_dumps_when_it_is_asked(tmp_path: Path) -> None:
    """Torch's side is played by a thread: it reads the pipe and writes the file."""
    os.mkfifo(tmp_path / "flight-ask-0.pipe")
    reading = os.open(tmp_path / "flight-ask-0.pipe", os.O_RDWR)  # with a writer of our own, no read meets an end

    def answer() -> None:
        assert os.read(reading, 2) == b"1\n"
        (tmp_path / "flight-0").write_bytes(pickle.dumps({"entries": [entry(1)]}))
        os.close(reading)

    thread = threading.Thread(target=answer)
    thread.start()
    assert flight.recorded(tmp_path, [0, 1], limit_s=5) == {0: [entry(1)]}
    thread.join()


def test_nobody_who_listens_is_not_waited_for(tmp_path: Path) -> None:
    assert flight.recorded(tmp_path, [0, 1]) == {}


def test_a_dump_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "flight-0").write_bytes(pickle.dumps({"entries": [os.system]}))
    with pytest.raises(pickle.UnpicklingError, match="no plain value"):
        flight.read(tmp_path / "flight-0")
