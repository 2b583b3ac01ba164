"""A pack that was split is the same after it was joined; parts and hosts that do not fit are refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest
import typer

from matrix.errors import UserError
from matrix.offline import joining, splitting
from matrix.offline.interpreters import PackedPython
from reports.cli import application

if TYPE_CHECKING:
    from pathlib import Path

WHEELS = (
    "torch-2.8.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    "numpy-2.3.0-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    "peft-0.17.1-py3-none-any.whl",
)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    (folder / "wheels").mkdir(parents=True)
    for number, name in enumerate(WHEELS):
        (folder / "wheels" / name).write_bytes(bytes([number]) * 900_000)
    (folder / "pack.toml").write_text("[sets]\n")
    return folder


@pytest.fixture
def python(tmp_path: Path) -> PackedPython:
    prefix = tmp_path / "python3.11"
    for name in ("bin/python3.11", "lib/python3.11/os.py", "lib/python3.11/test/test_os.py", "lib/libpython3.11.a"):
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).write_text(name)
    (prefix / "bin/python3").symlink_to("python3.11")
    (prefix / "bin/python3.11").chmod(0o755)
    return PackedPython(version="3.11", prefix=prefix)


@pytest.fixture
def parts(pack: Path, tmp_path: Path) -> Path:
    return splitting.split(pack, tmp_path / "parts", part_bytes=1_000_000).folder


def test_joined_parts_are_the_pack(pack: Path, parts: Path, tmp_path: Path) -> None:
    list(joining.unpack(parts, tmp_path / "target"))
    for path in pack.rglob("*.whl"):
        assert (tmp_path / "target" / "pack" / path.relative_to(pack)).read_bytes() == path.read_bytes()
    sizes = [path.stat().st_size for path in sorted(parts.glob("part-*"))]
    assert len(sizes) == 3
    assert sizes[:2] == [1_000_000] * 2


def test_splitting_again_gives_the_same_parts(pack: Path, parts: Path, tmp_path: Path) -> None:
    for path in pack.rglob("*.whl"):
        path.touch()
    again = splitting.split(pack, tmp_path / "again", part_bytes=1_000_000)
    assert (again.folder / "parts.json").read_text() == (parts / "parts.json").read_text()


def test_second_call_unpacks_nothing(parts: Path, tmp_path: Path) -> None:
    list(joining.unpack(parts, tmp_path / "target"))
    (parts / "part-0000").unlink()
    assert list(joining.unpack(parts, tmp_path / "target")) == [f"{tmp_path / 'target' / 'pack'} is complete"]


@pytest.mark.parametrize("damage", ["missing", "shorter", "changed"])
def test_missing_and_damaged_parts_are_named(parts: Path, tmp_path: Path, damage: str) -> None:
    part = parts / "part-0001"
    data = part.read_bytes()
    if damage == "missing":
        part.unlink()
    else:
        part.write_bytes(data[:-1] if damage == "shorter" else b"x" + data[1:])
    with pytest.raises(joining.UnpackError, match="1 of 3 parts are missing or damaged: part-0001; carry them again"):
        list(joining.unpack(parts, tmp_path / "target"))
    assert not (tmp_path / "target").exists()


def test_interpreter_is_installed_where_it_was(pack: Path, python: PackedPython, tmp_path: Path) -> None:
    splitting.split(pack, tmp_path / "parts", part_bytes=1_000_000, pythons=[python])
    shutil.rmtree(python.prefix)
    list(joining.unpack(tmp_path / "parts", tmp_path / "target"))
    assert (python.prefix / "bin/python3").resolve() == (python.prefix / "bin/python3.11").resolve()
    assert (python.prefix / "bin/python3.11").stat().st_mode & 0o100
    assert (python.prefix / "lib/python3.11/os.py").exists()
    assert not (python.prefix / "lib/python3.11/test").exists()
    assert not list(python.prefix.rglob("*.a"))


def test_present_interpreter_is_left_alone(pack: Path, python: PackedPython, tmp_path: Path) -> None:
    splitting.split(pack, tmp_path / "parts", part_bytes=1_000_000, pythons=[python])
    (python.prefix / "lib/python3.11/os.py").write_text("own")
    list(joining.unpack(tmp_path / "parts", tmp_path / "target"))
    assert (python.prefix / "lib/python3.11/os.py").read_text() == "own"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("glibc", "99.0", "the wheels need glibc 99.0, this host has "),
        ("machine", "riscv", "the pack is for riscv, this host is "),
        ("bytes", 10**18, "1000000000.0 GB needed, "),
        ("schema", 2, "is not of this release of ftmatrix"),
    ],
)
def test_unfit_host_is_refused_before_anything_is_written(
    parts: Path, tmp_path: Path, name: str, value: object, message: str
) -> None:
    index = json.loads((parts / "parts.json").read_text())
    (parts / "parts.json").write_text(json.dumps({**index, name: value}))
    with pytest.raises(joining.UnpackError, match=message):
        list(joining.unpack(parts, tmp_path / "target"))
    assert not (tmp_path / "target").exists()


def test_full_disk_leaves_nothing(parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extract", full)
    with pytest.raises(joining.UnpackError, match="No space left on device; free some space"):
        list(joining.unpack(parts, tmp_path / "target"))
    assert not list((tmp_path / "target").iterdir())


def test_interrupted_copy_of_an_interpreter_goes_on(
    pack: Path, python: PackedPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splitting.split(pack, tmp_path / "parts", part_bytes=1_000_000, pythons=[python])
    shutil.rmtree(python.prefix)
    copied: list[Path] = []

    def full_after_two(source: Path, place: Path, *, follow_symlinks: bool) -> None:
        if len(copied) == 2:
            raise OSError(28, "No space left on device")
        copied.append(place)
        copy(source, place, follow_symlinks=follow_symlinks)

    copy = shutil.copy2
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copy2", full_after_two)
        with pytest.raises(joining.UnpackError, match="No space left on device; free some space, then call again"):
            list(joining.unpack(tmp_path / "parts", tmp_path / "target"))
    assert len(copied) == 2
    assert not (python.prefix / "bin/python3.11").exists()
    lines = list(joining.unpack(tmp_path / "parts", tmp_path / "target"))
    assert lines == [f"{tmp_path / 'target' / 'pack'} is complete", f"installed Python 3.11 at {python.prefix}"]
    assert (python.prefix / "bin/python3").resolve() == python.prefix / "bin/python3.11"
    assert (python.prefix / "lib/python3.11/os.py").exists()


def test_sets_whose_python_is_missing_are_named_before_anything_runs(pack: Path, tmp_path: Path) -> None:
    (pack / "pack.toml").write_text('[sets.here]\npython = "3.11"\n[sets."2024-01"]\npython = "3.99"\n')
    parts = splitting.split(pack, tmp_path / "parts", part_bytes=1_000_000).folder
    lines = [line for line in joining.unpack(parts, tmp_path / "target") if "3.99" in line]
    assert lines == ["no Python 3.99 is here, so 2024-01 will be blocked; install it, or pack with --interpreter"]


def test_no_python_for_ftmatrix_is_named(parts: Path) -> None:
    index = {**json.loads((parts / "parts.json").read_text()), "harness_pythons": ["3.98", "3.99"]}
    with pytest.raises(
        joining.UnpackError, match=r"ftmatrix needs Python 3\.99 or 3\.98, which is not here; install it"
    ):
        joining.harness_python(index)


def test_failed_installation_of_ftmatrix_is_repeated(parts: Path, tmp_path: Path) -> None:
    """A full disk in the middle of pip leaves no digest, so that the next call starts again."""
    (tmp_path / "target" / "pack" / "harness").mkdir(parents=True)
    index = {
        **json.loads((parts / "parts.json").read_text()),
        "harness_pythons": [f"{sys.version_info[0]}.{sys.version_info[1]}"],
    }
    for _ in range(2):
        with pytest.raises(joining.UnpackError, match="ftmatrix could not be installed in"):
            joining.install_harness(tmp_path / "target", index)


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_damaged_list_is_refused(parts: Path, tmp_path: Path, text: str) -> None:
    (parts / "parts.json").write_text(text)
    with pytest.raises(joining.UnpackError, match=r"parts\.json"):
        list(joining.unpack(parts, tmp_path / "target"))


def test_script_runs_without_ftmatrix(parts: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-I", str(parts / "unpack.py"), str(tmp_path / "target"), "run", "--device", "cpu"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"unpacked 3 parts into {tmp_path / 'target' / 'pack'}",
        "error: the pack has no ftmatrix; pack with --with-harness, or run an installed one",
    ]


def test_names_that_lead_out_of_the_folder_are_refused() -> None:
    for name in ("/etc/passwd", "wheels/../../passwd"):
        with pytest.raises(joining.UnpackError, match="leads out of the folder"):
            joining.check_member(tarfile.TarInfo(name))


def test_needs_of_wheels() -> None:
    assert splitting.glibc(WHEELS) == "2.28"
    assert splitting.glibc(WHEELS[1:]) == "2.17"
    assert splitting.glibc(WHEELS[2:]) == ""
    assert splitting.machine(WHEELS) == "x86_64"
    assert splitting.machine(WHEELS[2:]) == ""


@pytest.mark.parametrize(("text", "size"), [("60M", 60_000_000), ("1g", 1_000_000_000), ("2000KB", 2_000_000)])
def test_part_size(text: str, size: int) -> None:
    assert splitting.part_size(text) == size


@pytest.mark.parametrize("text", ["60", "M", "-5M", "60 MiB", "10K"])
def test_bad_part_size(text: str) -> None:
    with pytest.raises(UserError, match=f"--split {text}: expected"):
        splitting.part_size(text)


def test_commands_that_get_the_pack_are_those_that_can_install_from_it() -> None:
    commands = typer.main.get_command(application()).commands  # type: ignore[attr-defined]
    with_option = {name for name, each in commands.items() if any("--offline" in p.opts for p in each.params)}
    assert with_option == set(joining.OFFLINE_COMMANDS)
