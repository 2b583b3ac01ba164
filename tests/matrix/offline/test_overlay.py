"""Wheels of a folder over a host's torch: named for what they are, consistent or blocked, the host left as it was."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from matrix.environments.host import System, asked
from matrix.environments.provision import PTH, Environment, runner_digest, site_packages
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.offline.manifest import PACK
from matrix.offline.overlay import Overlay, build, link, on_this_host
from matrix.processes import Finished
from matrix.run.request import Asked
from matrix.versions.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
TOLD = {"version": "3.12.3", "paths": ["/host/site-packages"], "torch": "2.11.0+cu130"}


@dataclass
class FakeUv:
    """Makes the files that uv would make."""

    steps: list[str] = field(default_factory=list)
    says: Mapping[str, Finished] = field(default_factory=dict)

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
            Path(argv[argv.index("--target") + 1]).mkdir(parents=True)
        return self.says.get(step, FINE)


def info(name: str, version: str, requires: Sequence[str] = ()) -> str:
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"


def a_wheel(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> str:
    file = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(folder / file, "w") as wheel:
        wheel.writestr(f"{name}-{version}.dist-info/METADATA", info(name, version, requires))
    return file


def a_pack(folder: Path, *, requires: Sequence[str] = (), wheels: Sequence[str] | None = None) -> Path:
    """One set, 2026-11, whose peft is brought."""
    (folder / "wheels").mkdir(parents=True)
    made = [a_wheel(folder / "wheels", "peft", "0.21.2", requires)]
    listed = json.dumps(made if wheels is None else wheels)
    text = f'[sets."2026-11"]\nas-of = 2026-11-15\nwhy = "newest releases"\nwheels = {listed}\n'
    (folder / PACK).write_text(text, encoding="utf-8")
    return folder


def a_host(folder: Path, **other: str) -> System:
    for name, version in {**HOST, **other}.items():
        (folder / f"{name}-{version}.dist-info").mkdir(parents=True, exist_ok=True)
        (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(info(name, version), encoding="utf-8")
    return System(python="python3", version="3.12.3", paths=(str(folder),), torch="2.11.0+cu130")


def an_overlay(tmp_path: Path, *, uv: FakeUv | None = None, requires: Sequence[str] = ()) -> Overlay:
    cache = tmp_path / "cache"
    tool = Uv(binary=Path("uv"), workdir=cache / "work", variables={}, call=uv or FakeUv())
    folder = a_pack(tmp_path / "pack", requires=requires)
    return Overlay(folder=folder, system=a_host(tmp_path / "host"), cache=cache, uv=tool)


def installed(overlay: Overlay) -> Environment:
    (each,) = overlay.sets
    environment = overlay.install(overlay.lock(each))
    assert isinstance(environment, Environment)
    environment.release()
    return environment


def test_a_set_is_named_for_the_torch_that_is_there(tmp_path: Path) -> None:
    (each,) = an_overlay(tmp_path).sets
    assert (each.key, each.python) == ("2026-11+torch2.11.0+cu130", "3.12")
    assert each.pins["torch"] == "2.11.0+cu130"


def test_its_pins_are_the_wheels_and_behind_them_the_host(tmp_path: Path) -> None:
    (each,) = an_overlay(tmp_path).sets
    assert (each.pins["peft"], each.pins["transformers"]) == ("0.21.2", "5.17.0")


def test_the_lock_knows_wheels_by_their_hash_and_changes_with_the_host(tmp_path: Path) -> None:
    one, other = an_overlay(tmp_path / "one"), an_overlay(tmp_path / "other")
    (each,) = one.sets
    assert "peft==0.21.2 --hash=sha256:" in one.lock(each).text
    a_host(tmp_path / "other" / "host", einops="0.8.1")
    assert one.lock(each).digest != other.lock(each).digest


def test_the_wheels_come_before_the_host_which_stays_as_it_was(tmp_path: Path) -> None:
    overlay = an_overlay(tmp_path)
    before = sorted((tmp_path / "host").rglob("*"))
    made = installed(overlay)
    assert made.installed["peft"] == "0.21.2"
    assert (site_packages(made.root) / PTH).read_text(encoding="utf-8") == f"{tmp_path / 'host'}\n"
    assert sorted((tmp_path / "host").rglob("*")) == before


def test_what_was_brought_is_said(tmp_path: Path) -> None:
    assert installed(an_overlay(tmp_path)).notes == (
        "laid over the host's Python 3.12.3: peft 0.21.2; the rest is as found there",
    )


def test_a_complete_one_is_reused(tmp_path: Path) -> None:
    uv = FakeUv()
    overlay = an_overlay(tmp_path, uv=uv)
    assert installed(overlay).root == installed(overlay).root
    assert uv.steps == ["venv", "pip"]


def test_one_whose_interpreter_is_gone_is_made_anew(tmp_path: Path) -> None:
    uv = FakeUv()
    overlay = an_overlay(tmp_path, uv=uv)
    (installed(overlay).root / "bin" / "python").unlink()
    installed(overlay)
    assert uv.steps == ["venv", "pip"] * 2


def test_another_interpreter_that_has_the_same_gets_its_own(tmp_path: Path) -> None:
    overlay = an_overlay(tmp_path)
    made = installed(overlay)
    shutil.copytree(tmp_path / "host", tmp_path / "twin")
    twin = replace(overlay, system=replace(overlay.system, paths=(str(tmp_path / "twin"),)))
    assert installed(twin).lock == made.lock
    assert (site_packages(made.root) / PTH).read_text(encoding="utf-8") == f"{tmp_path / 'twin'}\n"


def test_one_that_another_run_evicted_before_it_was_held_is_made_again(tmp_path: Path) -> None:
    class Evicted(Overlay):
        rounds = 0

        def made(self, root: Path, lock: Lock) -> str:
            wrong = super().made(root, lock)
            Evicted.rounds += 1
            if Evicted.rounds == 1:
                shutil.rmtree(root)
            return wrong

    each = an_overlay(tmp_path)
    overlay = Evicted(folder=each.folder, system=each.system, cache=each.cache, uv=each.uv)
    assert installed(overlay).python.exists()
    assert Evicted.rounds == 2


def test_nothing_half_made_stays(tmp_path: Path) -> None:
    overlay = an_overlay(tmp_path, uv=FakeUv(says={"pip": Finished(exit_code=1, log="no")}))
    with pytest.raises(UserError):
        installed(overlay)
    assert not list((tmp_path / "cache" / "envs").glob("*/"))


@pytest.mark.parametrize("wish", ["numpy<2", "hf-xet>=1", "torch>=2.12"])
def test_wheels_that_do_not_fit_the_host_block_the_set(tmp_path: Path, wish: str) -> None:
    overlay = an_overlay(tmp_path, requires=[wish])
    (each,) = overlay.sets
    found = overlay.install(overlay.lock(each))
    assert isinstance(found, Evidence)
    assert f"peft needs {wish}" in found.reason


def test_a_need_of_another_python_or_of_an_extra_is_none(tmp_path: Path) -> None:
    needs = ['tomli>=2; python_version < "3.11"', 'pandas; extra == "data"']
    installed(an_overlay(tmp_path, requires=needs))


def test_a_need_that_the_build_of_torch_meets_is_met(tmp_path: Path) -> None:
    installed(an_overlay(tmp_path, requires=["torch>=2.11.0"]))


def test_wheels_that_cannot_be_laid_are_said(tmp_path: Path) -> None:
    refusal = Finished(exit_code=1, log="error: peft is not compatible with this Python")
    overlay = an_overlay(tmp_path, uv=FakeUv(says={"pip": refusal}))
    with pytest.raises(UserError, match=r"laid over python3: peft is not compatible"):
        overlay.install(overlay.lock(overlay.sets[0]))


@pytest.mark.parametrize(
    ("wheels", "sentence"),
    [([], "expected a list of file names"), (["x-1-py3-none-any.whl"], "is not in"), (["x"], "Invalid wheel filename")],
)
def test_a_damaged_pack_is_said(tmp_path: Path, wheels: list[str], sentence: str) -> None:
    tool = Uv(binary=Path("uv"), workdir=tmp_path, variables={}, call=FakeUv())
    folder = a_pack(tmp_path / "pack", wheels=wheels)
    overlay = Overlay(folder=folder, system=a_host(tmp_path / "host"), cache=tmp_path, uv=tool)
    with pytest.raises(UserError, match=sentence):
        _ = overlay.sets


def test_a_package_that_neither_has_is_named(tmp_path: Path) -> None:
    tool = Uv(binary=Path("uv"), workdir=tmp_path, variables={}, call=FakeUv())
    bare = System(python="python3", version="3.12.3", paths=(), torch="2.11.0")
    overlay = Overlay(folder=a_pack(tmp_path / "pack"), system=bare, cache=tmp_path, uv=tool)
    with pytest.raises(UserError, match=r"neither the pack nor python3 has transformers, bitsandbytes, accelerate"):
        _ = overlay.sets


def test_a_folder_that_is_no_pack_is_said(tmp_path: Path) -> None:
    tool = Uv(binary=Path("uv"), workdir=tmp_path, variables={}, call=FakeUv())
    with pytest.raises(UserError, match=r"there is no pack\.toml in it"):
        on_this_host(tmp_path, python="python3", cache=tmp_path, uv=tool)


def test_a_host_is_asked_without_the_callers_pythonpath(tmp_path: Path) -> None:
    seen: list[Sequence[str]] = []
    a_host(tmp_path)

    def answer(argv: Sequence[str], **_: Any) -> Finished:
        seen.append(argv)
        return Finished(exit_code=0, log=json.dumps({**TOLD, "paths": [str(tmp_path)]}))

    assert asked("python3", call=answer).torch == "2.11.0+cu130"
    assert "-I" in seen[0]


def test_a_host_without_torch_or_pytest_is_said() -> None:
    told = Finished(exit_code=0, log=json.dumps({**TOLD, "paths": []}))
    with pytest.raises(UserError, match=r"--system-python python3: .*python3 has no torch, pytest, pytest-xdist; name"):
        asked("python3", call=lambda *_, **__: told)


@pytest.mark.parametrize(
    ("python", "said"),
    [("3.11", r"packed for Python 3\.11, this is 3\.12: .*--python 3\.12"), ("3.12", "python3: bad")],
)
def test_wheels_for_another_python_than_the_hosts_are_said_to_be_where_they_do_not_install(
    tmp_path: Path, python: str, said: str
) -> None:
    bad = FakeUv(says={"pip": Finished(exit_code=2, log="error: bad")})
    overlay = an_overlay(tmp_path, uv=bad)
    listing = tmp_path / "pack" / PACK
    listing.write_text(f'{listing.read_text(encoding="utf-8")}python = "{python}"\n', encoding="utf-8")
    with pytest.raises(UserError, match=said):
        installed(overlay)
    assert not [each for each in (tmp_path / "cache" / "envs").iterdir() if each.is_dir()]  # nothing half-made


def test_what_is_no_python_is_said() -> None:
    with pytest.raises(UserError, match="it does not start"):
        asked("/no/such/python")
    with pytest.raises(UserError, match="no Python that works"):
        asked("true")


OWN = ("nvidia-cublas==13.1.0.3", "nvidia-nccl-cu13>=2.28,<3", "numpy")
ITS_OWN = ("transformers", "accelerate", "trl", "bitsandbytes", "numpy")
LIBRARIES = {"nvidia-cublas": "13.0.2.14", "nvidia-nccl-cu13": "2.28.9", "torchvision": "0.26.0"}


def a_torch(folder: Path, requires: Sequence[str], *, build: str = "2.13.0+cu130") -> str:
    file = a_wheel(folder, "torch", "2.13.0", requires)
    with zipfile.ZipFile(folder / file, "a") as wheel:
        wheel.writestr("torch/version.py", f"from typing import Optional\n__version__ = '{build}'\ncuda = '13.0'\n")
    return file


def with_own_torch(
    tmp_path: Path, *, requires: Sequence[str] = OWN, says: str = "", host: Mapping[str, str] = LIBRARIES
) -> Overlay:
    """A pack with everything but CUDA's libraries, laid over a host that has those, in files as well."""
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
    (tmp_path / "cache" / "runner" / f"{runner_digest()}-python3.12").mkdir(parents=True)
    loaded = Finished(exit_code=1 if says else 0, log=says)
    return replace(overlay, call=lambda *_, **__: loaded)


