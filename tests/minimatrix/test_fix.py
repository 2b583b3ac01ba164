"""Tests the fix search on the fake ecosystem, with real environments and processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from matrix.run import store
from matrix.search import fixes
from matrix.search.fixes import Fix, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matrix.offline import packing

DRIVER = Path(__file__).with_name("drive_fix.py")
NEXT = {"trl": "0.0.2", "accelerate": "0.0.2"}


@pytest.fixture
def two_sets(mini: Any) -> Any:
    """Adds a set with two other versions."""
    mini.add_set("next", NEXT)
    return mini


def search(mini: Any, *pack: str) -> str:
    """Measure both sets, then search fixes for the red cells of the first; return the fixes as text."""
    folders = [str(mini.folder / name) for name in ("run", "found", "published")]
    command = [sys.executable, str(DRIVER), str(mini.versions), *folders, *pack]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=mini.variables, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_red_cell_gets_its_nearest_fix(two_sets: Any) -> None:
    output, folder = search(two_sets), two_sets.folder
    found = by_case(folder / "published" / "fixes.json.gz")
    setting = found["train-lora-fsdp1-fp32"]
    version = found["train-lora-single-fp32"]
    instead = found["train-vera-single-fp32-accelerate"]
    assert (setting.kind, setting.to_case) == (Kind.SETTINGS, "train-lora-fsdp1-use_orig_params_false-fp32")
    assert (version.kind, version.to_set, version.minimal) == (Kind.VERSIONS, "good+trl0.0.2", True)
    assert (instead.kind, instead.to_case) == (Kind.ALTERNATIVE, "train-lora-single-fp32-accelerate")
    assert "+    use_orig_params=False," in output
    assert "+trl==0.0.2" in output
    _, _, outcomes = store.read(folder / "found")
    runs = [each.cell for each in outcomes]
    assert {runs.count(f"{fix.to_set}__{fix.to_case}") for fix in found.values()} == {2}
    assert {runs.count(f"{fix.set}__{fix.case}") for fix in found.values()} == {1}  # one more run: it was red already
    assert (folder / "published" / "fixes" / "outcomes.parquet").exists()


def test_a_search_in_a_pack_changes_settings_and_stays_within_its_sets(
    two_sets: Any, packed: Callable[[], packing.PackResult]
) -> None:
    packed()
    search(two_sets, str(two_sets.folder / "pack"))
    found = by_case(two_sets.folder / "published" / "fixes.json.gz")
    setting, version = found["train-lora-fsdp1-fp32"], found["train-lora-single-fp32"]
    assert (setting.kind, setting.to_case) == (Kind.SETTINGS, "train-lora-fsdp1-use_orig_params_false-fp32")
    assert (version.kind, version.to_set) == (Kind.NONE, "")


def by_case(path: Path) -> Mapping[str, Fix]:
    return {each.case: each for each in fixes.read(path).fixes}
