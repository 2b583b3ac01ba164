"""Overlays have a name that states the host's torch, are consistent or blocked, and leave the host unchanged."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from matrix.environments.environment import Environment, site_packages
from matrix.environments.host import HostInterpreter
from matrix.environments.pytest_runner import PTH, runner_digest, runner_distributions
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.offline.manifest import PACK
from matrix.offline.overlay import Overlay, link_missing, on_this_host
from matrix.processes import Finished
from matrix.run.request import RunRequest
from matrix.versions.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matrix.versions.locks import Lock

FINE = Finished(exit_code=0, log="")
HOST = {
    "torch": "2.11.0",
    "transformers": "5.17.0",
    "accelerate": "1.15.0",
    "trl": "1.13.0",
    "numpy": "2.5.2",
    "bitsandbytes": "0.50.2",
    "peft": "0.20.0",
    "pytest": "9.0.0",
    "pytest-xdist": "3.8.0",
}


@dataclass
class FakeUv:
    """Creates the files that uv would create."""

    steps: list[str] = field(default_factory=list)
    results: Mapping[str, Finished] = field(default_factory=dict)

    def __call__(self, argv: Sequence[str], **_: Any) -> Finished:
        step = argv[1]
        self.steps.append(step)
        root = Path(argv[argv.index("--python") + 1]) if step == "pip" else Path(argv[-1])
        site = root / "lib" / "python3.12" / "site-packages"
        site.mkdir(parents=True, exist_ok=True)
        if step == "venv":
            (root / "bin").mkdir()
            (root / "bin" / "python").touch()
        for path in (Path(word) for word in argv if word.endswith(".whl")):
            with zipfile.ZipFile(path) as wheel:
                wheel.extractall(site)
        if "--target" in argv:
            a_runner(Path(argv[argv.index("--target") + 1]))
        return self.results.get(step, FINE)


def info(name: str, version: str, requires: Sequence[str] = ()) -> str:
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"


def a_wheel(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> str:
    file, text = f"{name}-{version}-py3-none-any.whl", info(name, version, requires)
    with zipfile.ZipFile(folder / file, "w") as wheel:
        wheel.writestr(f"{name}-{version}.dist-info/METADATA", text)
        wheel.writestr(f"{name}-{version}.dist-info/RECORD", record(name, version, len(text)))
    return file


def record(name: str, version: str, size: int) -> str:
    return f"{name}-{version}.dist-info/METADATA,,{size}\n{name}-{version}.dist-info/RECORD,,\n"


def a_runner(folder: Path) -> None:
    for name in runner_distributions("3.12"):
        dist_info = folder / f"{name.replace('-', '_')}-1.dist-info"
        dist_info.mkdir(parents=True)
        (dist_info / "RECORD").write_text(f"{dist_info.name}/RECORD,,\n", encoding="utf-8")


def a_pack(folder: Path, *, requires: Sequence[str] = (), wheels: Sequence[str] | None = None) -> Path:
    """A pack with one set, 2026-11, and a wheel of peft."""
    (folder / "wheels").mkdir(parents=True)
    made = [a_wheel(folder / "wheels", "peft", "0.21.2", requires)]
    listed = json.dumps(made if wheels is None else wheels)
    text = f'[sets."2026-11"]\nas-of = 2026-11-15\nwhy = "newest releases"\nwheels = {listed}\n'
    (folder / PACK).write_text(text, encoding="utf-8")
    return folder


def a_host(folder: Path, **other: str) -> HostInterpreter:
    for name, version in {**HOST, **other}.items():
        (folder / f"{name}-{version}.dist-info").mkdir(parents=True, exist_ok=True)
        (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(info(name, version), encoding="utf-8")
    return HostInterpreter(python="python3", version="3.12.3", paths=(str(folder),), torch="2.11.0+cu130")


def an_overlay(tmp_path: Path, *, uv: FakeUv | None = None, requires: Sequence[str] = ()) -> Overlay:
    cache = tmp_path / "cache"
    tool = Uv(binary=Path("uv"), workdir=cache / "work", variables={}, call=uv or FakeUv())
    folder = a_pack(tmp_path / "pack", requires=requires)
    return Overlay(folder=folder, host=a_host(tmp_path / "host"), cache=cache, uv=tool)


def installed(overlay: Overlay) -> Environment:
    (each,) = overlay.sets
    environment = overlay.install(overlay.lock(each))
    assert isinstance(environment, Environment)
    environment.release()
    return environment


def test_the_name_of_a_set_states_the_hosts_torch(tmp_path: Path) -> None:
    (each,) = an_overlay(tmp_path).sets
    assert (each.key, each.python) == ("2026-11+torch2.11.0+cu130", "3.12")
    assert each.pins["torch"] == "2.11.0+cu130"


def test_pins_come_from_the_wheels_and_then_from_the_host(tmp_path: Path) -> None:
    (each,) = an_overlay(tmp_path).sets
    assert (each.pins["peft"], each.pins["transformers"]) == ("0.21.2", "5.17.0")


def test_the_lock_has_the_hashes_of_wheels_and_the_versions_of_the_host(tmp_path: Path) -> None:
    one, other = an_overlay(tmp_path / "one"), an_overlay(tmp_path / "other")
    (each,) = one.sets
    assert "peft==0.21.2 --hash=sha256:" in one.lock(each).text
    a_host(tmp_path / "other" / "host", einops="0.8.1")
    assert one.lock(each).digest != other.lock(each).digest


def test_wheels_come_before_the_host_which_stays_unchanged(tmp_path: Path) -> None:
    overlay = an_overlay(tmp_path)
    before = sorted((tmp_path / "host").rglob("*"))
    made = installed(overlay)
    assert made.installed["peft"] == "0.21.2"
    assert (site_packages(made.root) / PTH).read_text(encoding="utf-8") == f"{tmp_path / 'host'}\n"
    assert sorted((tmp_path / "host").rglob("*")) == before


def test_a_note_lists_the_wheels(tmp_path: Path) -> None:
    assert installed(an_overlay(tmp_path)).notes == (
        "overlay on the host's Python 3.12.3: peft 0.21.2; the host provides the rest",
    )


def test_a_complete_overlay_is_reused(tmp_path: Path) -> None:
    uv = FakeUv()
    overlay = an_overlay(tmp_path, uv=uv)
    assert installed(overlay).root == installed(overlay).root
    assert uv.steps == ["venv", "pip"]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("")], ids=["removed", "truncated"])
def test_a_damaged_overlay_is_installed_again_with_a_note(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    uv = FakeUv()
    overlay = an_overlay(tmp_path, uv=uv)
    damage(site_packages(installed(overlay).root) / "peft-0.21.2.dist-info" / "METADATA")
    again = installed(overlay)
    assert uv.steps == ["venv", "pip"] * 2
    assert "the cached environment was damaged and was installed again: peft" in again.notes[-1]


def test_an_overlay_without_its_interpreter_is_installed_again(tmp_path: Path) -> None:
    uv = FakeUv()
    overlay = an_overlay(tmp_path, uv=uv)
    (installed(overlay).root / "bin" / "python").unlink()
    installed(overlay)
    assert uv.steps == ["venv", "pip"] * 2


def test_another_interpreter_with_the_same_packages_gets_its_own_overlay(tmp_path: Path) -> None:
    overlay = an_overlay(tmp_path)
    made = installed(overlay)
    shutil.copytree(tmp_path / "host", tmp_path / "twin")
    twin = replace(overlay, host=replace(overlay.host, paths=(str(tmp_path / "twin"),)))
    assert installed(twin).lock == made.lock
    assert (site_packages(made.root) / PTH).read_text(encoding="utf-8") == f"{tmp_path / 'twin'}\n"


def test_an_overlay_that_another_run_evicted_is_installed_again(tmp_path: Path) -> None:
    class Evicted(Overlay):
        rounds = 0

        def install_exclusively(self, root: Path, lock: Lock) -> str:
            conflict = super().install_exclusively(root, lock)
            Evicted.rounds += 1
            if Evicted.rounds == 1:
                shutil.rmtree(root)
            return conflict

    each = an_overlay(tmp_path)
    overlay = Evicted(folder=each.folder, host=each.host, cache=each.cache, uv=each.uv)
    assert installed(overlay).python.exists()
    assert Evicted.rounds == 2


def test_a_failed_installation_leaves_no_files(tmp_path: Path) -> None:
    overlay = an_overlay(tmp_path, uv=FakeUv(results={"pip": Finished(exit_code=1, log="no")}))
    with pytest.raises(UserError):
        installed(overlay)
    assert not list((tmp_path / "cache" / "envs").glob("*/"))


@pytest.mark.parametrize("requirement", ["numpy<2", "hf-xet>=1", "torch>=2.12"])
def test_wheels_that_conflict_with_the_host_block_the_set(tmp_path: Path, requirement: str) -> None:
    overlay = an_overlay(tmp_path, requires=[requirement])
    (each,) = overlay.sets
    found = overlay.install(overlay.lock(each))
    assert isinstance(found, Evidence)
    assert f"peft needs {requirement}" in found.reason


def test_requirements_of_other_pythons_and_extras_are_ignored(tmp_path: Path) -> None:
    needs = ['tomli>=2; python_version < "3.11"', 'pandas; extra == "data"']
    installed(an_overlay(tmp_path, requires=needs))


def test_a_build_of_torch_meets_requirements_on_its_public_version(tmp_path: Path) -> None:
    installed(an_overlay(tmp_path, requires=["torch>=2.11.0"]))


def test_wheels_that_cannot_be_installed_are_bad_input(tmp_path: Path) -> None:
    refusal = Finished(exit_code=1, log="error: peft is not compatible with this Python")
    overlay = an_overlay(tmp_path, uv=FakeUv(results={"pip": refusal}))
    with pytest.raises(UserError, match=r"installed over python3: peft is not compatible"):
        overlay.install(overlay.lock(overlay.sets[0]))


@pytest.mark.parametrize(
    ("wheels", "sentence"),
    [([], "expected a list of file names"), (["x-1-py3-none-any.whl"], "is not in"), (["x"], "Invalid wheel filename")],
)
def test_a_damaged_pack_is_bad_input(tmp_path: Path, wheels: list[str], sentence: str) -> None:
    tool = Uv(binary=Path("uv"), workdir=tmp_path, variables={}, call=FakeUv())
    folder = a_pack(tmp_path / "pack", wheels=wheels)
    overlay = Overlay(folder=folder, host=a_host(tmp_path / "host"), cache=tmp_path, uv=tool)
    with pytest.raises(UserError, match=sentence):
        _ = overlay.sets


def test_a_package_that_pack_and_host_lack_is_named(tmp_path: Path) -> None:
    tool = Uv(binary=Path("uv"), workdir=tmp_path, variables={}, call=FakeUv())
    bare = HostInterpreter(python="python3", version="3.12.3", paths=(), torch="2.11.0")
    overlay = Overlay(folder=a_pack(tmp_path / "pack"), host=bare, cache=tmp_path, uv=tool)
    with pytest.raises(UserError, match=r"neither the pack nor python3 has transformers, bitsandbytes, accelerate"):
        _ = overlay.sets


def test_a_folder_that_is_no_pack_is_bad_input(tmp_path: Path) -> None:
    tool = Uv(binary=Path("uv"), workdir=tmp_path, variables={}, call=FakeUv())
    with pytest.raises(UserError, match=r"there is no pack\.toml in it"):
        on_this_host(tmp_path, python="python3", cache=tmp_path, uv=tool)


@pytest.mark.parametrize(
    ("python", "message"),
    [("3.11", r"packed for Python 3\.11, this is 3\.12: .*--python 3\.12"), ("3.12", "python3: bad")],
)
def test_a_failure_names_the_python_that_the_pack_was_made_for(tmp_path: Path, python: str, message: str) -> None:
    bad = FakeUv(results={"pip": Finished(exit_code=2, log="error: bad")})
    overlay = an_overlay(tmp_path, uv=bad)
    listing = tmp_path / "pack" / PACK
    listing.write_text(f'{listing.read_text(encoding="utf-8")}python = "{python}"\n', encoding="utf-8")
    with pytest.raises(UserError, match=message):
        installed(overlay)
    assert not [each for each in (tmp_path / "cache" / "envs").iterdir() if each.is_dir()]


OWN = ("nvidia-cublas==13.1.0.3", "nvidia-nccl-cu13>=2.28,<3", "numpy")
ITS_OWN = ("transformers", "accelerate", "trl", "bitsandbytes", "numpy")
LIBRARIES = {"nvidia-cublas": "13.0.2.14", "nvidia-nccl-cu13": "2.28.9", "torchvision": "0.26.0"}


def a_torch(folder: Path, requires: Sequence[str], *, build: str = "2.13.0+cu130") -> str:
    file = a_wheel(folder, "torch", "2.13.0", requires)
    with zipfile.ZipFile(folder / file, "a") as wheel:
        wheel.writestr("torch/version.py", f"from typing import Optional\n__version__ = '{build}'\ncuda = '13.0'\n")
    return file


def with_own_torch(
    tmp_path: Path, *, requires: Sequence[str] = OWN, log: str = "", host: Mapping[str, str] = LIBRARIES
) -> Overlay:
    """An overlay of a pack with everything but CUDA's libraries, on a host that has them."""
    overlay = an_overlay(tmp_path)
    folder = overlay.folder / "wheels"
    files = ["peft-0.21.2-py3-none-any.whl", a_torch(folder, requires)]
    files += [a_wheel(folder, name, HOST[name]) for name in ITS_OWN]
    begin, _, _ = (overlay.folder / PACK).read_text(encoding="utf-8").partition("wheels =")
    (overlay.folder / PACK).write_text(f"{begin}wheels = {json.dumps(files)}\n", encoding="utf-8")
    a_host(tmp_path / "host", **host)
    for name in ("cu13/lib/libcublas.so.13", "nccl/lib/libnccl.so.2"):
        (tmp_path / "host" / "nvidia" / name).parent.mkdir(parents=True)
        (tmp_path / "host" / "nvidia" / name).write_text("the host's")
    a_runner(tmp_path / "cache" / "runner" / f"{runner_digest()}-python3.12")
    loaded = Finished(exit_code=1 if log else 0, log=log)
    return replace(overlay, call=lambda *_, **__: loaded)