def refusal_of(overlay: Overlay) -> str:
    (each,) = overlay.sets
    why = overlay.install(overlay.lock(each))
    assert isinstance(why, Evidence)
    return why.reason


def test_a_torch_that_the_pack_brings_is_said_with_its_build(tmp_path: Path) -> None:
    (each,) = with_own_torch(tmp_path).sets
    assert (each.key, each.pins["torch"]) == ("2026-11+host", "2.13.0+cu130")


def test_beside_its_own_torch_nothing_of_the_host_is_seen_but_cuda(tmp_path: Path) -> None:
    overlay = with_own_torch(tmp_path)
    made = installed(overlay)
    seen = (site_packages(made.root) / PTH).read_text(encoding="utf-8").splitlines()
    assert seen == [str(tmp_path / "cache" / "runner" / f"{runner_digest()}-python3.12")]
    assert (made.installed["torch"], made.installed["nvidia-nccl-cu13"]) == ("2.13.0+cu130", "2.28.9")
    assert "torchvision" not in made.installed
    assert "torchvision" not in overlay.lock(overlay.sets[0]).text


def test_torch_finds_the_hosts_libraries_beside_itself(tmp_path: Path) -> None:
    site = site_packages(installed(with_own_torch(tmp_path)).root)
    assert (site / "nvidia" / "cu13" / "lib" / "libcublas.so.13").read_text() == "the host's"


