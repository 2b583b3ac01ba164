"""Provides a fake ecosystem of tiny wheels in a local index, and runs the harness on it with real uv and processes."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
import zipfile
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from matrix.environments import pytest_runner
from matrix.environments.environment import cache_folder
from matrix.offline import packing
from matrix.run import digest_cache
from matrix.run.execute import Suite
from matrix.versions import locks, sets, uv
from reports import cli
from tests.minimatrix import drive, drive_replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

HERE = Path(__file__).parent
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
LIMITS = {"silence_s": 3.0, "deadline_s": 8.0, "memory_mib": 300}
sys.path.append(str(HERE))  # the suites are modules of their own, as in environments
SOON_S = 60.0  # a test that waits this long fails

TORCH = '__version__ = "{version}"\ncuda_is_initialised = False\n'
THREAD = "threading.Thread(target=time.sleep, args=(600,), daemon=True, name='watcher').start()\n"
WHEELS: Mapping[tuple[str, str], str] = {  # source of the module, by distribution and version
    ("torch", "0.0.1"): TORCH  # its compiler starts as that of torch 2.4 to 2.8 does
    + f"import os, threading, time\nif os.environ.get('TORCH_WARM_POOL', '1') == '1':\n    {THREAD}",
    ("torch", "0.0.2"): TORCH + "raise ImportError('libfake.so.1: cannot open shared object file')\n",
    ("torch", "0.0.3"): TORCH + f"import threading, time\n{THREAD}",
    ("torch", "0.0.4"): TORCH + "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    ("torch", "0.0.5"): TORCH + "cuda_is_initialised = True\n",
    ("transformers", "0.0.1"): "",
    ("accelerate", "0.0.1"): "",
    ("accelerate", "0.0.2"): "",
    ("peft", "0.0.1"): "",
    ("peft", "0.0.2"): "",
    ("trl", "0.0.1"): "",
    ("trl", "0.0.2"): "",
    ("trl", "0.0.3"): "",
    ("trl", "0.0.4"): "",
    ("bitsandbytes", "0.0.1"): "",
    ("tinymetrics", "0.0.1"): "",  # a package that a user's script adds to a set
    ("tinymetrics", "0.0.2"): "",
    ("tinybase", "0.0.1"): "",
}
REQUIRES = {
    ("peft", "0.0.2"): "torch>=0.0.9",
    ("tinymetrics", "0.0.1"): "tinybase",
    ("tinymetrics", "0.0.2"): "torch>=0.0.9",
}
SETS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "good": ("the six fit together", {}),
    "unresolvable": ("this peft wants a torch that the set does not pin", {"peft": "0.0.2"}),
    "refuses-install": ("the index has another file than the lock", {"transformers": "0.0.1"}),
    "raises-on-import": ("torch lacks a library", {"torch": "0.0.2"}),
    "threads-on-import": ("torch starts a thread when it is imported", {"torch": "0.0.3"}),
    "dies-on-import": ("torch ends the process that imports it", {"torch": "0.0.4"}),
    "cuda-on-import": ("torch initialises CUDA when it is imported", {"torch": "0.0.5"}),
}


def wheel(folder: Path, name: str, version: str, source: str) -> Path:
    """A wheel of one module, as the specification has it: the module, METADATA, WHEEL, and RECORD with their hashes."""
    info = f"{name}-{version}.dist-info"
    requires = REQUIRES.get((name, version))
    files = {
        f"{name}.py": source.format(version=version) if name == "torch" else source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: minimatrix\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},{digest(text)},{len(text.encode())}\n" for path, text in files.items())
    target = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return target


# Builds the wheel of a checkout without a package from an index; it has one module, and states its requirements itself.
BACKEND = """
import zipfile
from pathlib import Path

