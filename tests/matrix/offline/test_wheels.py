"""A target gets its preferred wheels, downloaded completely."""

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
from matrix.offline.wheels import Wheel, accepted_tags, select_wheels
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
    (one,) = select_wheels(["pyarrow===19"], python=python, uv=offering(tmp_path, *files))
    return one.file


def test_the_newest_platform_that_the_oldest_host_supports_is_preferred(tmp_path: Path) -> None:
    old, fits, new = (f"pyarrow-19-cp312-cp312-manylinux_2_{minor}_x86_64.whl" for minor in (17, 28, 34))
    assert picked(tmp_path, old, fits, new) == fits


def test_a_wheel_for_the_python_version_is_preferred(tmp_path: Path) -> None:
    files = [f"pyarrow-19-py{minor}-none-any.whl" for minor in ("3", "38", "311", "312", "313")]
    assert picked(tmp_path, *files) == "pyarrow-19-py312-none-any.whl"


def test_older_platform_names_and_the_stable_abi_are_accepted(tmp_path: Path) -> None:
    assert picked(tmp_path, name := "pyarrow-19-cp38-abi3-manylinux2014_x86_64.whl") == name


def test_name_and_url_are_normalised(tmp_path: Path) -> None:
    (one,) = select_wheels(["pyarrow"], python="3.12", uv=offering(tmp_path, "pyarrow-19-py3-none-any.whl"))
    assert (one.name, one.version, one.size, one.local_path) == ("pyarrow", "19", 7, None)


@pytest.mark.parametrize("file", ["pyarrow-19-cp311-cp311-manylinux_2_28_x86_64.whl", ""])
def test_a_package_without_a_wheel_for_the_target_is_bad_input(tmp_path: Path, file: str) -> None:
    with pytest.raises(UserError, match=r"Pyarrow 19 has no wheel for Python 3\.12 on Linux"):
        picked(tmp_path, *[file] if file else [])


def test_an_unresolvable_requirement_is_bad_input_with_uvs_reason(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"wheels for Python 3\.12 cannot be resolved: .*no wheels"):
        select_wheels(["x"], python="3.12", uv=a_uv(tmp_path, "error: x has no wheels\n", exit_code=1))


def test_wheels_for_other_machines_are_not_accepted() -> None:
    platforms = {tag.platform for tag in accepted_tags("3.12")}
    assert not [name for name in platforms if name != "any" and not name.endswith("x86_64")]
    assert not [name for name in platforms if "musl" in name]


@pytest.fixture
def local(tmp_path: Path) -> Wheel:
    """A wheel on this machine."""
    path = tmp_path / "index" / "peft-1-py3-none-any.whl"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return Wheel(name="peft", version="1", url=path.as_uri(), sha256=SHA)


def fetch(each: Wheel, folder: Path, *, uv: Uv | None = None) -> int:
    return wheels.fetch([each], folder, python="3.12", uv=uv or a_uv(folder.parent, ""), say=lambda _: None)


def test_an_intact_wheel_is_not_fetched_again(local: Wheel, tmp_path: Path) -> None:
    assert [fetch(local, tmp_path / "wheels") for _ in range(2)] == [1, 0]


def test_a_truncated_wheel_is_fetched_again(local: Wheel, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / local.file).write_bytes(CONTENT[:3])
    assert fetch(local, tmp_path / "wheels") == 1
    assert (tmp_path / "wheels" / local.file).read_bytes() == CONTENT


def test_a_wheel_of_two_sets_is_fetched_once(local: Wheel, tmp_path: Path) -> None:
    twice = [local, local]
    assert wheels.fetch(twice, tmp_path / "wheels", python="3.12", uv=a_uv(tmp_path, ""), say=lambda _: None) == 1


def test_a_wheel_with_another_hash_is_discarded(local: Wheel, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="another hash than the lock"):
        fetch(replace(local, sha256="0" * 64), tmp_path / "wheels")
    assert list((tmp_path / "wheels").iterdir()) == []


def test_a_small_disk_is_reported_before_any_download(tmp_path: Path) -> None:
    huge = Wheel(name="x", version="1", url="https://e.example/x-1-py3-none-any.whl", sha256=SHA, stated_size=10**17)
    with pytest.raises(UserError, match="GB are needed"):
        fetch(huge, tmp_path / "wheels")


def pip(write: Callable[[Path], object], *, exit_code: int = 0) -> Callable[..., Finished]:
    """A fake pip download."""

    def call(argv: Sequence[str], **_: Any) -> Finished:
        assert {"--no-deps", "--no-index", "--only-binary=:all:", "--abi=none", "--platform=any"} <= set(argv)
        write(Path(argv[argv.index("--dest") + 1]) / "x-1-py3-none-any.whl")
        return Finished(exit_code=exit_code, log="" if exit_code == 0 else "ERROR: HTTP error 404")

    return call


REMOTE = Wheel(name="x", version="1", url="https://e.example/x-1-py3-none-any.whl", sha256=SHA)


def test_a_complete_download_gets_the_name_of_the_wheel(tmp_path: Path) -> None:
    tool = replace(a_uv(tmp_path, ""), call=pip(lambda path: path.write_bytes(CONTENT)))
    assert fetch(REMOTE, tmp_path / "wheels", uv=tool) == 1
    assert [path.name for path in (tmp_path / "wheels").iterdir()] == [REMOTE.file]


def test_pip_downloads_into_an_absolute_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders: list[Path] = []

    def write(path: Path) -> None:
        folders.append(path.parent)
        path.write_bytes(CONTENT)

    assert fetch(REMOTE, Path("wheels"), uv=replace(a_uv(tmp_path, ""), call=pip(write))) == 1
    assert [each.is_absolute() for each in folders] == [True]


def test_ctrl_c_ends_the_downloads_of_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Event()

    def pressed(_pool: object, fetch_batch: Callable[..., None], batches: list[Any]) -> None:
        thread = threading.Thread(target=lambda: ended.append(fetched(fetch_batch, batches[0])))
        threads.append(thread)
        thread.start()
        assert started.wait(20)
        raise KeyboardInterrupt

    def fetched(fetch_batch: Callable[..., None], batch: list[Any]) -> str:
        try:
            fetch_batch(batch)
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
    assert "could not be downloaded" in ended[0]
    assert list((tmp_path / "wheels").iterdir()) == []


def test_a_failed_download_leaves_no_files(tmp_path: Path) -> None:
    tool = replace(a_uv(tmp_path, ""), call=pip(lambda path: path.write_bytes(b"half"), exit_code=1))
    with pytest.raises(UserError, match=r"x-1-py3-none-any\.whl could not be downloaded: .*404"):
        fetch(REMOTE, tmp_path / "wheels", uv=tool)
    assert list((tmp_path / "wheels").iterdir()) == []


def test_small_wheels_share_a_batch() -> None:
    sizes = [10**9, 9 * 10**7, 10**6, *[0] * 13]
    batches = wheels.batches([replace(REMOTE, name=f"x{n}", stated_size=size) for n, size in enumerate(sizes)])
    assert [[each.size for each in batch] for batch in batches] == [sizes[:1], sizes[1:13], sizes[13:]]


def test_two_releases_of_a_package_are_in_different_batches() -> None:
    assert len(wheels.batches([REMOTE, replace(REMOTE, version="2")])) == 2


def test_a_folder_that_cannot_be_created_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be created"):
        wheels.create_folder(tmp_path / "file" / "wheels")
