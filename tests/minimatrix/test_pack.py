"""What was packed where there is an index runs where there is none, under the same lock and with the same outcomes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from matrix.offline import packing
from matrix.versions import locks, sets, uv

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WHERE = "case=pass-plain,wrong-no-number"


@pytest.fixture
def packed(mini: Any) -> Callable[[], packing.Made]:
    """Pack the good set from the fake index, without pytest, which is not on it."""

    def pack() -> packing.Made:
        nothing = mini.folder / "runner.txt"
        nothing.write_text("")
        order = packing.Order(
            sets=sets.select(sets.load(mini.versions), "good"),
            folder=mini.folder / "pack",
            lock_folder=locks.locks_folder(mini.versions),
            runner=nothing,
        )
        tool = uv.on_this_machine(mini.folder / "cache", environ=mini.variables)
        return packing.pack(order, uv=tool, say=lambda _: None)

    return pack


def test_a_whole_set_runs_without_an_index_as_it_does_with_one(mini: Any, packed: Callable[[], packing.Made]) -> None:
    packed()
    closed = replace(mini, index="http://127.0.0.1:9/simple")
    done = closed.run(offline=str(mini.folder / "pack"), where=WHERE)
    assert done.returncode == 0, done.stderr
    offline = {line["case"]: (line["verdict"], line["lock"]) for line in mini.lines()}
    done = mini.run(sets="good", where=WHERE, out=str(mini.folder / "online"))
    assert done.returncode == 0, done.stderr
    online = [json.loads(line) for line in (mini.folder / "online" / "outcomes.jsonl").read_text().splitlines()]
    assert offline == {line["case"]: (line["verdict"], line["lock"]) for line in online}
    assert len(offline) == 2


def test_packing_again_fetches_nothing_but_what_is_damaged(mini: Any, packed: Callable[[], packing.Made]) -> None:
    assert packed().fetched == 6
    assert packed().fetched == 0
    victim: Path = mini.folder / "pack" / "wheels" / "peft-0.0.1-py3-none-any.whl"
    victim.write_bytes(victim.read_bytes()[:-10])
    assert packed().fetched == 1


def test_a_damaged_wheel_is_named_and_nothing_is_painted_red(mini: Any, packed: Callable[[], packing.Made]) -> None:
    packed()
    victim: Path = mini.folder / "pack" / "wheels" / "peft-0.0.1-py3-none-any.whl"
    victim.write_bytes(victim.read_bytes() + b"more")
    done = mini.run(offline=str(mini.folder / "pack"), where=WHERE)
    assert done.returncode == 2
    assert "peft-0.0.1-py3-none-any.whl: damaged" in done.stderr
    assert mini.lines() == []
