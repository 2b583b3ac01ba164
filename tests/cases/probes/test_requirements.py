"""Tests of the requirements of cases and their probes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cases.grid.profiles import EVERY
from cases.probes import bitsandbytes
from cases.probes.requirements import PROBES, REQUIREMENTS, SHARING, applicable
from cases.space.options import Options
from cases.space.place import Place
from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.probes.requirement import Requirement

PLAIN = Options()
BINARY = "bitsandbytes_binary"
GPU = Place(0, 1, 0)
HERE = Path()


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.name)
def test_every_requirement_begins_a_sentence(requirement: Requirement) -> None:
    assert len(requirement.because.split()) > 2
    assert not requirement.because.endswith((".", ":"))


def test_requirement_names_are_unique() -> None:
    assert len(PROBES) == len(REQUIREMENTS)


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.name)
def test_every_requirement_belongs_to_a_case(requirement: Requirement) -> None:
    assert [row.id for row in EVERY if requirement in applicable(row.options, device_that_can_lack(requirement))]


def device_that_can_lack(requirement: Requirement) -> str:
    return "cuda-gloo" if requirement.shared_only else "cuda" if requirement.cuda_only else "cpu"


def test_a_probe_uses_no_more_ranks_than_the_cases_that_require_it() -> None:
    assert all(requirement.ranks <= row.ranks for row in EVERY for requirement in applicable(row.options, "cpu"))


def test_the_default_case_has_no_requirements() -> None:
    assert applicable(PLAIN, "cpu") == []


def test_a_gpu_machine_skips_the_probes_for_cpu_machines() -> None:
    found = applicable(PLAIN.but(strategy="fsdp1", quant="nf4"), "cuda")
    assert [each.name for each in found if not each.cuda_only] == []


def test_ranks_that_share_a_gpu_need_of_gloo_what_ranks_on_a_cpu_do() -> None:
    found = applicable(PLAIN.but(strategy="fsdp1", quant="nf4"), "cuda-gloo")
    assert {each.name: each.because for each in found if not each.cuda_only} == {"fsdp1": SHARING}


def test_only_ranks_that_share_a_gpu_lack_one_of_their_own() -> None:
    call = PLAIN.but(flow="api", call="device_map_over_two_gpus")
    assert [each.name for each in applicable(call, "cuda-gloo")] == ["gpu_of_each_rank"]
    assert applicable(call, "cuda") == []
    with pytest.raises(LackingError, match="all ranks share one GPU"):
        PROBES["gpu_of_each_rank"](Place.on("cuda-gloo", 0, 1), HERE)


@pytest.mark.parametrize(
    ("options", "required"),
    [
        ({"quant": "nf4"}, True),
        ({"quant": "int8"}, True),
        ({"optim": "adamw_8bit"}, True),
        ({"optim": "paged_adamw_8bit"}, True),
        ({"flow": "api", "call": "merge_into_four_bit"}, True),
        ({"flow": "api", "call": "merge_twice"}, False),
        ({"optim": "adamw"}, False),
    ],
)
def test_cases_with_bitsandbytes_require_its_binary_on_a_gpu_only(options: dict[str, str], *, required: bool) -> None:
    point = PLAIN.but(**options)
    assert (BINARY in [each.name for each in applicable(point, "cuda")]) == required
    assert BINARY not in [each.name for each in applicable(point, "cpu")]


@pytest.fixture
def bitsandbytes_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Fake a bitsandbytes whose folder has these binaries, and whose own rule chooses ``chosen``."""

    def create(*binaries: str, chosen: str, specs: object = "of a GPU") -> None:
        for name in binaries:
            (tmp_path / f"libbitsandbytes_{name}.so").touch()
        path = tmp_path / f"libbitsandbytes_{chosen}.so"
        modules = {
            "torch": SimpleNamespace(version=SimpleNamespace(cuda="13.0")),
            "bitsandbytes": SimpleNamespace(),
            "bitsandbytes.cextension": SimpleNamespace(get_cuda_bnb_library_path=lambda _specs: path),
            "bitsandbytes.cuda_specs": SimpleNamespace(get_cuda_specs=lambda: specs),
        }
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(bitsandbytes, "version", lambda _name: "0.45.3")

    return create


def test_a_missing_binary_is_reported_with_the_available_ones(bitsandbytes_with: Callable[..., None]) -> None:
    bitsandbytes_with("cpu", "cuda118", "cuda118_nocublaslt", "cuda126", "cuda124", "rocm62", chosen="cuda130")
    with pytest.raises(LackingError, match=r"^0\.45\.3 has none for 13\.0, it has 11\.8, 12\.4, 12\.6$"):
        PROBES[BINARY](GPU, HERE)


def test_a_wheel_without_gpu_binaries_is_reported(bitsandbytes_with: Callable[..., None]) -> None:
    bitsandbytes_with("cpu", chosen="cuda130")
    with pytest.raises(LackingError, match="it has none for any"):
        PROBES[BINARY](GPU, HERE)


def test_a_binary_that_bitsandbytes_itself_falls_back_to_is_enough(bitsandbytes_with: Callable[..., None]) -> None:
    bitsandbytes_with("cpu", "cuda128", chosen="cuda128")
    PROBES[BINARY](GPU, HERE)


def test_the_probe_leaves_an_import_error_to_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    PROBES[BINARY](GPU, HERE)
