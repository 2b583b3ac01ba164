"""Workflows upload nothing that may hold a secret."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from matrix.run.store import OUTCOMES, RUN, SETS, WORK

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKFLOWS = sorted((Path(__file__).parents[1] / ".github" / "workflows").glob("*.yml"))
RENDERED = {"index.html", "junit.xml", "matrix.json", "matrix.md", "outcomes.parquet"}
MASKED = {OUTCOMES, RUN, SETS, "logs/"}


def uploads(workflow: Path) -> Iterator[str]:
    """Every path that a step of the workflow uploads."""
    document: Any = YAML(typ="safe").load(workflow.read_text(encoding="utf-8"))
    for job in document["jobs"].values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/upload-artifact@"):
                yield from step["with"]["path"].split()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_upload_rendered_reports_and_masked_outcomes_only(workflow: Path) -> None:
    assert not MASKED & {WORK, f"{WORK}/"}
    assert {path.removeprefix("runs/*/") for path in uploads(workflow)} <= RENDERED | MASKED


def test_the_nightly_workflow_uploads_reports() -> None:
    (nightly,) = (path for path in WORKFLOWS if path.stem == "nightly")
    assert "runs/*/index.html" in set(uploads(nightly))
