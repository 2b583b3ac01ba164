"""What a case needs is asked of the version and the machine, and its absence is a sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cases.grid.profiles import EVERY
from cases.probes import requirements
from cases.probes.requirements import NEEDS, PROBES, Need, applicable
from cases.space.options import Options
from cases.space.place import Place
from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = Options()
BINARY = "bitsandbytes_binary"
GPU = Place(0, 1, 0)
HERE = Path()


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: need.name)
def test_every_need_begins_a_sentence(need: Need) -> None:
    assert len(need.because.split()) > 2
    assert not need.because.endswith((".", ":"))


def test_no_two_needs_have_the_same_name() -> None:
    assert len(PROBES) == len(NEEDS)


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: need.name)
def test_every_need_is_some_cases(need: Need) -> None:
    assert [row.id for row in EVERY if need in applicable(row.options, "cuda" if need.cuda_only else "cpu")]


def test_a_probe_has_as_many_ranks_as_the_cases_that_need_it_or_fewer() -> None:
    assert all(need.ranks <= row.ranks for row in EVERY for need in applicable(row.options, "cpu"))


def test_the_plain_case_needs_nothing() -> None:
    assert applicable(PLAIN, "cpu") == []


def test_a_gpu_has_what_only_a_cpu_can_lack() -> None:
    needed = applicable(PLAIN.but(strategy="fsdp1", quant="nf4"), "cuda")
    assert [need.name for need in needed if not need.cuda_only] == []


@pytest.mark.parametrize(
    ("options", "needs_it"),
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
def test_what_is_of_bitsandbytes_needs_its_binary_on_a_gpu_only(options: dict[str, str], *, needs_it: bool) -> None:
    point = PLAIN.but(**options)
    assert (BINARY in [need.name for need in applicable(point, "cuda")]) == needs_it
    assert BINARY not in [need.name for need in applicable(point, "cpu")]


@pytest.fixture
def bitsandbytes_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A bitsandbytes whose folder has these binaries, and whose own rule chooses ``chosen``."""

    def made(*binaries: str, chosen: str, specs: object = "of a GPU") -> None:
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
        monkeypatch.setattr(requirements, "version", lambda _name: "0.45.3")

    return made


def test_a_binary_that_is_missing_is_said_with_those_that_there_are(bitsandbytes_with: Callable[..., None]) -> None:
    bitsandbytes_with("cpu", "cuda118", "cuda118_nocublaslt", "cuda126", "cuda124", "rocm62", chosen="cuda130")
    with pytest.raises(LackingError, match=r"^0\.45\.3 has none for 13\.0, it has 11\.8, 12\.4, 12\.6$"):
        PROBES[BINARY](GPU, HERE)


def test_a_wheel_without_any_binary_for_gpus_says_so(bitsandbytes_with: Callable[..., None]) -> None:
    bitsandbytes_with("cpu", chosen="cuda130")
    with pytest.raises(LackingError, match="it has none for any"):
        PROBES[BINARY](GPU, HERE)


def test_a_near_binary_that_bitsandbytes_itself_would_take_will_do(bitsandbytes_with: Callable[..., None]) -> None:
    bitsandbytes_with("cpu", "cuda128", chosen="cuda128")
    PROBES[BINARY](GPU, HERE)


def test_a_bitsandbytes_that_cannot_be_imported_is_the_cases_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    PROBES[BINARY](GPU, HERE)
