"""Complete sets of a pack are installed without an index."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.verdict import Phase
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.offline import manifest
from matrix.offline.manifest import Pack, PackedSet, digest
from matrix.offline.wheelhouse import Wheelhouse
from matrix.processes import Finished
from matrix.run.request import RunRequest
from matrix.versions import locks, sets
from matrix.versions.locks import Lock
from matrix.versions.sets import VersionSet
from matrix.versions.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PINS = dict.fromkeys(sets.PACKAGES, "1.0")
FILE = "peft-1.0-py3-none-any.whl"
SET = VersionSet(key="2025-03", python="3.12", as_of=date(2025, 3, 15), pins=PINS, why="a slice")


class FakeUv:
    """Returns results by the first two words of a command; records commands and variables."""

    def __init__(self, **results: Finished) -> None:
        self.results = results
        self.commands: list[Sequence[str]] = []
        self.environ: Mapping[str, str] = {}

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **_: Any) -> Finished:
        self.commands.append(argv)
        self.environ = env or {}
        if argv[1] == "venv":
            (Path(argv[-1]) / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
        return self.results.get(f"{argv[1]}_{argv[2]}", Finished(exit_code=0, log="[]"))


def a_wheelhouse(tmp_path: Path, uv: FakeUv, *, lock: bool = True) -> Wheelhouse:
    folder = tmp_path / "pack"
    (folder / "wheels").mkdir(parents=True)
    (folder / "wheels" / FILE).write_bytes(b"peft")
    text = f"{locks.header(SET)}\npeft==1.0 --hash=sha256:{digest(folder / 'wheels' / FILE)}\n"
    made = Lock(version_set=SET, text=text)
    locks.write(made, folder=folder / "locks")
    manifest.write(folder, [PackedSet(version_set=SET, wheels=[FILE], lock=made.digest if lock else "")], {})
    variables = {
        "UV_DEFAULT_INDEX": "https://index.example",
        "UV_INDEX": "x",
        "UV_FIND_LINKS": "y",
        "UV_CACHE_DIR": "z",
    }
    tool = Uv(binary=Path("uv"), workdir=tmp_path / "work", variables=variables, call=uv)
    return Wheelhouse(pack=Pack(folder=folder), cache=tmp_path / "cache", uv=tool)


def refused(house: Wheelhouse) -> Evidence:
    made = house.install(house.lock(SET))
    assert isinstance(made, Evidence)
    return made


def test_a_missing_python_blocks_the_set(tmp_path: Path) -> None:
    uv = FakeUv(python_find=Finished(exit_code=2, log="error: No interpreter found for Python 3.12"))
    why = refused(a_wheelhouse(tmp_path, uv))
    assert why.phase is Phase.INSTALL
    assert why.reason.startswith("no working Python 3.12 found (found: none)")


def test_only_the_packs_wheels_are_installed_by_their_hashes(tmp_path: Path) -> None:
    uv = FakeUv(pip_sync=Finished(exit_code=1, log="error: no"))
    house = a_wheelhouse(tmp_path, uv)
    assert refused(house).reason == "no"
    (sync,) = (argv for argv in uv.commands if argv[1:3] == ["pip", "sync"])
    expected = {"--no-index", "--find-links", str(house.pack.wheels_folder), "--require-hashes", "--no-build"}
    assert expected <= set(sync)
    assert {name for name in uv.environ if name.startswith("UV_")} == {"UV_OFFLINE", "UV_CACHE_DIR"}


def test_a_damaged_wheel_is_bad_input(tmp_path: Path) -> None:
    house = a_wheelhouse(tmp_path, FakeUv(pip_sync=Finished(exit_code=1, log="error: Hash mismatch for peft")))
    (house.pack.wheels_folder / FILE).write_bytes(b"pef")
    with pytest.raises(UserError, match=f"{FILE}: damaged"):
        house.install(house.lock(SET))


def test_a_missing_wheel_is_bad_input(tmp_path: Path) -> None:
    house = a_wheelhouse(tmp_path, FakeUv())
    (house.pack.wheels_folder / FILE).unlink()
    with pytest.raises(UserError, match=f"{FILE} is not in"):
        house.install(house.lock(SET))


def test_a_pack_without_a_complete_set_needs_a_hosts_torch(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no complete set; add --system-torch"):
        _ = a_wheelhouse(tmp_path, FakeUv(), lock=False).sets


def test_a_build_of_torch_cannot_be_chosen_offline(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--torch-backend cpu: --offline has one packed build"):
        _ = RunRequest(offline=tmp_path, torch_backend="cpu").packed


def test_an_unknown_group_is_answered_with_the_packed_sets(tmp_path: Path) -> None:
    folder = a_wheelhouse(tmp_path, FakeUv()).pack.folder
    assert [each.key for each in RunRequest(offline=folder).version_sets()] == ["2025-03"]
    with pytest.raises(UserError, match="--sets default: --offline does not have all of them; choose from 2025-03"):
        RunRequest(offline=folder, sets="default").version_sets()


def test_a_folder_that_is_no_pack_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no pack\.toml in it"):
        _ = RunRequest(offline=tmp_path).packed
