"""Which wheel a target takes, and that what lies in a folder is what was asked for."""

from __future__ import annotations

import hashlib
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from matrix import processes
from matrix.errors import UserError
from matrix.offline import wheels
from matrix.offline.wheels import Wheel, accepted, chosen, fetched
from matrix.processes import Finished
from matrix.versions.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONTENT = b"a wheel"
SHA = hashlib.sha256(CONTENT).hexdigest()


def a_row(file: str) -> str:
    return f'{{ url = "https://files.example/a%2Bb/{file}", size = 7, hashes = {{ sha256 = "{SHA}" }} }}'


def a_uv(tmp_path: Path, log: str, *, exit_code: int = 0) -> Uv:
    done = Finished(exit_code=exit_code, log=log)
    return Uv(binary=Path("uv"), workdir=tmp_path, variables={}, call=lambda *_, **__: done)


def offering(tmp_path: Path, *files: str) -> Uv:
    rows = ", ".join(a_row(file) for file in files)
    text = f'warning: odd\nlock-version = "1.0"\n[[packages]]\nname = "Pyarrow"\nversion = "19"\nwheels = [{rows}]\n'
    return a_uv(tmp_path, text)


def picked(tmp_path: Path, *files: str, python: str = "3.12") -> str:
    (one,) = chosen(["pyarrow===19"], python=python, uv=offering(tmp_path, *files))
    return one.file


def test_the_newest_platform_that_the_oldest_host_takes_comes_first(tmp_path: Path) -> None:
    old, fits, new = (f"pyarrow-19-cp312-cp312-manylinux_2_{minor}_x86_64.whl" for minor in (17, 28, 34))
    assert picked(tmp_path, old, fits, new) == fits


def test_a_wheel_of_the_python_comes_before_one_of_any(tmp_path: Path) -> None:
    files = [f"pyarrow-19-py{minor}-none-any.whl" for minor in ("3", "38", "311", "312", "313")]
    assert picked(tmp_path, *files) == "pyarrow-19-py312-none-any.whl"


def test_older_names_of_platforms_and_the_stable_interface_are_taken(tmp_path: Path) -> None:
    assert picked(tmp_path, name := "pyarrow-19-cp38-abi3-manylinux2014_x86_64.whl") == name


def test_the_name_and_the_address_are_read_as_they_are_meant(tmp_path: Path) -> None:
    (one,) = chosen(["pyarrow"], python="3.12", uv=offering(tmp_path, "pyarrow-19-py3-none-any.whl"))
    assert (one.name, one.version, one.size, one.here) == ("pyarrow", "19", 7, None)


@pytest.mark.parametrize("file", ["pyarrow-19-cp311-cp311-manylinux_2_28_x86_64.whl", ""])
def test_what_has_no_wheel_for_the_target_is_one_sentence(tmp_path: Path, file: str) -> None:
    with pytest.raises(UserError, match=r"Pyarrow 19: there is no wheel for Python 3\.12 on Linux"):
        picked(tmp_path, *[file] if file else [])


def test_uv_says_why_something_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"wheels for Python 3\.12 cannot be had: .*no wheels"):
        chosen(["x"], python="3.12", uv=a_uv(tmp_path, "error: x has no wheels\n", exit_code=1))


def test_nothing_for_another_machine_is_accepted() -> None:
    platforms = {tag.platform for tag in accepted("3.12")}
    assert not [name for name in platforms if name != "any" and not name.endswith("x86_64")]
    assert not [name for name in platforms if "musl" in name]


@pytest.fixture
def local(tmp_path: Path) -> Wheel:
    """One that lies on this machine."""
    path = tmp_path / "index" / "peft-1-py3-none-any.whl"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return Wheel(name="peft", version="1", url=path.as_uri(), sha256=SHA)


def fetch(each: Wheel, folder: Path, *, uv: Uv | None = None) -> int:
    return fetched([each], folder, python="3.12", uv=uv or a_uv(folder.parent, ""), say=lambda _: None)


def test_what_is_there_is_not_fetched_again(local: Wheel, tmp_path: Path) -> None:
    assert [fetch(local, tmp_path / "wheels") for _ in range(2)] == [1, 0]


def test_what_is_there_in_part_is_fetched_again(local: Wheel, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / local.file).write_bytes(CONTENT[:3])
    assert fetch(local, tmp_path / "wheels") == 1
    assert (tmp_path / "wheels" / local.file).read_bytes() == CONTENT


