"""Environments are complete, verified and shared, or absent."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.verdict import Phase
from matrix.environments.environment import Environment, cache_folder, site_packages
from matrix.environments.marker import MARKER
from matrix.environments.provision import install
from matrix.environments.pytest_runner import PTH, runner_distributions
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.processes import Finished
from matrix.versions.backends import Backend
from matrix.versions.locks import Lock
from matrix.versions.sets import VersionSet
from matrix.versions.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SET = VersionSet(key="2025-09", python="3.11", as_of=date(2025, 9, 15), pins={"torch": "2.8.0"}, why="a slice")
LOCK = Lock(version_set=SET, text="torch==2.8.0 --hash=sha256:1\nsix==1.17.0 --hash=sha256:2\n")
FULL = Finished(exit_code=2, log="cause: No space left on device (os error 28)")
BROKEN = Finished(exit_code=1, log="error: Hash mismatch for `six==1.17.0`")


@dataclass
class FakeUv:
    """Creates the files that uv would create.

    ``results`` replaces the result of a step, ``builds`` is torch's version on another index, and ``truncated`` names
    packages that have a truncated file in uv's cache.
    """

    results: dict[str, Finished] = field(default_factory=dict)
    builds: str = "2.8.0+cpu"
    truncated: set[str] = field(default_factory=set)
    steps: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,  # noqa: ARG002
        env: Mapping[str, str] | None = None,  # noqa: ARG002
        cwd: Path | None = None,  # noqa: ARG002
        pass_fds: Sequence[int] = (),  # noqa: ARG002
    ) -> Finished:
        step = next(
            word for word in ("venv", "sync", "--target", "compile", "--torch-backend", "cache") if word in argv
        )
        self.steps.append(step)
        self.commands.append(list(argv))
        actions = {"venv": self.venv, "sync": self.sync, "--target": self.target, "compile": self.lock_torch}
        log = {**actions, "--torch-backend": self.install_torch, "cache": self.clean}[step](argv)
        return self.results.get(step, Finished(exit_code=0, log=log or ""))

    def venv(self, argv: Sequence[str]) -> None:
        (Path(argv[-1]) / "bin").mkdir(parents=True)
        (Path(argv[-1]) / "bin" / "python").touch()
        (Path(argv[-1]) / "lib" / "python3.11" / "site-packages").mkdir(parents=True)

    def sync(self, argv: Sequence[str]) -> None:
        for line in Path(argv[-1]).read_text(encoding="utf-8").splitlines():
            self.install(site_packages(Path(argv[argv.index("--python") + 1])), *line.split()[0].split("==="))

    def lock_torch(self, _argv: Sequence[str]) -> str:
        return f"torch=={self.builds} \\\n    --hash=sha256:3\nsix==1.17.0 \\\n    --hash=sha256:2\n"

    def install_torch(self, argv: Sequence[str]) -> None:
        (line,) = Path(argv[-1]).read_text(encoding="utf-8").splitlines()
        assert line == f"torch=={self.builds} --hash=sha256:3"
        self.install(site_packages(Path(argv[argv.index("--python") + 1])), "torch", self.builds)

    def target(self, argv: Sequence[str]) -> None:
        folder = Path(argv[argv.index("--target") + 1])
        folder.mkdir()
        for name in runner_distributions("3.11"):
            self.install(folder, name, "1")

    def clean(self, argv: Sequence[str]) -> None:
        self.truncated -= set(argv[argv.index("clean") + 1 :])

    def install(self, site: Path, name: str, version: str) -> None:
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(text, encoding="utf-8")
        (site / f"{name}.py").write_text("" if name in self.truncated else "x = 1\n", encoding="utf-8")
        record = f"{info.name}/METADATA,,{len(text)}\n{name}.py,,6\n{info.name}/RECORD,,\n"
        (info / "RECORD").write_text(record, encoding="utf-8")


def installed(cache: Path, fake: FakeUv, backend: Backend | None = None) -> Environment | Evidence:
    uv = Uv(binary=cache / "uv", workdir=cache / "work", variables={}, notes=("a note",), call=fake)
    return install(LOCK, cache=cache, uv=uv, backend=backend)


def ready(cache: Path, fake: FakeUv, backend: Backend | None = None) -> Environment:
    environment = installed(cache, fake, backend)
    assert isinstance(environment, Environment)
    environment.release()
    return environment


def environments(cache: Path) -> list[Path]:
    return [path for path in (cache / "envs").iterdir() if path.is_dir()]


def test_an_environment_states_its_contents(tmp_path: Path) -> None:
    environment = ready(tmp_path, FakeUv())
    assert (environment.key, environment.lock, environment.backend) == ("2025-09", LOCK.digest, "pypi")
    assert environment.installed == {"six": "1.17.0", "torch": "2.8.0"}
    assert environment.notes == ("a note",)


def test_a_complete_environment_is_reused(tmp_path: Path) -> None:
    fake = FakeUv()
    assert ready(tmp_path, fake) == ready(tmp_path, fake)
    assert fake.steps.count("venv") == 1


def test_an_incomplete_environment_is_installed_again(tmp_path: Path) -> None:
    fake = FakeUv()
    (ready(tmp_path, fake).root / MARKER).unlink()
    ready(tmp_path, fake)
    assert fake.steps.count("venv") == 2


def test_pytest_comes_after_the_environments_own_packages(tmp_path: Path) -> None:
    environment = ready(tmp_path, FakeUv())
    (line,) = (site_packages(environment.root) / PTH).read_text(encoding="utf-8").split()
    assert Path(line).parent == tmp_path / "runner"


def test_environments_share_one_pytest(tmp_path: Path) -> None:
    fake = FakeUv()
    ready(tmp_path, fake)
    ready(tmp_path, fake, Backend(name="cpu"))
    assert fake.steps.count("--target") == 1


def test_each_build_of_torch_has_its_own_environment(tmp_path: Path) -> None:
    environment = ready(tmp_path, FakeUv(), Backend(name="cpu"))
    assert environment.installed["torch"] == "2.8.0+cpu"
    assert environment.root != ready(tmp_path, FakeUv()).root


def test_a_build_that_cannot_be_installed_falls_back_with_a_note(tmp_path: Path) -> None:
    environment = ready(tmp_path, FakeUv(results={"--torch-backend": BROKEN}), Backend(name="cpu"))
    assert environment.backend == "pypi"
    assert "torch's cpu build could not be installed (Hash mismatch for `six==1.17.0`)" in environment.notes[-1]


def test_a_build_whose_index_is_unreachable_falls_back(tmp_path: Path) -> None:
    gone = Finished(exit_code=2, log="error: Failed to fetch: `x`")
    assert ready(tmp_path, FakeUv(results={"--torch-backend": gone}), Backend(name="cpu")).backend == "pypi"


def test_a_refused_installation_is_evidence_and_leaves_no_files(tmp_path: Path) -> None:
    why = installed(tmp_path, FakeUv(results={"sync": BROKEN}))
    assert isinstance(why, Evidence)
    assert (why.phase, why.reason) == (Phase.INSTALL, "Hash mismatch for `six==1.17.0`")
    assert environments(tmp_path) == []


@pytest.mark.parametrize("step", ["venv", "sync", "--target"])
def test_a_full_disk_is_bad_input_and_leaves_no_files(tmp_path: Path, step: str) -> None:
    with pytest.raises(UserError, match="the disk is full"):
        installed(tmp_path, FakeUv(results={step: FULL}))
    assert environments(tmp_path) == []


def test_an_interrupted_installation_leaves_no_files(tmp_path: Path) -> None:
    class Interrupted(FakeUv):
        def sync(self, argv: Sequence[str]) -> None:
            super().sync(argv)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        installed(tmp_path, Interrupted())
    assert environments(tmp_path) == []


def test_installed_versions_must_equal_the_lock(tmp_path: Path) -> None:
    class Careless(FakeUv):
        def install(self, site: Path, name: str, version: str) -> None:
            super().install(site, name, {"six": "1.16.0"}.get(name, version))

    why = installed(tmp_path, Careless())
    assert isinstance(why, Evidence)
    assert why.reason == "installed versions differ from the lock: six 1.17.0 is 1.16.0"


def test_a_missing_interpreter_is_bad_input(tmp_path: Path) -> None:
    missing = Finished(exit_code=2, log="error: No interpreter found for Python 3.11 in search path")

    class Without(FakeUv):
        def __call__(self, argv: Sequence[str], **options: Any) -> Finished:
            if "list" in argv:
                return Finished(exit_code=0, log='warning: odd\n[{"version": "3.12.1", "path": "/usr/bin/python3"}]')
            return super().__call__(argv, **options)

    with pytest.raises(UserError, match=r"no working Python 3\.11 found; .* \(found: 3\.12\.1 \(/usr/bin/python3\)\)"):
        installed(tmp_path, Without(results={"venv": missing}))


def test_room_is_made_for_new_environments_only(tmp_path: Path) -> None:
    calls: list[str] = []
    uv = Uv(binary=tmp_path / "uv", workdir=tmp_path / "work", variables={}, call=FakeUv())
    for _ in range(2):
        environment = install(LOCK, cache=tmp_path, uv=uv, make_room=lambda: calls.append("room"))
        assert isinstance(environment, Environment)
        environment.release()
    assert len(calls) == 2


def test_processes_do_not_inherit_the_callers_python_settings(tmp_path: Path) -> None:
    outer = {"PYTHONPATH": "/mine", "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/bin", "HOME": "/me"}
    inner = ready(tmp_path, FakeUv()).variables(outer)
    assert not {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"} & inner.keys()
    assert inner["HOME"] == "/me"
    assert inner["PATH"].endswith("/bin:/bin")


def test_the_user_chooses_the_cache_folder(tmp_path: Path) -> None:
    assert cache_folder({"FTMATRIX_CACHE": str(tmp_path)}) == tmp_path
    assert cache_folder({}).name == "ftmatrix"


def test_an_orphaned_uv_keeps_the_lease(tmp_path: Path) -> None:
    passed: list[tuple[int, ...]] = []

    class Watched(FakeUv):
        def __call__(self, argv: Sequence[str], **options: Any) -> Finished:
            passed.append(options["pass_fds"])
            return super().__call__(argv, **options)

    ready(tmp_path, Watched())
    assert all(passed)


def test_an_environment_without_its_interpreter_is_installed_again(tmp_path: Path) -> None:
    fake = FakeUv()
    ready(tmp_path, fake).python.unlink()
    ready(tmp_path, fake)
    assert fake.steps.count("venv") == 2


def test_a_given_pytest_is_not_installed(tmp_path: Path) -> None:
    fake, pytest_folder = FakeUv(), tmp_path / "pytest"
    pytest_folder.mkdir()
    uv = Uv(binary=tmp_path / "uv", workdir=tmp_path / "work", variables={}, call=fake)
    environment = install(LOCK, cache=tmp_path, uv=uv, runner=pytest_folder)
    assert isinstance(environment, Environment)
    environment.release()
    assert "--target" not in fake.steps
    assert (site_packages(environment.root) / PTH).read_text(encoding="utf-8") == f"{tmp_path}/pytest\n"


def test_a_removed_pytest_is_installed_again(tmp_path: Path) -> None:
    fake = FakeUv()
    ready(tmp_path, fake)
    shutil.rmtree(tmp_path / "runner")
    ready(tmp_path, fake)
    assert fake.steps.count("--target") == 2


def test_an_emptied_pytest_folder_is_refilled_without_a_new_environment(tmp_path: Path) -> None:
    fake = FakeUv()
    root = ready(tmp_path, fake).root
    folder = Path((site_packages(root) / PTH).read_text(encoding="utf-8").strip())
    for path in folder.rglob("*"):
        path.unlink() if path.is_file() else None
    ready(tmp_path, fake)
    assert (folder / "pytest.py").exists()
    assert (fake.steps.count("--target"), fake.steps.count("venv")) == (2, 1)


def test_an_environment_that_lost_its_path_to_pytest_finds_it_again(tmp_path: Path) -> None:
    fake = FakeUv()
    path = site_packages(ready(tmp_path, fake).root) / PTH
    path.unlink()
    ready(tmp_path, fake)
    assert path.exists()


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("")], ids=["removed", "truncated"])
def test_a_damaged_environment_is_installed_again_with_a_note(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    fake = FakeUv()
    file = site_packages(ready(tmp_path, fake).root) / "torch.py"
    damage(file)
    again = ready(tmp_path, fake)
    assert file.read_text(encoding="utf-8") == "x = 1\n"
    assert "the cached environment was damaged and was installed again: torch.py" in again.notes[-1]


def test_a_removed_package_is_installed_again(tmp_path: Path) -> None:
    fake = FakeUv()
    site = site_packages(ready(tmp_path, fake).root)
    shutil.rmtree(site / "torch-2.8.0.dist-info")
    ready(tmp_path, fake)
    assert (site / "torch-2.8.0.dist-info").exists()


def test_a_damaged_file_in_uvs_cache_is_fetched_again(tmp_path: Path) -> None:
    fake = FakeUv(truncated={"torch"})
    environment = ready(tmp_path, fake)
    assert (site_packages(environment.root) / "torch.py").read_text(encoding="utf-8") == "x = 1\n"
    assert fake.commands[fake.steps.index("cache")][-3:] == ["cache", "clean", "torch"]


def test_a_package_with_a_wrong_record_is_not_installed_for_ever(tmp_path: Path) -> None:
    class AlwaysTruncated(FakeUv):
        def clean(self, argv: Sequence[str]) -> None:
            """The wheel itself has a wrong RECORD."""

    fake = AlwaysTruncated(truncated={"six"})
    ready(tmp_path, fake)
    ready(tmp_path, fake)
    assert fake.steps.count("venv") == 2


def test_another_build_of_torch_is_installed_by_its_hashes(tmp_path: Path) -> None:
    fake = FakeUv()
    ready(tmp_path, fake, Backend(name="cpu"))
    assert "--generate-hashes" in fake.commands[fake.steps.index("compile")]
    command = fake.commands[fake.steps.index("--torch-backend")]
    assert {"--require-hashes", "--no-deps"} <= set(command)


def test_the_hashes_of_another_build_are_locked_once(tmp_path: Path) -> None:
    fake = FakeUv()
    shutil.rmtree(ready(tmp_path, fake, Backend(name="cpu")).root)
    ready(tmp_path, fake, Backend(name="cpu"))
    assert (fake.steps.count("compile"), fake.steps.count("--torch-backend")) == (1, 2)