def build_wheel(folder, config_settings=None, metadata_directory=None):
    info = "{name}-{version}.dist-info"
    name = "{name}-{version}-py3-none-any.whl"
    metadata = "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n" + Path("requires.txt").read_text()
    wheel = "Wheel-Version: 1.0\\nGenerator: minimatrix\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    source = Path("{name}.py").read_text()
    files = dict([("{name}.py", source), (info + "/METADATA", metadata), (info + "/WHEEL", wheel)])
    with zipfile.ZipFile(Path(folder, name), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(info + "/RECORD", "".join(path + ",,\\n" for path in [*files, info + "/RECORD"]))
    return name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@dataclass(frozen=True)
class Checkout:
    """A git checkout of a fake package."""

    folder: Path
    name: str

    def write(self, path: str, text: str) -> None:
        (self.folder / path).write_text(text, encoding="utf-8")

    def change(self, source: str) -> None:
        """Replace the source of the module."""
        self.write(f"{self.name}.py", source)

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            [str(shutil.which("git")), "-C", str(self.folder), *identity, *words],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def checkout(tmp_path: Path) -> Callable[..., Checkout]:
    """``checkout("peft")``: a new checkout of a fake package with one commit."""

    def made(name: str, version: str = "0.0.1", requires: str = "") -> Checkout:
        ready = Checkout(tmp_path / "checkouts" / name, name)
        ready.folder.mkdir(parents=True)
        ready.write("pyproject.toml", PROJECT)
        ready.write("backend.py", BACKEND.format(name=name, version=version))
        ready.write("requires.txt", f"Requires-Dist: {requires}\n" if requires else "")
        ready.write(".gitignore", "__pycache__/\n")
        ready.change("")
        ready.git("init", "--quiet", "--initial-branch", "main")
        ready.commit()
        return ready

    return made


def digest(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def index(folder: Path) -> str:
    """A simple index (PEP 503) of all fake wheels; its URL."""
    for name in sorted({name for name, _ in WHEELS}):
        (folder / name).mkdir(parents=True)
        made = [wheel(folder / name, *which, source) for which, source in WHEELS.items() if which[0] == name]
        links = "".join(f'<a href="{path.name}">{path.name}</a>\n' for path in made)
        (folder / name / "index.html").write_text(f"<!DOCTYPE html><html><body>\n{links}</body></html>\n")
    return folder.as_uri()


@pytest.fixture
def build_index() -> Callable[[Path], str]:
    return index


@pytest.fixture
def build_wheel() -> Callable[[Path, str, str, str], Path]:
    return wheel


def versions_file(path: Path) -> Path:
    """The sets of ``SETS``; ``good`` is the default."""
    base = dict.fromkeys(sets.PACKAGES, "0.0.1")
    for key, (why, pins) in SETS.items():
        lines = [f"[sets.{key}]", f'python = "{PYTHON}"', "as-of = 2026-01-01", f'why = "{why}"']
        lines += [f"default = {str(key == 'good').lower()}", f"[sets.{key}.pins]"]
        lines += [f'{name} = "{version}"' for name, version in {**base, **pins}.items()]
        with path.open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n\n")
    refusing = next(each for each in sets.load(path) if each.key == "refuses-install")
    text = "".join(f"{name}=={version} --hash=sha256:{'0' * 64}\n" for name, version in refusing.pins.items())
    made = locks.Lock(version_set=refusing, text=f"{locks.header(refusing)}\n{text}")
    locks.write(made, folder=locks.locks_folder(path))
    assert refusing.as_of == date(2026, 1, 1)
    return path


@dataclass(frozen=True)
class Mini:
    """A folder with its own versions, cache and runs; ``mark`` identifies every process that was started for it."""

    folder: Path
    index: str
    runner: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def add_set(self, key: str, changed: Mapping[str, str]) -> None:
        """Add a copy of the good set with other versions of some packages."""
        text = self.versions.read_text(encoding="utf-8")
        good = text[text.index("[sets.good]") : text.index("[sets.unresolvable]")].replace("default = true\n", "")
        for name, version in changed.items():
            good = good.replace(f'{name} = "0.0.1"', f'{name} = "{version}"')
        self.versions.write_text(text + good.replace("sets.good", f"sets.{key}"), encoding="utf-8")

    @property
    def out(self) -> Path:
        return self.folder / "run"

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    @property
    def versions(self) -> Path:
        return self.folder / "versions.toml"

    def begin(self) -> Mini:
        self.notes.mkdir(parents=True)
        self.temporary.mkdir()
        versions_file(self.versions)
        runner = self.folder / "cache" / "runner" / f"{pytest_runner.runner_digest()}-python{PYTHON}"
        runner.parent.mkdir(parents=True)
        runner.symlink_to(self.runner)
        shutil.copy(self.runner.with_name(digest_cache.FILE), self.folder / "cache")
        return self

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of the harness: the fake index, and no package configuration of the machine."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTEST_"))}
        return {
            **kept,
            "FTMATRIX_CACHE": str(self.folder / "cache"),
            "FTMATRIX_TEST_MARK": self.mark,
            "FTMATRIX_MINISUITE_NOTES": str(self.notes),
            "PIP_CONFIG_FILE": os.devnull,
            "TMPDIR": str(self.temporary),
            "UV_DEFAULT_INDEX": self.index,
        }

    def request(self, **fields: Any) -> dict[str, Any]:
        """The fields of a request for ``drive.py``."""
        defaults = {
            "versions": str(self.versions),
            "out": str(self.out),
            "limits": LIMITS,
            "device": "cpu",
            "cold_sample": 0,
        }
        return {**defaults, **fields}

    def start(self, **fields: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(HERE / "drive.py"), json.dumps(self.request(**fields))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.variables,
            start_new_session=True,
        )

    def run_process(self, **fields: Any) -> subprocess.CompletedProcess[str]:
        """Run the harness in a process of its own, as a user does."""
        started = self.start(**fields)
        out, err = started.communicate(timeout=4 * SOON_S)
        return subprocess.CompletedProcess(started.args, started.returncode, out, err)

    def run(self, **fields: Any) -> subprocess.CompletedProcess[str]:
        """Run the harness in this process."""
        return self.called(lambda: drive.run(self.request(**fields)))

    def called(self, function: Callable[[], int | None]) -> subprocess.CompletedProcess[str]:
        """Call a driver in this process, which has imported the harness and read the published results already."""
        out, err = io.StringIO(), io.StringIO()
        with patch.dict(os.environ, self.variables, clear=True), redirect_stdout(out), redirect_stderr(err):
            try:
                code = function()
            except SystemExit as ended:
                code = int(str(ended.code))
        return subprocess.CompletedProcess((), code or 0, out.getvalue(), err.getvalue())

    @property
    def options(self) -> tuple[str, ...]:
        """Options of a command for the fake sets."""
        return ("--versions", str(self.versions), "--device", "cpu", "--torch-backend", "pypi", "--keep-free", "0")

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ``ftmatrix`` with the suite of ``replacedsuite.py``, in a folder of its own."""
        folder = self.folder / "here"
        folder.mkdir(exist_ok=True)
        with chdir(folder), patch.object(sys, "argv", ["ftmatrix", *words, *self.options]):
            return self.called(drive_replaced.main)

    def lines(self) -> list[dict[str, Any]]:
        """The complete lines of the stored outcomes."""
        path = self.out / "outcomes.jsonl"
        *whole, _torn = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
        return [json.loads(line) for line in whole]

    def started_cells(self) -> list[str]:
        path = self.notes / "started"
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    def alive(self) -> dict[int, str]:
        """Every running process that was started for this folder, by its id."""
        return dict(marked_processes(f"FTMATRIX_TEST_MARK={self.mark}".encode()))


def marked_processes(mark: bytes) -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    return wait_until


def wait_until(condition: Callable[[], Any], *, what: Callable[[], object] = str, within_s: float = SOON_S) -> None:
    """Wait until a condition holds; fail after ``within_s`` seconds."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {within_s:g} s in vain: {what()}"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def ecosystem(make_once: Callable[..., Path]) -> tuple[str, Path]:
    """The URL of the fake index, and a folder with the runner, which has the real pytest, beside digests of modules."""

    def make(folder: Path) -> None:
        tool = uv.on_this_machine(cache_folder())
        options = ("--require-hashes", "-r", pytest_runner.RUNNER)
        done = tool.pip("install", "--python", sys.executable, "--target", folder / "runner", *options)
        assert done.exit_code == 0, done.log
        index(folder / "index")
        digest_cache.digest(Suite(module="minisuite", extra=(HERE / "minisuite.py",)).code, folder)

    folder = make_once("ecosystem", make)
    return (folder / "index").as_uri(), folder / "runner"


