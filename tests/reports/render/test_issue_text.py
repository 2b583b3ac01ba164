"""The text of a report says what a maintainer asks for first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from reports.answers.scripts.repro_cells import outcome_of
from reports.render.issue_text import issue

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.answers.scripts.repro_script import Reproducer
    from reports.results.grid import Grid

    Make = Callable[[str], Reproducer]

RAISES = "2026-11__train-lora-fsdp1-bf16"
SILENT = "2025-12__save_reload-vera-single-fp32"
ERROR = "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"
SPAWNED = (
    "Installed 60 packages\nTraceback\n-- Process 0 terminated with the following error:\nTraceback of the rank\nE"
)


def told(cell: str, make: Make, published: Grid, *, log: str = "") -> str:
    return issue(make(cell), outcome_of(cell, published), published, log=log)


def section(text: str, name: str) -> str:
    (found,) = re.findall(rf"^## {name}\n\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_title_says_the_setup_and_the_error(make: Make, published: Grid) -> None:
    assert told(RAISES, make, published).splitlines()[0] == f"# LoRA + FSDP: {ERROR}"


def test_an_error_is_told_with_where_it_was_raised(make: Make, published: Grid) -> None:
    happens = section(told(RAISES, make, published), "What happens")
    assert happens == f"An error when the model is wrapped:\n\n```\n{ERROR}\n```\n\n"


def test_a_silent_failure_is_told_with_what_was_expected_and_what_came(make: Make, published: Grid) -> None:
    text = told(SILENT, make, published)
    assert text.startswith("# VeRA: the reloaded adapter gives other logits\n")
    assert "| reloaded logits | `0.912` | `<= 5.36e-07` |" in section(text, "What happens")


def test_the_script_is_in_it_whole(make: Make, published: Grid) -> None:
    assert f"```python\n{make(RAISES).text.rstrip()}\n```" in told(RAISES, make, published)


def test_the_traceback_is_of_the_libraries(make: Make, published: Grid) -> None:
    traceback = section(told(RAISES, make, published), "Traceback")
    assert "<suite>" not in traceback
    assert "site-packages/torch/distributed/fsdp/" in traceback
    assert ERROR in traceback


def test_the_scripts_own_traceback_is_better(make: Make, published: Grid) -> None:
    assert (
        section(told(RAISES, make, published, log=SPAWNED), "Traceback").strip() == "```\nTraceback of the rank\nE\n```"
    )


def test_versions_are_those_that_the_script_has(make: Make, published: Grid) -> None:
    text = told(RAISES, make, published)
    versions = section(text, "Versions")
    assert "| torch | 2.15.0 |" in versions
    assert "bitsandbytes" not in versions
    assert "| device | CPU, gloo; not tested on GPUs |" in versions


def test_what_other_versions_do_is_told(make: Make, published: Grid) -> None:
    others = section(told(RAISES, make, published), "Other versions")
    assert "| 2.3.1 | 4.41.2 | 0.11.1 | 0.31.0 | pass |" in others
    assert "| 2.8.0 | 4.56.1 | 0.17.1 | 1.10.1 | the same |" in others


def test_threads_that_are_known_are_named(make: Make, published: Grid) -> None:
    assert "- https://github.com/" in section(told(RAISES, make, published), "Threads that may be about the same")
