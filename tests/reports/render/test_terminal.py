from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from cases.space.verdict import Verdict
from reports.render.terminal import TerminalReport, layout
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.overview import Overview
    from reports.results.grid import Grid

    Run = tuple[RunRecord, list[SetRecord], list[Outcome]]
    Printed = Callable[[Run, int], str]


@pytest.fixture
def printed(build_overview: Callable[[Grid], Overview]) -> Printed:
    def draw(run: Run, width: int) -> str:
        console = Console(file=io.StringIO(), width=width, color_system=None)
        matrix = grid(*run)
        console.print(TerminalReport(record=run[0], grid=matrix, known=build_overview(matrix)))
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    return draw


@pytest.fixture
def many(build_outcome: Callable[..., Outcome], build_set: Callable[..., SetRecord], small: Run) -> Run:
    """Fourteen sets, and a name that is wider than its column."""
    sets = [build_set(f"20{20 + n}-06") for n in range(14)]
    case = "train-qlora-nf4-bnb_4bit_quant_storage_bf16-fsdp1-flat-auto_wrap_policy_none-bf16-noadapterfp32"
    return small[0].model_copy(update={"planned": ()}), sets, [build_outcome(case, column.key) for column in sets]


def test_keys_head_the_columns_where_they_fit(small: Run, printed: Printed) -> None:
    assert re.search(r"case +2024-06 +2024-09 +2025-09", printed(small, 100))


def test_fourteen_sets_fit_eighty_columns(many: Run, printed: Printed) -> None:
    text = printed(many, 80)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert text.count("✓") == 14 + 1  # and the legend


def test_numbered_columns_have_a_key(many: Run, printed: Printed) -> None:
    assert "14  2033-06  torch 2.3.1" in printed(many, 80)


def test_columns_that_do_not_fit_go_to_another_block(many: Run) -> None:
    shape = layout(many[1], ["x" * 50], 40)
    assert [column.key for block in shape.blocks for column in block] == [column.key for column in many[1]]
    assert all(shape.name + 3 * len(block) <= 40 for block in shape.blocks)


def test_the_summary_names_every_verdict(small: Run, printed: Printed) -> None:
    summary = next(line for line in printed(small, 200).splitlines() if " cells: " in line)
    assert all(f" {word}" in summary for word in [*(v.value for v in Verdict), "unknown"])


def test_a_failure_is_printed_once_with_its_sets(small: Run, printed: Printed) -> None:
    text = printed(small, 120)
    assert text.count("ValueError: Must flatten tensors with uniform requires_grad") == 1
    assert "2024-06__train-lora-fsdp1-bf16  ✗ fail  wrap\n  also on 2024-09" in re.sub(r" +\n", "\n", text)


def test_one_line_counts_the_differences_on_gpus(small: Run, build_beside_gpus: Callable[[Grid], Overview]) -> None:
    console = Console(file=io.StringIO(), width=400, color_system=None)
    matrix = grid(*small)
    console.print(TerminalReport(record=small[0], grid=matrix, known=build_beside_gpus(matrix)))
    assert isinstance(console.file, io.StringIO)
    assert "CPU and GPU: 7 cells compared (7 on the same six versions): 3 equal, 2 red only on GPUs, 2 red only on" in (
        console.file.getvalue()
    )


def test_hostile_text_cannot_control_the_terminal(hostile: Run, printed: Printed) -> None:
    assert not re.search("[\x00\x1b\u202e]", printed(hostile, 80))
