from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from reports.render.markdown import code, differences, excerpt, markdown
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.overview import Overview
    from reports.results.grid import Grid

    Known = Callable[[Grid], Overview]
    Run = tuple[RunRecord, list[SetRecord], list[Outcome]]

GOLDEN = Path(__file__).parent / "golden"


def written(run: Run, known: Known, now: datetime) -> str:
    matrix = grid(*run)
    return markdown(run[0], matrix, known(matrix), generated=now)


def test_the_whole_document_matches_the_golden_file(
    small: Run, later: datetime, build_overview: Known, assert_golden: Callable[[str, Path], None]
) -> None:
    assert_golden(written(small, build_overview, later), GOLDEN / "matrix.md")


def test_the_comparison_of_devices_matches_the_golden_file(
    small: Run, build_beside_gpus: Known, assert_golden: Callable[[str, Path], None]
) -> None:
    assert_golden(differences(build_beside_gpus(grid(*small)).devices), GOLDEN / "devices.md")


def test_a_compared_run_has_a_section_with_the_comparison(
    small: Run, later: datetime, build_overview: Known, build_beside_gpus: Known
) -> None:
    assert "## CPU and GPU" not in written(small, build_overview, later)
    assert "## CPU and GPU" in written(small, build_beside_gpus, later)


def test_an_excerpt_has_the_chosen_cells_and_their_legend(small: Run) -> None:
    text = excerpt(grid(*small), cases=["train-lora-fsdp1-bf16", "train-nf4-ddp-bf16"], sets=["2024-06"])
    assert text == (
        "| case | `2024-06` |\n"
        "| --- | :-: |\n"
        "| `train-lora-fsdp1-bf16` | ✗ |\n"
        "| `train-nf4-ddp-bf16` | - |\n\n"
        "`✗` fail · `-` skip\n"
    )


def test_a_gpu_run_is_not_marked_as_cpu(small: Run, later: datetime, build_overview: Known) -> None:
    record = small[0].model_copy(update={"device": "cuda", "hardware": "2 x H200"})
    assert "CPU" not in written((record, *small[1:]), build_overview, later)


def test_hostile_text_stays_in_its_place(hostile: Run, later: datetime, build_beside_gpus: Known) -> None:
    text = written(hostile, build_beside_gpus, later)
    outside_code = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)
    assert "\x1b" not in text
    assert not re.search(r"(?<!\\)<script", outside_code)


def test_a_table_row_has_as_many_cells_whatever_it_holds(hostile: Run, later: datetime, build_overview: Known) -> None:
    row = next(line for line in written(hostile, build_overview, later).splitlines() if line.startswith("| `2024-06`"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 10


def test_a_code_span_holds_backticks() -> None:
    assert code("a `b``c` d`") == "``` a `b``c` d` ```"


def test_a_gpu_run_names_its_driver_and_libraries(small_on_gpus: Run, later: datetime, build_overview: Known) -> None:
    text = written(small_on_gpus, build_overview, later)
    assert "| hardware | cuda: H200 x 2, driver 580.159.04 (CUDA 13.0) |" in text
    assert "| CUDA | NCCL | why |" in text
    assert "| 12.1 | 2.20.5 | a slice of its time |" in text


def test_a_cpu_run_names_no_libraries_of_gpus(small: Run, later: datetime, build_overview: Known) -> None:
    assert "NCCL |" not in written(small, build_overview, later)
