"""Workflows and the action upload no secret, inject no text into a script, and run commands of this repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main
from ruamel.yaml import YAML

from matrix.run.store import OUTCOMES, RUN, SETS, WORK
from reports import cli
from reports.commands.nights import night

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = ROOT / "action.yml"
RENDERED = {"index.html", "junit.xml", "matrix.json", "matrix.md", "outcomes.parquet"}
MASKED = {OUTCOMES, RUN, SETS, "logs/"}
MAP = {"matrix/api_map/data/"}  # read from public wheels
OF_NIGHTS = {night.ALERTS, night.FILED, night.DIFF}  # made of masked outcomes


def loaded(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> Iterator[Any]:
    """Every step of a workflow or of the action."""
    document = loaded(path)
    for job in document["jobs"].values() if "jobs" in document else [document["runs"]]:
        yield from job["steps"]


def uploads(workflow: Path) -> Iterator[str]:
    """Every path that a step of the workflow uploads."""
    for step in steps(workflow):
        if step.get("uses", "").startswith("actions/upload-artifact@"):
            yield from step["with"]["path"].split()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_upload_rendered_reports_and_masked_outcomes_only(workflow: Path) -> None:
    assert not MASKED & {WORK, f"{WORK}/"}
    inside = {path.removeprefix("runs/*/").removeprefix("nightly/*/") for path in uploads(workflow)}
    assert inside <= RENDERED | MASKED | OF_NIGHTS | MAP


@pytest.mark.parametrize(("name", "page"), [("matrix", "runs/*/index.html"), ("nightly", "nightly/*/index.html")])
def test_workflows_that_measure_upload_reports(name: str, page: str) -> None:
    (workflow,) = (path for path in WORKFLOWS if path.stem == name)
    assert page in set(uploads(workflow))


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.stem)
def test_no_script_contains_a_template(path: Path) -> None:
    assert [step["run"] for step in steps(path) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_sessions_that_exist(workflow: Path) -> None:
    noxfile = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    known = {
        *re.findall(r'^command\("(\w+)"', noxfile, re.MULTILINE),
        *re.findall(r"^def (\w+)", noxfile, re.MULTILINE),
    }
    lines = [line for step in steps(workflow) for line in step.get("run", "").splitlines()]
    named = [match[1].split() for line in lines if (match := re.search(r"nox -s ([\w ]+?)(?: --|$)", line))]
    assert named
    assert {name for names in named for name in names} <= known


def test_the_inputs_of_the_action_are_options_of_the_command() -> None:
    command: Any = typer.main.get_command(cli.application(["pr"]))
    options = {option for parameter in command.commands["pr"].params for option in parameter.opts}
    assert {f"--{name}" for name in loaded(ACTION)["inputs"]} <= options
