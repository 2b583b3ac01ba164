"""Runs each script of the action and of the workflows in bash, as a runner does, with stand-ins for what it calls.

A stand-in records its words. What a script passes to the command must be accepted by the real command's parser.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
from ruamel.yaml import YAML

from reports import cli

ROOT: Final = Path(__file__).parents[1]
ACTION: Final = ROOT / "action.yml"
# What a runner starts for `shell: bash`.
BASH: Final = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
STAND_IN: Final = """#!/bin/bash
{ printf '%s\\0' "$(basename "$0")" "$@"; printf '\\n'; } >> "$STAND_IN_CALLS"
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin"; cp "$STAND_INS"/* "$3/bin/"; fi
if [ "$(basename "$0")" = nox ]; then echo "output of a session"; fi
"""
NAMES: Final = ("python", "python3", "nox", "ftmatrix")
TEMPLATE: Final = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")


@dataclass(frozen=True)
class Script:
    """The script of a step, with the values of its variables as the file states them."""

    name: str
    text: str
    variables: dict[str, str]


def scripts() -> list[Script]:
    found = []
    for path in (ACTION, *sorted((ROOT / ".github" / "workflows").glob("*.yml"))):
        document: Any = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
        jobs = document["jobs"] if "jobs" in document else {"action": document["runs"]}
        for job, body in jobs.items():
            steps = [each for each in body["steps"] if "run" in each]
            found += [
                Script(f"{path.stem}-{job}-{number}", each["run"], each.get("env", {}))
                for number, each in enumerate(steps)
            ]
    return found


def inputs() -> dict[str, str]:
    """The inputs of the action with their defaults, as a workflow's expressions name them."""
    document: Any = YAML(typ="safe").load(ACTION.read_text(encoding="utf-8"))
    return {f"inputs.{name}": str(each["default"]) for name, each in document["inputs"].items()}


@dataclass(frozen=True)
class Runner:
    """A clean folder of a job, with stand-ins for the programs that its scripts call."""

    folder: Path

    def begin(self) -> Runner:
        for each in ("stand-ins", "temporary", "work"):
            (self.folder / each).mkdir()
        for name in NAMES:
            path = self.folder / "stand-ins" / name
            path.write_text(STAND_IN, encoding="utf-8")
            path.chmod(0o755)
        return self

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def summary(self) -> Path:
        return self.folder / "summary.md"

    def values(self) -> dict[str, str]:
        python = str(self.folder / "stand-ins" / "python")
        return {
            **inputs(),
            "steps.python.outputs.python-path": python,
            "github.token": "t",
            "secrets.ALERT_WEBHOOK_URL": "",
        }

    def run(self, script: Script, **values: str) -> list[list[str]]:
        """Run a script with values of expressions; return the words of each call, the program first."""
        known = {**self.values(), **values}
        calls = self.folder / "calls"
        calls.unlink(missing_ok=True)
        variables = {name: TEMPLATE.sub(lambda match: known[match[1]], text) for name, text in script.variables.items()}
        runners = {
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "RUNNER_TEMP": str(self.folder / "temporary"),
            "PATH": f"{self.folder / 'stand-ins'}:{os.defpath}",
            "STAND_INS": str(self.folder / "stand-ins"),
            "STAND_IN_CALLS": str(calls),
        }
        path = self.folder / "script.sh"
        path.write_text(script.text, encoding="utf-8")
        done = subprocess.run(
            [*BASH, path], check=False, capture_output=True, text=True, cwd=self.work, env={**runners, **variables}
        )
        assert done.returncode == 0, done.stderr
        lines = calls.read_text(encoding="utf-8").split("\0\n") if calls.exists() else []
        return [line.split("\0") for line in lines if line]


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path).begin()


@pytest.fixture
def left_by_steps(runner: Runner) -> Runner:
    """What earlier steps and jobs leave in the folder."""
    shutil.copytree(runner.folder / "stand-ins", runner.work / ".venv" / "bin")
    for night in ("2026-01-01", "2026-01-02"):
        for device in ("cpu", "cuda"):
            (runner.work / "nightly" / f"{night}-{device}").mkdir(parents=True)
    for device in ("cpu", "gpu"):
        for run in ("1", "2"):
            page = runner.work / "found" / f"matrix-{device}" / "runs" / run / "index.html"
            page.parent.mkdir(parents=True)
            page.write_text(f"{device} {run}", encoding="utf-8")
    return runner