def test_a_wheel_of_two_sets_is_fetched_once(local: Wheel, tmp_path: Path) -> None:
    twice = [local, local]
    assert fetched(twice, tmp_path / "wheels", python="3.12", uv=a_uv(tmp_path, ""), say=lambda _: None) == 1


def test_what_has_another_hash_is_not_kept(local: Wheel, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="another hash than the lock says"):
        fetch(replace(local, sha256="0" * 64), tmp_path / "wheels")
    assert list((tmp_path / "wheels").iterdir()) == []


def test_a_disk_that_is_too_small_is_said_before_anything_comes(tmp_path: Path) -> None:
    huge = Wheel(name="x", version="1", url="https://e.example/x-1-py3-none-any.whl", sha256=SHA, stated_size=10**17)
    with pytest.raises(UserError, match="GB are to come"):
        fetch(huge, tmp_path / "wheels")


def pip(write: Callable[[Path], object], *, exit_code: int = 0) -> Callable[..., Finished]:
    """A download that writes what it is told to."""

    def call(argv: Sequence[str], **_: Any) -> Finished:
        assert {"--no-deps", "--no-index", "--only-binary=:all:", "--abi=none", "--platform=any"} <= set(argv)
        write(Path(argv[argv.index("--dest") + 1]) / "x-1-py3-none-any.whl")
        return Finished(exit_code=exit_code, log="" if exit_code == 0 else "ERROR: HTTP error 404")

    return call


REMOTE = Wheel(name="x", version="1", url="https://e.example/x-1-py3-none-any.whl", sha256=SHA)


def test_a_wheel_of_an_index_comes_by_pip_and_under_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    tool = replace(a_uv(tmp_path, ""), call=pip(lambda path: path.write_bytes(CONTENT)))
    assert fetch(REMOTE, tmp_path / "wheels", uv=tool) == 1
    assert [path.name for path in (tmp_path / "wheels").iterdir()] == [REMOTE.file]


def test_pip_brings_a_wheel_to_the_folder_that_was_named_wherever_uv_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[Path] = []

    def write(path: Path) -> None:
        asked.append(path.parent)
        path.write_bytes(CONTENT)

    assert fetch(REMOTE, Path("wheels"), uv=replace(a_uv(tmp_path, ""), call=pip(write))) == 1
    assert [each.is_absolute() for each in asked] == [True]


def test_ctrl_c_ends_what_the_threads_wait_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Event()

    def pressed(_pool: object, bring: Callable[..., None], batches: list[Any]) -> None:
        thread = threading.Thread(target=lambda: ended.append(brought(bring, batches[0])))
        threads.append(thread)
        thread.start()
        assert started.wait(20)
        raise KeyboardInterrupt

    def brought(bring: Callable[..., None], batch: list[Any]) -> str:
        try:
            bring(batch)
        except UserError as error:
            return str(error)
        return ""

    def slow(argv: Sequence[str], **_: Any) -> Finished:  # noqa: ARG001 - the seam's name
        threading.Timer(0.5, started.set).start()
        return processes.call([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=60)

    ended: list[str] = []
    threads: list[threading.Thread] = []
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor.map", pressed)
    with pytest.raises(KeyboardInterrupt):
        fetch(REMOTE, tmp_path / "wheels", uv=replace(a_uv(tmp_path, ""), call=slow))
    threads[0].join(20)
    assert len(ended) == 1
    assert "cannot be fetched" in ended[0]
    assert list((tmp_path / "wheels").iterdir()) == []


def test_a_download_that_fails_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    tool = replace(a_uv(tmp_path, ""), call=pip(lambda path: path.write_bytes(b"half"), exit_code=1))
    with pytest.raises(UserError, match=r"x-1-py3-none-any\.whl cannot be fetched: .*404"):
        fetch(REMOTE, tmp_path / "wheels", uv=tool)
    assert list((tmp_path / "wheels").iterdir()) == []


def test_small_wheels_come_together_and_large_ones_alone() -> None:
    sizes = [10**9, 9 * 10**7, 10**6, *[0] * 13]
    made = wheels.batches([replace(REMOTE, name=f"x{n}", stated_size=size) for n, size in enumerate(sizes)])
    assert [[each.size for each in batch] for batch in made] == [sizes[:1], sizes[1:13], sizes[13:]]


def test_two_releases_of_a_package_do_not_come_together() -> None:
    assert len(wheels.batches([REMOTE, replace(REMOTE, version="2")])) == 2


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be made"):
        wheels.make(tmp_path / "file" / "wheels")
