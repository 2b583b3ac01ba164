"""Tests that a packed set has the same locks and outcomes without an index."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.offline import packing

WHERE = "case=pass-plain,wrong-no-number"


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
    assert "torch==0.0.1" in (mini.out / "locks" / "good.txt").read_text()
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