def session_commands() -> dict[str, list[str]]:
    """The words of ``ftmatrix`` that each session of the noxfile runs."""
    calls = [
        each for each in ast.walk(ast.parse((ROOT / "noxfile.py").read_text("utf-8"))) if isinstance(each, ast.Call)
    ]
    found = {}
    for each in calls:
        words = [one.value for one in each.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if isinstance(each.func, ast.Name) and each.func.id == "command" and len(words) == len(each.args):
            found[words[0]] = words[2:]
    return found


def commands(calls: list[list[str]]) -> list[list[str]]:
    """The words that calls pass to ``ftmatrix``, also through a session."""
    sessions, found = session_commands(), []
    for program, *words in calls:
        if program == "ftmatrix":
            found.append(words)
        elif program == "nox":
            assert words[0] == "-s"
            names, _, more = " ".join(words[1:]).partition(" -- ")
            rest = words[words.index("--") + 1 :] if more else []
            found += [[*sessions[name], *rest] for name in names.split() if name in sessions]
    return found


def check_words(words: list[str]) -> None:
    """Parse the words of a command with its real parser, without running it."""
    command: Any = typer.main.get_command(cli.application(words[:1]))
    name, context = words[0], None
    for place, word in enumerate(words):
        if word not in getattr(command, "commands", {}):
            break
        command, name = command.commands[word], word
        rest = words[place + 1 :]
    command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("script", scripts(), ids=lambda each: each.name)
def test_each_script_runs_and_its_commands_are_accepted(script: Script, left_by_steps: Runner) -> None:
    for words in commands(left_by_steps.run(script)):
        check_words(words)


def test_a_word_that_a_command_lacks_would_be_noticed() -> None:
    with pytest.raises(Exception, match="--nosuch"):
        check_words(["pr", "--with", ".", "--nosuch"])


def by_name(part: str) -> Script:
    return next(each for each in scripts() if part in each.name or part in each.text)


def test_the_action_passes_each_package_and_an_input_with_a_space_as_one_word(runner: Runner) -> None:
    changed = {
        "inputs.with": "./my peft\n\ntrl==0.9.6\n",
        "inputs.minutes": "5",
        "inputs.where": "strategy=fsdp2 quant=nf4",
    }
    ((*_, words),) = [runner.run(by_name("action-action"), **changed)]
    options = list(zip(words[2::2], words[3::2], strict=True))
    assert words[:2] == ["ftmatrix", "pr"]
    assert [value for name, value in options if name == "--with"] == ["./my peft", "trl==0.9.6"]
    assert ("--where", "strategy=fsdp2 quant=nf4") in options
    assert ("--minutes", "5") in options
    assert ("--summary", str(runner.summary)) in options


def test_without_a_limit_the_action_passes_none(runner: Runner) -> None:
    calls = runner.run(by_name("action-action"))
    assert "--minutes" not in calls[-1]
    assert ["python", "-m", "pip", "install", "--quiet", str(ROOT)] in calls


def test_the_comparison_of_a_pull_request_is_written_to_the_summary(runner: Runner) -> None:
    runner.run(by_name("nox -s diff"))
    assert runner.summary.read_text(encoding="utf-8") == "output of a session\n"


@pytest.mark.parametrize(("job", "night"), [("nightly-gpu", "2026-01-02-cuda"), ("nightly-cpu", "2026-01-02-cpu")])
def test_the_alerts_of_the_newest_night_of_the_device_are_sent(job: str, night: str, left_by_steps: Runner) -> None:
    script = next(each for each in scripts() if each.name.startswith(job) and "notify" in each.text)
    (words,) = left_by_steps.run(script)
    assert f"nightly/{night}/alerts.json" in words


@pytest.mark.parametrize(("devices", "front"), [(("cpu", "gpu"), "gpu"), (("cpu",), "cpu")])
def test_the_front_page_leads_to_the_newest_report_of_a_gpu_if_there_is_one(
    devices: tuple[str, ...], front: str, left_by_steps: Runner
) -> None:
    for device in {"cpu", "gpu"} - {*devices}:
        for path in sorted((left_by_steps.work / "found" / f"matrix-{device}").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    left_by_steps.run(by_name("matrix-pages"))
    site = left_by_steps.work / "site"
    assert f"url={front}/" in (site / "index.html").read_text(encoding="utf-8")
    assert [(site / each / "index.html").read_text(encoding="utf-8") for each in devices] == [f"{d} 2" for d in devices]
