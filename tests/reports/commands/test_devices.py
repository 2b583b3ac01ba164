"""``ftmatrix devices``, and ``ftmatrix report`` of runs on both devices: their output, files and exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest

from matrix.versions.sets import PACKAGES
from reports.answers.devices import compare as devices
from reports.results.comparison import DifferenceKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import Outcome, SetRecord

    Command = Callable[..., tuple[int, str, str]]
    RunOf = Callable[[str, str], Path]

CASE = "train-lora-ddp-fp32"


@pytest.fixture
def run_of(
    write_run: Callable[..., Path], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> RunOf:
    """``run_of("cuda", "fail")``: the folder of a run on that device, of one cell."""

    def written(device: str, verdict: str) -> Path:
        outcome = build_outcome(CASE, "2024-06", verdict, lock="abc-pypi", hardware=f"{device}: test")
        columns = [build_set("2024-06", pins=dict.fromkeys(PACKAGES, "0.1"), lock="abc")]
        planned = (f"2024-06__{CASE}",)
        return write_run(outcome, name=f"{device}-{verdict}", columns=columns, device=device, planned=planned)

    return written


def compared(directory: Path) -> dict[str, object]:
    document: dict[str, dict[str, object]] = json.loads((directory / "matrix.json").read_text(encoding="utf-8"))
    return document["devices"]


@pytest.mark.parametrize(("first", "second"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_run_is_compared_with_one_on_another_device(
    first: str, second: str, ftmatrix: Command, run_of: RunOf
) -> None:
    verdicts = {"cpu": "pass", "cuda": "fail"}
    run, other = (run_of(device, verdicts[device]) for device in (first, second))
    code, out, _ = ftmatrix("report", str(run), str(other))
    assert code == 0
    assert "CPU and GPU: 1 cell compared (1 on the same lock): 0 equal, 1 red only on GPUs" in " ".join(out.split())
    assert [each["kind"] for each in compared(run)["differences"]] == [DifferenceKind.GPU]  # type: ignore[attr-defined]
    assert "### Red only on GPUs (1)" in (run / "matrix.md").read_text(encoding="utf-8")
    assert not (other / "matrix.json").exists()


def test_a_run_of_unpublished_sets_is_not_compared(ftmatrix: Command, run_of: RunOf) -> None:
    run = run_of("cuda", "pass")
    assert ftmatrix("report", str(run))[0] == 0
    assert compared(run) is None


def test_runs_on_one_device_are_not_compared(ftmatrix: Command, run_of: RunOf) -> None:
    code, _, err = ftmatrix("report", str(run_of("cuda", "pass")), str(run_of("cuda", "fail")))
    assert code == 2
    assert "is a run on cuda as well: a run is compared with those of another device" in err


def test_rendered_runs_of_a_folder_are_compared(ftmatrix: Command, run_of: RunOf) -> None:
    for device, verdict in (("cpu", "wrong"), ("cuda", "pass")):
        ftmatrix("report", str(run_of(device, verdict)))
    code, out, _ = ftmatrix("devices", "--results", str(run_of("cpu", "pass").parent))
    assert code == 0
    assert f"{CASE}: red only on the CPU (the same lock)" in out


def test_the_published_comparison_matches_the_schema(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("devices", "--json")
    assert code == 0
    jsonschema.validate(json.loads(out), json.loads(devices.SCHEMA_FILE.read_text()))


def test_the_comparison_is_written_as_json_and_markdown(ftmatrix: Command, tmp_path: Path) -> None:
    assert ftmatrix("devices", "--write", str(tmp_path / "devices.json"))[0] == 0
    for suffix in (".json", ".md"):
        written = (tmp_path / "devices.json").with_suffix(suffix)
        assert written.read_bytes() == devices.PUBLISHED.with_suffix(suffix).read_bytes()


def test_the_page_of_gpu_results_is_that_of_the_published_ones(ftmatrix: Command, tmp_path: Path) -> None:
    assert ftmatrix("devices", "--gpu-page", str(tmp_path / "gpu.md"))[0] == 0
    assert (tmp_path / "gpu.md").read_bytes() == (devices.PUBLISHED.parent / "gpu_matrix.md").read_bytes()


def test_the_page_of_gpu_results_has_no_set_with_another_lock(ftmatrix: Command, run_of: RunOf, tmp_path: Path) -> None:
    run = run_of("cuda", "pass")
    ftmatrix("report", str(run))
    assert ftmatrix("devices", "--results", str(run), "--gpu-page", str(tmp_path / "gpu.md"))[0] == 0
    text = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert "0 dated sets, each installed from its own lock: 0 cells" in text
    assert "2024-06" not in text


def test_without_results_of_both_nothing_is_compared(ftmatrix: Command, run_of: RunOf) -> None:
    run = run_of("cpu", "pass")
    ftmatrix("report", str(run))
    code, out, _ = ftmatrix("devices", "--results", str(run))
    assert (code, out) == (1, "No case ran on both a CPU and GPUs, on comparable version sets.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--write", "devices.md"), "expected a name that ends in .json"),
        (("--write", "no/such/folder/devices.json"), "cannot write the file"),
        (("--results", "none"), "holds no results"),
        (("--results", "none", "--gpu-page", "gpu.md"), "holds no results measured on GPUs"),
        (("--gpu-page", "no/such/folder/gpu.md"), "cannot write the file"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...], message: str, ftmatrix: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = ftmatrix("devices", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("ftmatrix: ")
    assert err.count("\n") == 1
