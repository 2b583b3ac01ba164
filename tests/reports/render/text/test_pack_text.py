"""A pack as text and as JSON: every wheel once, with its sets and its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from matrix.offline.packing import PackResult, Part
from reports.render.text import pack_text

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def made(tmp_path: Path) -> PackResult:
    """Two sets that share a wheel, and one wheel of an earlier pack."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name, size in (("torch-2.6.0", 3_000_000), ("peft-0.14.0", 500_000), ("trl-0.1", 1_000_000)):
        (wheels / f"{name}-py3-none-any.whl").write_bytes(b"0" * size)
    torch, peft = wheels / "torch-2.6.0-py3-none-any.whl", wheels / "peft-0.14.0-py3-none-any.whl"
    return PackResult(
        folder=tmp_path,
        sets=[Part(name="a", files=[torch, peft]), Part(name="b", files=[peft], left_out=["torch", "triton"])],
        others=[],
        pythons=["3.11"],
        fetched=1,
        notes=["there: do this"],
    )


def test_each_part_has_a_size_and_the_total_counts_a_wheel_once(made: PackResult) -> None:
    assert list(pack_text.lines(made)) == [
        "a: 2 wheels, 3.5 MB",
        "b: 1 wheel, 0.5 MB, without torch, triton",
        f"{made.folder}: 3 wheels, 4.5 MB, each counted once; 1 downloaded now",
        "there: do this",
    ]


def test_the_largest_wheel_comes_first_with_its_sets(made: PackResult) -> None:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(pack_text.table(made))
    rows = [line.split() for line in captured.get().splitlines()]
    assert rows[1:] == [["3.0", "torch", "2.6.0", "a"], ["0.5", "peft", "0.14.0", "a,", "b"]]


def test_the_json_document_has_the_same_sizes(made: PackResult) -> None:
    document = pack_text.document(made)
    assert (document["megabytes"], document["wheels"], document["fetched"]) == (4.5, 3, 1)
    assert [(part["name"], part["megabytes"], part["left_out"]) for part in document["sets"]] == [
        ("a", 3.5, []),
        ("b", 0.5, ["torch", "triton"]),
    ]
