from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cases import suite
from cases.probes import requirements
from cases.runtime.wire import Job
from cases.space.verdict import PROBING, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator


class Says:
    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def phase(self, _reached: Phase) -> None: ...

    def facts(self, found: dict[str, Any]) -> None:
        self.told.update(found)


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Says:
    ungrouped = SimpleNamespace(is_initialized=lambda: False)
    torch = SimpleNamespace(set_num_threads=int, distributed=ungrouped)
    for name, module in (("torch", torch), ("torch.distributed", ungrouped)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(suite, "disable_progress_bars", lambda: None)
    monkeypatch.setattr("cases.model.architectures.checkpoint", lambda *_: None)
    return Says()


def waiting(_path: str) -> Iterator[None]:
    yield


def probe(folder: Path) -> Job:
    return Job(kind="probe", name="four_bit", ranks=1, device="cpu", folder=str(folder), cache=str(folder))


def test_what_fails_before_a_probe_is_no_complaint_of_it(
    says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise RuntimeError("this GPU cannot be used")

    monkeypatch.setattr(suite, "process_group", refuse)
    with pytest.raises(RuntimeError, match="cannot be used"):
        suite.SUITE.run(probe(tmp_path), 0, 0, waiting, says)
    assert PROBING not in says.told


def test_what_a_probe_raises_is_its_complaint(says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: Any) -> None:
        raise RuntimeError("no such option")

    monkeypatch.setitem(requirements.PROBES, "four_bit", lacking)
    with pytest.raises(RuntimeError, match="no such option"):
        suite.SUITE.run(probe(tmp_path), 0, 0, waiting, says)
    assert PROBING in says.told


def test_a_process_that_runs_cells_imports_no_module_that_only_some_cells_need() -> None:
    loaded = "[name for name in sys.modules if name.startswith(('cases.grid', 'cases.api', 'cases.probes'))]"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, cases.suite; print({loaded})"],
        cwd=Path(suite.__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
