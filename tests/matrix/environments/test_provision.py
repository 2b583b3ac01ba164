"""An environment is whole, right, shared, or not there."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.verdict import Phase
from matrix.environments.provision import MARKER, PTH, Environment, cache_folder, install, site_packages
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.processes import Finished
from matrix.versions.backends import Backend
from matrix.versions.locks import Lock
from matrix.versions.sets import VersionSet
from matrix.versions.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SET = VersionSet(key="2025-09", python="3.11", as_of=date(2025, 9, 15), pins={"torch": "2.8.0"}, why="a slice")
LOCK = Lock(version_set=SET, text="torch==2.8.0 --hash=sha256:1\nsix==1.17.0 --hash=sha256:2\n")
FINE = Finished(exit_code=0, log="")
FULL = Finished(exit_code=2, log="cause: No space left on device (os error 28)")
BROKEN = Finished(exit_code=1, log="error: Hash mismatch for `six==1.17.0`")


@dataclass
class FakeUv:
    """Makes the files that uv would make. ``says`` overrules a step; ``builds`` is what another index has."""

    says: dict[str, Finished] = field(default_factory=dict)
    builds: str = "2.8.0+cpu"
    steps: list[str] = field(default_factory=list)

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,  # noqa: ARG002
        env: Mapping[str, str] | None = None,  # noqa: ARG002
        cwd: Path | None = None,  # noqa: ARG002
        pass_fds: Sequence[int] = (),  # noqa: ARG002
    ) -> Finished:
        step = next(word for word in ("venv", "sync", "--target", "--torch-backend") if word in argv)
        self.steps.append(step)
        {"venv": self.venv, "sync": self.sync, "--target": self.target, "--torch-backend": self.torch}[step](argv)
        return self.says.get(step, FINE)

    def venv(self, argv: Sequence[str]) -> None:
        (Path(argv[-1]) / "bin").mkdir(parents=True)
        (Path(argv[-1]) / "bin" / "python").touch()
        (Path(argv[-1]) / "lib" / "python3.11" / "site-packages").mkdir(parents=True)

    def sync(self, argv: Sequence[str]) -> None:
        for line in Path(argv[-1]).read_text(encoding="utf-8").splitlines():
            self.install(Path(argv[argv.index("--python") + 1]), *line.split()[0].split("==="))

    def torch(self, argv: Sequence[str]) -> None:
        self.install(Path(argv[argv.index("--python") + 1]), "torch", self.builds)

    def target(self, argv: Sequence[str]) -> None:
        Path(argv[argv.index("--target") + 1]).mkdir()

    def install(self, root: Path, name: str, version: str) -> None:
        info = site_packages(root) / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")


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


def test_it_says_what_is_in_it(tmp_path: Path) -> None:
    made = ready(tmp_path, FakeUv())
    assert (made.key, made.lock, made.backend) == ("2025-09", LOCK.digest, "pypi")
    assert made.installed == {"six": "1.17.0", "torch": "2.8.0"}
    assert made.notes == ("a note",)


def test_a_complete_one_is_reused(tmp_path: Path) -> None:
    fake = FakeUv()
    assert ready(tmp_path, fake) == ready(tmp_path, fake)
    assert fake.steps.count("venv") == 1


def test_a_half_made_one_is_made_again(tmp_path: Path) -> None:
    fake = FakeUv()
    (ready(tmp_path, fake).root / MARKER).unlink()
    ready(tmp_path, fake)
    assert fake.steps.count("venv") == 2


def test_its_own_packages_come_before_pytest(tmp_path: Path) -> None:
    made = ready(tmp_path, FakeUv())
    (line,) = (site_packages(made.root) / PTH).read_text(encoding="utf-8").split()
    assert Path(line).parent == tmp_path / "runner"


def test_pytest_is_installed_once_for_all(tmp_path: Path) -> None:
    fake = FakeUv()
    ready(tmp_path, fake)
    ready(tmp_path, fake, Backend(name="cpu"))
    assert fake.steps.count("--target") == 1


def test_another_build_of_torch_has_an_environment_of_its_own(tmp_path: Path) -> None:
    made = ready(tmp_path, FakeUv(), Backend(name="cpu"))
    assert made.installed["torch"] == "2.8.0+cpu"
    assert made.root != ready(tmp_path, FakeUv()).root


def test_a_build_that_cannot_be_installed_falls_back_and_says_so(tmp_path: Path) -> None:
    made = ready(tmp_path, FakeUv(says={"--torch-backend": BROKEN}), Backend(name="cpu"))
    assert made.backend == "pypi"
    assert "torch's cpu build could not be installed (Hash mismatch for `six==1.17.0`)" in made.notes[-1]


def test_a_build_whose_index_went_away_falls_back_as_well(tmp_path: Path) -> None:
    gone = Finished(exit_code=2, log="error: Failed to fetch: `x`")
    assert ready(tmp_path, FakeUv(says={"--torch-backend": gone}), Backend(name="cpu")).backend == "pypi"


def test_a_refused_installation_is_evidence_and_leaves_nothing(tmp_path: Path) -> None:
    why = installed(tmp_path, FakeUv(says={"sync": BROKEN}))
    assert isinstance(why, Evidence)
    assert (why.phase, why.reason) == (Phase.INSTALL, "Hash mismatch for `six==1.17.0`")
    assert environments(tmp_path) == []


@pytest.mark.parametrize("step", ["venv", "sync", "--target"])
def test_a_full_disk_is_bad_input_and_leaves_nothing(tmp_path: Path, step: str) -> None:
    with pytest.raises(UserError, match="the disk is full"):
        installed(tmp_path, FakeUv(says={step: FULL}))
    assert environments(tmp_path) == []


def test_an_interrupted_installation_leaves_nothing(tmp_path: Path) -> None:
    class Interrupted(FakeUv):
        def sync(self, argv: Sequence[str]) -> None:
            super().sync(argv)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        installed(tmp_path, Interrupted())
    assert environments(tmp_path) == []


def test_what_got_installed_must_be_what_was_locked(tmp_path: Path) -> None:
    class Careless(FakeUv):
        def install(self, root: Path, name: str, version: str) -> None:
            super().install(root, name, {"six": "1.16.0"}.get(name, version))

    why = installed(tmp_path, Careless())
    assert isinstance(why, Evidence)
    assert why.reason == "what got installed is not what was locked: six 1.17.0 is 1.16.0"


def test_a_missing_interpreter_is_bad_input(tmp_path: Path) -> None:
    missing = Finished(exit_code=2, log="error: No interpreter found for Python 3.11 in search path")

    class Without(FakeUv):
        def __call__(self, argv: Sequence[str], **options: Any) -> Finished:
            if "list" in argv:
                return Finished(exit_code=0, log='warning: odd\n[{"version": "3.12.1", "path": "/usr/bin/python3"}]')
            return super().__call__(argv, **options)

    with pytest.raises(UserError, match=r"Python 3\.11 is needed, .* \(found: 3\.12\.1 \(/usr/bin/python3\)\)"):
        installed(tmp_path, Without(says={"venv": missing}))


def test_room_is_made_around_a_new_one_only(tmp_path: Path) -> None:
    calls: list[str] = []
    uv = Uv(binary=tmp_path / "uv", workdir=tmp_path / "work", variables={}, call=FakeUv())
    for _ in range(2):
        made = install(LOCK, cache=tmp_path, uv=uv, make_room=lambda: calls.append("room"))
        assert isinstance(made, Environment)
        made.release()
    assert len(calls) == 2


def test_its_processes_see_nothing_of_the_callers_python(tmp_path: Path) -> None:
    outer = {"PYTHONPATH": "/mine", "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/bin", "HOME": "/me"}
    inner = ready(tmp_path, FakeUv()).variables(outer)
    assert not {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"} & inner.keys()
    assert inner["HOME"] == "/me"
    assert inner["PATH"].endswith("/bin:/bin")


def test_the_cache_is_where_the_user_wants_it(tmp_path: Path) -> None:
    assert cache_folder({"FTMATRIX_CACHE": str(tmp_path)}) == tmp_path
    assert cache_folder({}).name == "ftmatrix"


def test_a_uv_that_outlives_a_killed_run_keeps_the_environment_to_itself(tmp_path: Path) -> None:
    passed: list[tuple[int, ...]] = []

    class Watched(FakeUv):
        def __call__(self, argv: Sequence[str], **options: Any) -> Finished:
            passed.append(options["pass_fds"])
            return super().__call__(argv, **options)

    ready(tmp_path, Watched())
    assert all(passed)


def test_one_whose_interpreter_went_away_is_made_again(tmp_path: Path) -> None:
    fake = FakeUv()
    ready(tmp_path, fake).python.unlink()
    ready(tmp_path, fake)
    assert fake.steps.count("venv") == 2


def test_a_pytest_that_is_there_is_not_installed(tmp_path: Path) -> None:
    fake, here = FakeUv(), tmp_path / "here"
    here.mkdir()
    uv = Uv(binary=tmp_path / "uv", workdir=tmp_path / "work", variables={}, call=fake)
    made = install(LOCK, cache=tmp_path, uv=uv, runner=here)
    assert isinstance(made, Environment)
    made.release()
    assert "--target" not in fake.steps
    assert (site_packages(made.root) / PTH).read_text(encoding="utf-8") == f"{tmp_path}/here\n"


def test_one_that_lost_its_pytest_is_made_again(tmp_path: Path) -> None:
    fake = FakeUv()
    ready(tmp_path, fake)
    shutil.rmtree(tmp_path / "runner")
    ready(tmp_path, fake)
    assert fake.steps.count("--target") == 2
