"""Results of several devices in one folder stay apart in every report and every answer."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from matrix.errors import UserError
from matrix.run.store import Store
from reports.answers import knowledge
from reports.answers.devices.compare import of_run
from reports.answers.devices.nearness import DEVICES
from reports.answers.diff import sides
from reports.results.grid import grid
from reports.results.loading import load
from reports.site import published_data

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import Outcome, RunRecord, SetRecord

    Command = Callable[..., tuple[int, str, str]]
    Run = tuple[RunRecord, list[SetRecord], list[Outcome]]

CASES = {"cuda": "load-single-fp32", "cpu": "train-lora-ddp-bf16", "cuda-gloo": "train-lora-fsdp2-fp32"}
NOT_MEASURED = '<p class="quiet">Not measured.</p>'
TITLES = {"cuda": "GPU (cuda)", "cpu": "CPU (gloo)", "cuda-gloo": "one GPU that all ranks share (cuda-gloo)"}


@pytest.fixture
def folder(small: Run, tmp_path: Path, build_outcome: Callable[..., Outcome]) -> Path:
    """A run on each device, with one cell each, as ``--device both`` and ``--device cuda-gloo`` write them."""
    record, sets, _ = small
    for device, case in CASES.items():
        hardware = f"{device}: a model x 1"
        changed = {"device": device, "hardware": hardware, "planned": (f"{sets[0].key}__{case}",)}
        store = Store.create(tmp_path / "runs" / device, record.model_copy(update=changed))
        store.note(sets[0])
        store.append(build_outcome(case, sets[0].key, "pass", hardware=hardware))
        store.close()
    return tmp_path / "runs"


@pytest.fixture
def rendered(folder: Path, ftmatrix: Command) -> Path:
    code, _, _ = ftmatrix("report", str(folder))
    assert code == 0
    return folder


@pytest.mark.parametrize("device", CASES)
def test_each_report_names_its_device_and_has_its_cells_only(rendered: Path, device: str) -> None:
    run, case = rendered / device, CASES[device]
    assert TITLES[device] in (run / "matrix.md").read_text().splitlines()[0]
    assert TITLES[device] in (run / "index.html").read_text()
    document = json.loads((run / "matrix.json").read_text())
    assert (document["device"], [each["case"] for each in document["cells"]]) == (device, [case])
    table = pd.read_parquet(run / "outcomes.parquet")
    assert (list(table["device"]), list(table["case"])) == ([device], [case])
    suite = ET.fromstring((run / "junit.xml").read_text())  # noqa: S314 - what we wrote ourselves
    assert [each.get("value") for each in suite.iter("property") if each.get("name") == "device"] == [device]


@pytest.mark.parametrize("device", CASES)
def test_each_other_report_has_no_word_of_the_cells(rendered: Path, device: str) -> None:
    others = [case for name, case in CASES.items() if name != device]
    text = (rendered / device / "matrix.md").read_text() + (rendered / device / "junit.xml").read_text()
    assert not [case for case in others if case in text]


def test_a_folder_is_rendered_elsewhere_by_device(folder: Path, tmp_path: Path, ftmatrix: Command) -> None:
    ftmatrix("report", str(folder), "--out", str(tmp_path / "pages"))
    assert {each.name for each in (tmp_path / "pages").iterdir()} == set(CASES)


def test_only_one_run_can_be_published(folder: Path, tmp_path: Path, ftmatrix: Command) -> None:
    code, _, err = ftmatrix("report", str(folder), "--publish", str(tmp_path / "published"))
    assert (code, "holds a run for each device (cpu, cuda, cuda-gloo); give one of them" in err) == (2, True)


def test_answers_have_a_grid_for_each_device(rendered: Path) -> None:
    assert {device: list(each.cases) for device, each in knowledge.by_device(rendered).items()} == {
        device: [case] for device, case in CASES.items()
    }


def test_the_site_keeps_the_cells_of_each_device_apart(folder: Path) -> None:
    data = published_data.load(folder)
    assert {device: list(each.cases) for device, each in data.grids.items()} == {
        device: [case] for device, case in CASES.items()
    }


def test_the_site_is_written_with_a_name_for_each_device(folder: Path, tmp_path: Path, ftmatrix: Command) -> None:
    code, _, _ = ftmatrix("report", str(folder), "--site", str(tmp_path / "site"))
    assert code == 0
    for device, case in CASES.items():
        text = (tmp_path / "site" / "case" / f"{case}.html").read_text()
        unmeasured = [name for name in DEVICES if f"<h3>{DEVICES[name]}</h3>\n{NOT_MEASURED}" in text]
        assert sorted([*unmeasured, device]) == sorted(CASES)


def test_runs_on_different_devices_are_not_compared(folder: Path) -> None:
    with pytest.raises(UserError, match="`ftmatrix devices` compares devices"):
        sides.find(str(folder / "cuda"), str(folder / "cuda-gloo"))


def test_ranks_that_share_a_gpu_are_no_side_of_the_comparison_of_cpu_and_gpu(folder: Path) -> None:
    runs = {device: load(folder / device) for device in CASES}
    others = {device: runs[device].matrix for device in ("cpu", "cuda")}
    shared = runs["cuda-gloo"]
    assert not of_run("cuda-gloo", grid(shared.record, shared.sets, shared.outcomes), others).pairs