def refusal_of(overlay: Overlay) -> str:
    (each,) = overlay.sets
    why = overlay.install(overlay.lock(each))
    assert isinstance(why, Evidence)
    return why.reason


def test_a_packed_torch_is_pinned_with_its_build(tmp_path: Path) -> None:
    (each,) = with_own_torch(tmp_path).sets
    assert (each.key, each.pins["torch"]) == ("2026-11+host", "2.13.0+cu130")


def test_a_packed_torch_hides_the_host_except_cudas_libraries(tmp_path: Path) -> None:
    overlay = with_own_torch(tmp_path)
    made = installed(overlay)
    seen = (site_packages(made.root) / PTH).read_text(encoding="utf-8").splitlines()
    assert seen == [str(tmp_path / "cache" / "runner" / f"{runner_digest()}-python3.12")]
    assert (made.installed["torch"], made.installed["nvidia-nccl-cu13"]) == ("2.13.0+cu130", "2.28.9")
    assert "torchvision" not in made.installed
    assert "torchvision" not in overlay.lock(overlay.sets[0]).text


def test_a_packed_torch_finds_the_hosts_libraries(tmp_path: Path) -> None:
    site = site_packages(installed(with_own_torch(tmp_path)).root)
    assert (site / "nvidia" / "cu13" / "lib" / "libcublas.so.13").read_text() == "the host's"


