"""Tests that a packed set has the same locks and outcomes without an index."""

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
def packed(mini: Any) -> Callable[[], packing.PackResult]:
    """Packs the good set from the fake index, which has no pytest."""

    def pack() -> packing.PackResult:
        no_pytest = mini.folder / "runner.txt"
        no_pytest.write_text("")
        request = packing.PackRequest(
            sets=sets.select(sets.load(mini.versions), "good"),
            folder=mini.folder / "pack",
            lock_folder=locks.locks_folder(mini.versions),
            runner=no_pytest,
        )
        tool = uv.on_this_machine(mini.folder / "cache", environ=mini.variables)
        return packing.pack(request, uv=tool, say=lambda _: None)

    return pack


def test_a_complete_set_has_the_same_outcomes_without_an_index(
    mini: Any, packed: Callable[[], packing.PackResult]
) -> None:
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


def test_packing_again_fetches_only_damaged_wheels(mini: Any, packed: Callable[[], packing.PackResult]) -> None:
    assert packed().fetched == 6
    assert packed().fetched == 0
    victim: Path = mini.folder / "pack" / "wheels" / "peft-0.0.1-py3-none-any.whl"
    victim.write_bytes(victim.read_bytes()[:-10])
    assert packed().fetched == 1


def test_a_damaged_wheel_is_bad_input_and_no_result(mini: Any, packed: Callable[[], packing.PackResult]) -> None:
    packed()
    victim: Path = mini.folder / "pack" / "wheels" / "peft-0.0.1-py3-none-any.whl"
    victim.write_bytes(victim.read_bytes() + b"more")
    done = mini.run(offline=str(mini.folder / "pack"), where=WHERE)
    assert done.returncode == 2
    assert "peft-0.0.1-py3-none-any.whl: damaged" in done.stderr
    assert mini.lines() == []