@pytest.fixture
def mini(ecosystem: tuple[str, Path], tmp_path: Path) -> Iterator[Mini]:
    """A harness of one test; the fixture kills processes that a failed test leaves behind."""
    ready = Mini(tmp_path, *ecosystem).begin()
    yield ready
    for pid in ready.alive():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def run_mini(mini: Mini) -> Callable[..., Mini]:
    """Runs the harness to the end and expects success."""

    def run(**fields: Any) -> Mini:
        done = mini.run(**fields)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return mini

    return run


@pytest.fixture
def command(mini: Mini, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs ``ftmatrix`` in this process with bad arguments; returns its message without the program's name."""
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in mini.variables.items():
        monkeypatch.setenv(name, value)
    (mini.folder / "here").mkdir()
    monkeypatch.chdir(mini.folder / "here")

    def refused(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["ftmatrix", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert ended.value.code == 2, said
        program, _, sentence = said.err.strip().partition(": ")
        assert program == "ftmatrix"
        assert "\n" not in sentence
        return sentence

    return refused


@dataclass(frozen=True)
class Whole:
    """A finished run. ``steps`` has the exit code and the output of each command."""

    mini: Mini
    steps: list[dict[str, Any]]

    @property
    def sets(self) -> list[str]:
        return list(SETS)

    def of(self, key: str) -> dict[str, dict[str, Any]]:
        return {line["case"]: line for line in self.mini.lines() if line["set"] == key}


@pytest.fixture(scope="session")
def whole(ecosystem: tuple[str, Path], make_once: Callable[..., Path]) -> Whole:
    """Runs every misbehaving case on a good set and on two blocked sets, and a few on sets that cannot be forked.

    Tests that only read share this run.
    """

    def make(folder: Path) -> None:
        mini = Mini(folder, *ecosystem).begin()
        first = mini.run_process(sets="good,unresolvable,refuses-install", where="group=mini")
        spoilt = "raises-on-import,threads-on-import,dies-on-import,cuda-on-import"
        second = mini.run_process(sets=spoilt, where="case=pass-plain,pass-where-a-need-is-met", resume=True)
        steps = [{"code": each.returncode, "out": each.stdout, "err": each.stderr} for each in (first, second)]
        (folder / "steps.json").write_text(json.dumps({"mark": mini.mark, "steps": steps}), encoding="utf-8")

    folder = make_once("whole", make)
    known = json.loads((folder / "steps.json").read_text(encoding="utf-8"))
    return Whole(Mini(folder, *ecosystem, known["mark"]), known["steps"])


@pytest.fixture(scope="session")
def kept_answer(ecosystem: tuple[str, Path], make_once: Callable[..., Path]) -> Callable[..., dict[str, Any]]:
    """Makes an answer once, in a harness of its name, for all tests and workers that read it."""

    def kept(name: str, make: Callable[[Mini], dict[str, Any]]) -> dict[str, Any]:
        def write(folder: Path) -> None:
            answer = make(Mini(folder, *ecosystem).begin())
            (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")

        answer: dict[str, Any] = json.loads((make_once(name, write) / "answer.json").read_text(encoding="utf-8"))
        return answer

    return kept


@pytest.fixture
def finished(whole: Whole, tmp_path: Path) -> Path:
    """A copy of a finished run, which a test may damage."""
    return Path(shutil.copytree(whole.mini.out, tmp_path / "finished"))


@pytest.fixture
def packed(mini: Any) -> Callable[[], packing.PackResult]:
    """Packs the good set from the fake index, which has no pytest."""

    def pack() -> packing.PackResult:
        no_pytest = mini.folder / "runner.txt"
        no_pytest.write_text("")
        request = packing.PackRequest(
            sets=sets.select(sets.load(mini.versions), "good"),
            folder=mini.folder / "pack",
            lock_folder=locks.locks_folder(mini.versions),
            runner=no_pytest,
        )
        tool = uv.on_this_machine(mini.folder / "cache", environ=mini.variables)
        return packing.pack(request, uv=tool, say=lambda _: None)

    return pack