def test_a_packed_library_hides_only_the_hosts_copy(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, names in ((here, ["cu13/lib/a.so"]), (there, ["cu13/lib/a.so", "cu13/lib/b.so", "nccl/lib/c.so"])):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(folder.name)
    link_missing(there, here)
    found = {name: (here / name).read_text() for name in ("cu13/lib/a.so", "cu13/lib/b.so", "nccl/lib/c.so")}
    assert list(found.values()) == ["here", "there", "there"]
    assert sorted(path.name for path in (there / "cu13" / "lib").iterdir()) == ["a.so", "b.so"]


def test_a_host_without_cudas_libraries_is_no_error(tmp_path: Path) -> None:
    link_missing(tmp_path / "none", tmp_path / "here")
    assert not (tmp_path / "here").is_symlink()


def test_a_note_names_libraries_of_other_releases_than_torch_pins(tmp_path: Path) -> None:
    notes = installed(with_own_torch(tmp_path)).notes
    assert notes[1:] == ("torch pins nvidia-cublas==13.1.0.3, the host has 13.0.2.14",)


@pytest.mark.parametrize(
    ("needs", "sentence"),
    [
        ("nvidia-cublas==12.4.5.8", r"torch needs nvidia-cublas==12\.4\.5\.8, installed is 13\.0\.2\.14"),
        ("nvidia-nvshmem-cu13==3.4.5", r"torch needs nvidia-nvshmem-cu13==3\.4\.5, installed is none"),
        ("numpy<2", "torch needs numpy<2, installed is 2.5.2"),
        ("triton==3.7.0", "torch needs triton==3.7.0, installed is none"),
    ],
)
def test_other_unmet_requirements_of_a_packed_torch_block_the_set(tmp_path: Path, needs: str, sentence: str) -> None:
    assert re.search(sentence, refusal_of(with_own_torch(tmp_path, requires=[needs])))


def test_a_packed_torch_does_not_find_packages_of_the_host(tmp_path: Path) -> None:
    overlay = with_own_torch(tmp_path, requires=["einops"], host={**LIBRARIES, "einops": "0.8.1"})
    assert refusal_of(overlay).endswith("torch needs einops, installed is none")


def test_a_packed_torch_that_cannot_be_imported_blocks_the_set(tmp_path: Path) -> None:
    log = "Traceback\nImportError: libtorch_cuda.so: undefined symbol: ncclCommSuspend\n"
    overlay = with_own_torch(tmp_path, log=log)
    assert refusal_of(overlay).endswith(
        "torch 2.13.0+cu130 cannot be imported: ImportError: libtorch_cuda.so: undefined symbol: ncclCommSuspend"
    )
    assert not list((tmp_path / "cache" / "envs").glob("*-system"))


def test_the_packs_pytest_comes_after_the_host(tmp_path: Path) -> None:
    overlay = an_overlay(tmp_path)
    bare = a_host(tmp_path / "bare")
    for path in (tmp_path / "bare").glob("pytest*"):
        shutil.rmtree(path)
    made = installed(replace(overlay, host=bare))
    first, second = (site_packages(made.root) / PTH).read_text(encoding="utf-8").splitlines()
    assert (first, Path(second).parent) == (str(tmp_path / "bare"), tmp_path / "cache" / "runner")


def test_system_torch_requires_a_pack() -> None:
    with pytest.raises(UserError, match="--system-torch needs wheels to add"):
        _ = RunRequest(system_torch=True).packed