def test_a_library_that_the_pack_brings_hides_only_the_hosts_own(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, names in ((here, ["cu13/lib/a.so"]), (there, ["cu13/lib/a.so", "cu13/lib/b.so", "nccl/lib/c.so"])):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(folder.name)
    link(there, here)
    found = {name: (here / name).read_text() for name in ("cu13/lib/a.so", "cu13/lib/b.so", "nccl/lib/c.so")}
    assert list(found.values()) == ["here", "there", "there"]
    assert sorted(path.name for path in (there / "cu13" / "lib").iterdir()) == ["a.so", "b.so"]


def test_a_host_without_such_libraries_is_no_error(tmp_path: Path) -> None:
    link(tmp_path / "none", tmp_path / "here")
    assert not (tmp_path / "here").is_symlink()


def test_another_release_of_a_library_than_torch_names_is_noted(tmp_path: Path) -> None:
    notes = installed(with_own_torch(tmp_path)).notes
    assert notes[1:] == ("torch pins nvidia-cublas==13.1.0.3, the host has 13.0.2.14",)


@pytest.mark.parametrize(
    ("needs", "sentence"),
    [
        ("nvidia-cublas==12.4.5.8", r"torch needs nvidia-cublas==12\.4\.5\.8, there is 13\.0\.2\.14"),
        ("nvidia-nvshmem-cu13==3.4.5", r"torch needs nvidia-nvshmem-cu13==3\.4\.5, there is none"),
        ("numpy<2", "torch needs numpy<2, there is 2.5.2"),
        ("triton==3.7.0", "torch needs triton==3.7.0, there is none"),
    ],
)
def test_anything_else_that_its_torch_lacks_blocks_it(tmp_path: Path, needs: str, sentence: str) -> None:
    assert re.search(sentence, refusal_of(with_own_torch(tmp_path, requires=[needs])))


def test_a_host_package_is_none_of_its_own(tmp_path: Path) -> None:
    overlay = with_own_torch(tmp_path, requires=["einops"], host={**LIBRARIES, "einops": "0.8.1"})
    assert refusal_of(overlay).endswith("torch needs einops, there is none")


def test_libraries_that_its_torch_cannot_be_loaded_with_block_it(tmp_path: Path) -> None:
    said = "Traceback\nImportError: libtorch_cuda.so: undefined symbol: ncclCommSuspend\n"
    overlay = with_own_torch(tmp_path, says=said)
    assert refusal_of(overlay).endswith(
        "torch 2.13.0+cu130 cannot be imported: ImportError: libtorch_cuda.so: undefined symbol: ncclCommSuspend"
    )
    assert not list((tmp_path / "cache" / "envs").glob("*-system"))


def test_what_does_not_say_its_build_is_no_wheel_of_torch(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(UserError, match="it does not say which build of torch it is"):
        build(tmp_path / "x" / a_wheel(tmp_path / "x", "torch", "2.13.0"))


def test_a_host_without_pytest_gets_the_packs(tmp_path: Path) -> None:
    told = Finished(exit_code=0, log=json.dumps({**TOLD, "paths": [str(tmp_path / "bare")]}))
    (tmp_path / "bare" / "torch-2.11.0.dist-info").mkdir(parents=True)
    (tmp_path / "bare" / "torch-2.11.0.dist-info" / "METADATA").write_text(info("torch", "2.11.0"))
    assert asked("python3", runners=["3.12"], call=lambda *_, **__: told).torch == "2.11.0+cu130"
    with pytest.raises(UserError, match="has no pytest, pytest-xdist"):
        asked("python3", runners=["3.11"], call=lambda *_, **__: told)


def test_the_packs_pytest_is_seen_behind_the_host(tmp_path: Path) -> None:
    overlay = an_overlay(tmp_path)
    bare = a_host(tmp_path / "bare")
    for path in (tmp_path / "bare").glob("pytest*"):
        shutil.rmtree(path)
    made = installed(replace(overlay, system=bare))
    first, second = (site_packages(made.root) / PTH).read_text(encoding="utf-8").splitlines()
    assert (first, Path(second).parent) == (str(tmp_path / "bare"), tmp_path / "cache" / "runner")


def test_a_host_alone_is_no_wheels() -> None:
    with pytest.raises(UserError, match="--system-torch needs --offline"):
        _ = Asked(system_torch=True).packed
