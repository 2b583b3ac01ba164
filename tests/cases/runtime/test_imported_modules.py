"""A process reports the modules of the case code that it imports, before it can crash in them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cases.runtime import imported_modules

ROOT = Path(imported_modules.__file__).parents[2]
CODE = """
import sys
from pathlib import Path
from cases.space import verdict
from cases.runtime import imported_modules as modules
modules.record(modules.note_in(Path(sys.argv[1])))
import json.tool
import cases.space.case
"""


@pytest.fixture
def noted(tmp_path: Path) -> set[str]:
    subprocess.run([sys.executable, "-c", CODE, tmp_path / "modules"], cwd=ROOT, check=True)
    return imported_modules.noted_in(tmp_path / "modules")


def test_modules_that_were_there_before_are_reported(noted: set[str]) -> None:
    assert {"cases", "cases.space", "cases.space.verdict"} <= noted


def test_later_imports_are_reported(noted: set[str]) -> None:
    assert {"cases.space.case", "cases.space.options"} <= noted


def test_modules_of_other_packages_are_not_reported(noted: set[str]) -> None:
    assert all(name.partition(".")[0] == "cases" for name in noted)


def test_a_module_is_reported_before_it_is_executed(tmp_path: Path) -> None:
    (tmp_path / "cases").symlink_to(ROOT / "cases")
    (tmp_path / "crashing.py").write_text("import os\nos._exit(3)\n")
    record = "import sys; sys.path.insert(0, '.'); from pathlib import Path; from cases.runtime import imported_modules"
    code = f"{record} as m; m.FOLDER = Path('.'); m.record(m.note_in(Path('seen'))); import crashing"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert (done.returncode, "crashing" in imported_modules.noted_in(tmp_path / "seen")) == (3, True)


def test_without_a_file_nothing_was_noted(tmp_path: Path) -> None:
    assert imported_modules.noted_in(tmp_path / "missing") == set()
