"""A bug report has the information that a maintainer needs first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from reports.answers.scripts.repro_cells import outcome_of
from reports.render.text.issue_text import issue, without_wrappers

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


def issue_of(cell: str, make: Make, published: Grid, *, log: str = "") -> str:
    return issue(make(cell), outcome_of(cell, published), published, log=log)


def section(text: str, name: str) -> str:
    (found,) = re.findall(rf"^## {name}\n\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_title_has_the_setup_and_the_error(make: Make, published: Grid) -> None:
    assert issue_of(RAISES, make, published).splitlines()[0] == f"# LoRA + FSDP: {ERROR}"


def test_a_report_has_the_error_and_its_phase(make: Make, published: Grid) -> None:
    happens = section(issue_of(RAISES, make, published), "What happens")
    assert happens == f"An error when the model is wrapped:\n\n```\n{ERROR}\n```\n\n"


def test_a_report_of_a_silent_failure_has_the_expected_and_the_measured_value(make: Make, published: Grid) -> None:
    text = issue_of(SILENT, make, published)
    assert text.startswith("# VeRA: the reloaded adapter gives other logits\n")
    assert "| reloaded logits | `0.912` | `<= 5.36e-07` |" in section(text, "What happens")


def test_a_report_has_the_whole_script(make: Make, published: Grid) -> None:
    assert f"```python\n{make(RAISES).text.rstrip()}\n```" in issue_of(RAISES, make, published)


def test_the_traceback_has_only_frames_of_the_libraries(make: Make, published: Grid) -> None:
    traceback = section(issue_of(RAISES, make, published), "Traceback")
    assert "<suite>" not in traceback
    assert "site-packages/torch/distributed/fsdp/" in traceback
    assert ERROR in traceback


def test_the_traceback_of_the_script_replaces_that_of_the_cell(make: Make, published: Grid) -> None:
    assert (
        section(issue_of(RAISES, make, published, log=SPAWNED), "Traceback").strip()
        == "```\nTraceback of the rank\nE\n```"
    )


def test_a_report_lists_the_versions_of_the_script(make: Make, published: Grid) -> None:
    text = issue_of(RAISES, make, published)
    versions = section(text, "Versions")
    assert "| torch | 2.15.0 |" in versions
    assert "bitsandbytes" not in versions
    assert "| device | CPU, gloo; not tested on GPUs |" in versions


def test_a_report_has_the_results_of_other_versions(make: Make, published: Grid) -> None:
    others = section(issue_of(RAISES, make, published), "Other versions")
    assert "| 2.3.1 | 4.41.2 | 0.11.1 | 0.31.0 | pass |" in others
    assert "| 2.8.0 | 4.56.1 | 0.17.1 | 1.10.1 | the same |" in others


def test_a_report_links_known_threads(make: Make, published: Grid) -> None:
    assert "- https://github.com/" in section(issue_of(RAISES, make, published), "Threads that may be about the same")


def test_a_report_has_the_known_cause_and_its_threads(make: Make, published: Grid) -> None:
    text = issue_of(RAISES, make, published)
    assert section(text, "Cause, as far as known").startswith("FSDP1 joins the parameters of a unit")
    assert "https://github.com/huggingface/" in section(text, "Threads that may be about the same")


def test_the_traceback_has_no_frames_of_decorators(make: Make, published: Grid) -> None:
    cell = "2025-12__train-lora-nf4-fsdp2-bf16"
    measured = outcome_of(cell, published).error
    assert measured is not None
    assert "in decorate_context" in measured.traceback
    traceback = section(issue_of(cell, make, published), "Traceback")
    assert "in decorate_context" not in traceback
    assert "_fsdp_param.py" in traceback


def test_a_decorator_that_raised_stays() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/x/torch/nn/modules/module.py", line 1, in _call_impl\n    f()\n'
        "TypeError: bad\n"
    )
    assert without_wrappers(text) == text
