"""Tests the session in an environment: its variables, its options, and the suite that it copies."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from cases.flows.scripts import Script
from cases.space.case import Case
from cases.space.options import Options
from matrix.environments.environment import Environment
from matrix.environments.leases import acquire_shared
from matrix.run.execute import Bench, Suite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

import pytest


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    lease = acquire_shared(tmp_path / "env.lock")
    yield Environment(key="s", lock="l", backend="pypi", root=tmp_path / "env", installed={}, lease=lease)
    lease.release()


def test_the_callers_pytest_options_are_ignored(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--maxfail=1")
    found = Bench(scratch=tmp_path, device="cpu", workers=1).variables(environment)
    assert [name for name in found if name.startswith("PYTEST_")] == ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]


def test_a_run_on_the_cpu_sees_no_gpu(environment: Environment, tmp_path: Path) -> None:
    assert Bench(scratch=tmp_path, device="cpu", workers=1).variables(environment)["CUDA_VISIBLE_DEVICES"] == ""


def test_a_set_builds_extensions_in_a_folder_of_its_own(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "shared")
    found = Bench(scratch=tmp_path, device="cpu", workers=1).variables(environment)
    assert found["TORCH_EXTENSIONS_DIR"] == str(tmp_path / "torch_extensions")


def test_there_are_no_more_workers_than_cells(environment: Environment, tmp_path: Path) -> None:
    command = Bench(scratch=tmp_path, device="cpu", workers=8).command(environment, tmp_path, tmp_path, count=2)
    assert command[command.index("-n") + 1] == "2"


def test_the_suite_is_copied_without_the_harness(tmp_path: Path) -> None:
    Suite().copy(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"cases"}


def test_other_case_code_has_another_digest(tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text("x = 1\n")
    assert Suite(extra=(tmp_path / "more.py",)).code.digest != Suite().code.digest


ADDED = Case(
    "beside",
    "not in the grid",
    Options().but(strategy="fsdp1", auto_wrap_policy="size", use_orig_params=False, clip_grad_norm=True),
)


def test_added_cases_do_not_change_the_digest() -> None:
    assert Suite(added=(ADDED,)).code.digest == Suite().code.digest


def test_the_declaration_of_a_users_script_counts_as_its_code() -> None:
    case = Case("scripts", "a command of the user's", Options().but(flow="script", call="mine"))
    stamps = {
        Suite(scripts=(Script(name="mine", command=(word,)),)).stamp(case, ["cases.suite"]) for word in ("a", "b")
    }
    assert len(stamps) == 2


def test_without_reported_modules_the_stamp_names_all() -> None:
    suite = Suite()
    assert suite.stamp(ADDED, []) == suite.code.stamp(suite.code.sources)


def test_added_cases_are_listed_in_an_environment(tmp_path: Path) -> None:
    """Lists the cases in another process, as an environment does."""
    suite = Suite(added=(ADDED,))
    suite.copy(tmp_path)
    expression = f"{ADDED.id!r} in suite.cases, len(suite.cases), suite.profiles['quick'].name"
    program = f"from {suite.entry_module} import SUITE as suite; print({expression})"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert ADDED.id not in Suite().cases
    assert done.stdout.split() == ["True", str(len(Suite().cases) + 1), "quick"]


def test_an_added_case_can_be_asked_for_its_requirements_first(tmp_path: Path) -> None:
    """Where all cells are outside the grid, a worker looks for nothing else before."""
    suite = Suite(added=(ADDED,))
    suite.copy(tmp_path)
    program = f"from {suite.entry_module} import SUITE as suite; print(suite.requirements({ADDED.id!r}, 'cpu'))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("[")


def test_without_added_cases_the_entry_module_is_the_suite(tmp_path: Path) -> None:
    Suite().copy(tmp_path)
    assert Suite().entry_module == "cases.suite"
    assert not list(tmp_path.glob("extra_cases*"))
