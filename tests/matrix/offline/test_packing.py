"""Packs have the selected wheels, and sets for another Python have their own name."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from matrix.errors import UserError
from matrix.offline import packing
from matrix.offline.manifest import Pack
from matrix.offline.packing import PackRequest, SelectedSet, for_python, only_for_torch
from matrix.offline.wheels import Wheel
from matrix.processes import Finished
from matrix.versions import locks, sets
from matrix.versions.locks import Lock
from matrix.versions.sets import VersionSet
from matrix.versions.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PINS = dict(zip(sets.PACKAGES, ("2.6.0", "4.49.0", "0.14.0", "0.45.3", "1.5.2", "0.15.2"), strict=True))
REST = {"numpy": "2.2", "jinja2": "3.1", "sympy": "1.13", "mpmath": "1.3", "nvidia-cublas": "12.4", "setuptools": "76"}
VIA = """\
Resolved 12 packages in 3ms
accelerate==1.5.2         # via peft, -r pins.txt
bitsandbytes==0.45.3      # via -r pins.txt
jinja2==3.1               # via torch, -r pins.txt
mpmath==1.3               # via sympy, -r pins.txt
numpy==2.2                # via accelerate, torch, -r pins.txt
nvidia-cublas==12.4       # via torch, -r pins.txt
peft==0.14.0              # via -r pins.txt
setuptools==76            # via torch, -r pins.txt
sympy==1.13               # via torch, -r pins.txt
torch==2.6.0              # via accelerate, bitsandbytes, peft, -r pins.txt
transformers==4.49.0      # via peft, trl, -r pins.txt
trl==0.15.2               # via -r pins.txt
"""


def a_set(**other: Any) -> VersionSet:
    known = {"key": "2025-03", "python": "3.11", "as_of": date(2025, 3, 15), "pins": PINS, "why": "a slice"}
    return VersionSet(**{**known, "extras": {"setuptools": "undeclared"}, **other})


def a_lock(version_set: VersionSet) -> Lock:
    lines = (f"{name}=={version} --hash=sha256:{name}" for name, version in {**PINS, **REST}.items())
    return Lock(version_set=version_set, text="\n".join([locks.header(version_set), *lines]) + "\n")


def wheel_url(folder: Path, name: str, version: str) -> str:
    return (folder / "index" / f"{name.replace('-', '_')}-{version}-py3-none-any.whl").as_uri()


@pytest.fixture
def tool(tmp_path: Path) -> Uv:
    """A uv whose index has one wheel of everything, with the hash of its content."""
    (tmp_path / "index").mkdir()

    def call(argv: Sequence[str], **_: Any) -> Finished:
        if "--annotation-style" in argv:
            return Finished(exit_code=0, log=VIA)
        pins = next(Path(word) for word in argv if word.endswith(".txt")).read_text().splitlines()
        return Finished(exit_code=0, log='lock-version = "1.0"\n' + "".join(package(tmp_path, line) for line in pins))

    return Uv(binary=Path("uv"), workdir=tmp_path / "work", variables={}, call=call)


def package(folder: Path, line: str) -> str:
    name, _, version = line.partition("===")
    url = wheel_url(folder, name, version)
    Path(url.removeprefix("file://")).write_bytes(name.encode())
    sha = hash_of(name)
    row = f'{{ url = "{url}", hashes = {{ sha256 = "{sha}" }} }}'
    return f'[[packages]]\nname = "{name}"\nversion = "{version}"\nwheels = [{row}]\n'


def hash_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


@pytest.fixture
def pack_request(tmp_path: Path) -> PackRequest:
    """A request for one complete set that has a lock, without pytest."""
    lines = (f"{name}=={version} --hash=sha256:{hash_of(name)}" for name, version in {**PINS, **REST}.items())
    made = Lock(version_set=a_set(), text="\n".join([locks.header(a_set()), *lines]) + "\n")
    locks.write(made, folder=tmp_path / "locks")
    (tmp_path / "runner.txt").write_text("")
    return PackRequest(
        sets=[a_set()], folder=tmp_path / "pack", lock_folder=tmp_path / "locks", runner=tmp_path / "runner.txt"
    )


def pack(pack_request: PackRequest, tool: Uv) -> packing.PackResult:
    return packing.pack(pack_request, uv=tool, say=lambda _: None)


def names(folder: Path, key: str = "2025-03") -> set[str]:
    return {name for name, _, _ in Pack(folder=folder).wheels(key)}


def test_a_set_on_another_python_is_another_set() -> None:
    moved = for_python(a_set(default=True), "3.12")
    assert (moved.key, moved.python, moved.default, moved.as_of) == ("2025-03+py3.12", "3.12", False, date(2025, 3, 15))
    assert for_python(a_set(), "3.11") == for_python(a_set(), "") == a_set()


def test_dependencies_of_torch_alone_can_be_left_out(tool: Uv) -> None:
    found = only_for_torch(a_set(), a_lock(a_set()), uv=tool)
    assert found == {"torch", "nvidia-cublas", "jinja2", "sympy", "mpmath"}


def test_a_complete_set_is_packed_with_its_lock(pack_request: PackRequest, tool: Uv) -> None:
    made = pack(pack_request, tool)
    packed = Pack(folder=pack_request.folder)
    (each,) = packed.complete_sets
    assert names(pack_request.folder) == {*PINS, *REST}
    assert packed.lock(each).digest == locks.read(a_set(), folder=pack_request.lock_folder).digest  # type: ignore[union-attr]
    assert (made.fetched, len(made.files)) == (12, 12)
    assert made.size == sum(len(name) for name in {**PINS, **REST})


def test_a_set_without_torch_is_not_complete(pack_request: PackRequest, tool: Uv) -> None:
    made = pack(replace(pack_request, system_torch=True), tool)
    assert Pack(folder=pack_request.folder).complete_sets == ()
    assert names(pack_request.folder) == {"numpy", "setuptools", *PINS} - {"torch"}
    assert made.sets[0].left_out == ["jinja2", "mpmath", "nvidia-cublas", "sympy", "torch"]


def test_patterns_leave_out_packages(pack_request: PackRequest, tool: Uv) -> None:
    pack(replace(pack_request, exclude=["nvidia-*", "Sympy"]), tool)
    assert {*PINS, *REST} - names(pack_request.folder) == {"nvidia-cublas", "sympy"}


def test_a_pattern_without_a_match_is_bad_input(pack_request: PackRequest, tool: Uv) -> None:
    with pytest.raises(UserError, match=r"--exclude nvida-\*: these sets have no such package"):
        pack(replace(pack_request, exclude=["nvida-*"]), tool)


def test_packing_into_the_same_folder_adds_sets_and_shares_wheels(pack_request: PackRequest, tool: Uv) -> None:
    pack(pack_request, tool)
    other = a_set(key="2025-03+other")
    text = (pack_request.lock_folder / "2025-03.txt").read_text().replace("lock of 2025-03:", "lock of 2025-03+other:")
    (pack_request.lock_folder / "2025-03+other.txt").write_text(text)
    made = pack(replace(pack_request, sets=[other]), tool)
    assert [each.key for each in Pack(folder=pack_request.folder).complete_sets] == ["2025-03", "2025-03+other"]
    assert (made.fetched, len(made.files)) == (0, 12)


def test_a_lock_for_another_python_is_stored_in_the_pack(pack_request: PackRequest, tool: Uv) -> None:
    moved = for_python(a_set(), "3.12")
    folder = pack_request.folder / "locks"
    text = (pack_request.lock_folder / "2025-03.txt").read_text().replace(locks.header(a_set()), locks.header(moved))
    locks.write(Lock(version_set=moved, text=text), folder=folder)
    pack(replace(pack_request, python="3.12"), tool)
    assert [each.key for each in Pack(folder=pack_request.folder).complete_sets] == ["2025-03+py3.12"]
    assert not (pack_request.lock_folder / "2025-03+py3.12.txt").exists()


def test_a_set_that_does_not_resolve_for_the_target_is_bad_input(pack_request: PackRequest, tool: Uv) -> None:
    def refuse(argv: Sequence[str], **rest: Any) -> Finished:
        if "--generate-hashes" in argv:
            return Finished(exit_code=1, log="error: numpy==1.24 has no wheels with a matching Python version tag")
        return tool.call(argv, **rest)

    with pytest.raises(UserError, match=r"2025-03\+py3\.13 cannot be packed because it does not resolve: numpy==1"):
        pack(replace(pack_request, python="3.13"), replace(tool, call=refuse))


def test_an_index_with_another_hash_than_the_lock_is_bad_input() -> None:
    other = Wheel(name="peft", version="0.14.0", url="file:///peft-0.14.0-py3-none-any.whl", sha256="f00")
    with pytest.raises(UserError, match=r"2025-03: the index has peft-0\.14\.0-py3-none-any\.whl with another hash"):
        packing.check_hashes([other], a_lock(a_set()))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"python": "three"}, "--python three: expected"),
        ({"folder": Path(__file__)}, "is a file; name a folder"),
    ],
)
def test_bad_input_is_one_sentence(
    pack_request: PackRequest, tool: Uv, wrong: Mapping[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        pack(replace(pack_request, **wrong), tool)


def test_an_installed_harness_is_packed_without_itself(tmp_path: Path, tool: Uv) -> None:
    def nothing(*_: Any, **__: Any) -> Finished:
        return Finished(exit_code=0, log='lock-version = "1.0"\n')

    empty = replace(tool, call=nothing)
    _, notes = packing.pack_harness(
        tmp_path / "harness", python="3.12", uv=empty, say=lambda _: None, source=tmp_path / "none"
    )
    assert "add its wheel" in notes[0]


def test_the_requirements_of_the_harness_come_from_its_source() -> None:
    assert any(line.startswith("uv>=") for line in packing.requirements(packing.SOURCE))
    assert packing.requirements(Path("/no/such/source"))


def test_only_a_complete_set_states_its_lock() -> None:
    complete = SelectedSet(version_set=a_set(), lock=a_lock(a_set()), wheels=[], left_out=[], matched_patterns=[])
    assert complete.packed_set.lock == a_lock(a_set()).digest
    assert replace(complete, left_out=["torch"]).packed_set.lock == ""
