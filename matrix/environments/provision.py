"""Environments: one per lock, interpreter and build of torch, made by uv, kept and shared between runs.

What the harness needs inside (pytest) lies in a folder of its own, which an environment sees behind its own packages.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import platformdirs
from packaging.utils import canonicalize_name

from cases.space.verdict import Phase
from matrix.environments import leases
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.versions.backends import Backend, in_family
from matrix.versions.locks import same_version, statements
from matrix.versions.uv import blame_machine, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matrix.environments.leases import Hold
    from matrix.processes import Finished
    from matrix.versions.locks import Lock
    from matrix.versions.uv import Uv

SCHEMA: Final = 1
MARKER: Final = "ftmatrix.json"  # written last: an environment without it is half made
RUNNER: Final = Path(__file__).with_name("runner.txt")
CALLERS: Final = frozenset(
    {"PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "__PYVENV_LAUNCHER__"}
)
PTH: Final = "zz_ftmatrix_runner.pth"  # the last to be read, so that it cannot hide anything


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A complete environment. While it is held, no run's disk budget takes it away."""

    key: str
    lock: str
    backend: str
    root: Path
    installed: Mapping[str, str]
    notes: tuple[str, ...] = ()
    hold: Hold = field(repr=False, compare=False)

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def standard_library(self) -> Path | None:
        """Of the interpreter that it was made from, as its ``pyvenv.cfg`` says; None where it does not."""
        config = self.root / "pyvenv.cfg"
        lines = config.read_text(encoding="utf-8").splitlines() if config.exists() else []
        said = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
        home = said.get("home", "")
        return Path(home).parent / "lib" / site_packages(self.root).parent.name if home else None

    def release(self) -> None:
        self.hold.release()

    def variables(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """For processes of the environment: nothing of the caller's Python gets in, and bytecode is kept.

        Bytecode is left to the first import, which takes 12 s instead of 5: compiling everything at once takes as
        long, and most of it is never imported.
        """
        outer = os.environ if environ is None else environ
        kept = {name: value for name, value in outer.items() if name not in CALLERS}
        path = os.pathsep.join([str(self.root / "bin"), outer.get("PATH", os.defpath)])
        return {**kept, "PATH": path, "VIRTUAL_ENV": str(self.root), "PYTHONNOUSERSITE": "1"}


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where environments, uv's cache and the like live: FTMATRIX_CACHE, or the user's cache folder."""
    chosen = (os.environ if environ is None else environ).get("FTMATRIX_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else platformdirs.user_cache_path("ftmatrix")


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be made, where, and with which build of torch."""

    lock: Lock
    cache: Path
    uv: Uv
    backend: Backend
    runner: Path | None = None

    @property
    def root(self) -> Path:
        return self.cache / "envs" / f"{self.lock.digest}-{self.backend.name}"

    @property
    def runner_identity(self) -> str:
        return str(self.runner or runner_digest())


def install(
    lock: Lock,
    *,
    cache: Path,
    uv: Uv,
    backend: Backend | None = None,
    make_room: Callable[[], object] = tuple,
    runner: Path | None = None,
) -> Environment | Evidence:
    """The lock's environment, from the cache or newly made, held by the caller; or why there is none.

    ``make_room`` is called before and after a new one is made, never when one is reused. ``runner`` is a folder that
    has pytest already, where none is to be installed.
    """
    order = Order(lock=lock, cache=cache, uv=uv, backend=backend or Backend(), runner=runner)
    ready = held(order, make_room=make_room)
    if isinstance(ready, Environment) or order.backend.locked:
        return ready
    note = (
        f"torch's {order.backend.name} build could not be installed ({ready.reason});"
        " torch is the configured index's build"
    )
    return held(replace(order, backend=Backend(notes=(*order.backend.notes, note))), make_room=make_room)


def held(order: Order, *, make_room: Callable[[], object]) -> Environment | Evidence:
    new = False
    while True:
        hold = leases.shared(hold_path(order.root))
        found = complete(order, hold=hold)
        if found is not None:
            if new:
                make_room()
            return found
        hold.release()
        make_room()
        new = True
        refused = made(order)
        if refused is not None:
            return refused
        # Made, and given up for a moment: another run may have evicted it before it is held again.


def hold_path(root: Path) -> Path:
    """Beside the environment: the file must outlive it, or two could hold different files of one name."""
    return root.with_name(f"{root.name}.lock")


def complete(order: Order, *, hold: Hold) -> Environment | None:
    """The environment if it was made to its end; using it makes it the most recently used one."""
    marker = whole(order)
    if marker is None:
        return None
    (order.root / MARKER).touch()
    return Environment(
        key=order.lock.version_set.key,
        lock=marker["lock"],
        backend=marker["backend"],
        root=order.root,
        installed=marker["installed"],
        notes=(*order.uv.notes, *order.backend.notes),
        hold=hold,
    )


def whole(order: Order) -> dict[str, Any] | None:
    """Its marker, if it is complete, starts, and finds the pytest that is asked for."""
    marker = marked(order.root)
    if marker is None or marker["runner"] != order.runner_identity:
        return None
    # Its interpreter may have been uninstalled, and the folder with pytest emptied.
    needed = (order.root / "bin" / "python", runner_seen(order.root))
    return marker if all(path.exists() for path in needed) else None


def runner_seen(root: Path) -> Path:
    return Path((site_packages(root) / PTH).read_text(encoding="utf-8").strip())


def marked(root: Path) -> dict[str, Any] | None:
    try:
        marker: dict[str, Any] = json.loads((root / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return marker if marker.get("schema") == SCHEMA else None


def made(order: Order) -> Evidence | None:
    """Make it, unless someone else just did. Nothing half-made stays behind, whatever ends this."""
    hold = leases.exclusive(hold_path(order.root))
    try:
        if whole(order) is not None:
            return None
        shutil.rmtree(order.root, ignore_errors=True)
        refused = built(replace(order, uv=replace(order.uv, pass_fds=(hold.file.fileno(),))))
        if refused is not None:
            shutil.rmtree(order.root, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(order.root, ignore_errors=True)
        raise in_words(error, order.root) from error
    except BaseException:
        shutil.rmtree(order.root, ignore_errors=True)
        raise
    else:
        return refused
    finally:
        hold.release()


def in_words(error: OSError, root: Path) -> UserError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return UserError(f"{root}: the disk is full; free some space, or point FTMATRIX_CACHE at a larger disk")
    return UserError(f"{root}: {error.strerror or error}; let FTMATRIX_CACHE name a folder that can be written")


def built(order: Order) -> Evidence | None:
    """The steps, in order. The first that is refused ends it."""
    created(order)
    for step in (synced, torch_added, verified):
        refused = step(order)
        if refused is not None:
            return refused
    runner_added(order)
    write_marker(order)
    return None


def created(order: Order) -> None:
    python = order.lock.version_set.python
    done = order.uv("venv", "--python", python, order.root)
    if done.exit_code == 0:
        return
    if "interpreter" in done.log:  # none, or one that does not start
        raise UserError(
            f"Python {python} is needed, and there is none that works; install it so that python{python} is on the PATH"
            f" (found: {', '.join(interpreters(order.uv)) or 'none'})"
        )
    blame_machine(done, doing=f"making an environment for Python {python}")
    raise UserError(f"an environment for Python {python} could not be made: {reason(done.log)}")


def interpreters(uv: Uv) -> list[str]:
    """The versions that are there and work; what does not work, uv warns about in front of its list."""
    done = uv("python", "list", "--only-installed", "--output-format", "json")
    try:
        rows = json.loads(done.log[done.log.index("[{") :])
    except ValueError:
        return []
    return sorted({f"{row['version']} ({row['path']})" for row in rows})


def synced(order: Order) -> Evidence | None:
    """The lock by its hashes; without torch's family when another build of it comes next."""
    lines = statements(order.lock.text)
    kept = [line for line in lines if order.backend.locked or not in_family(distribution(line))]
    # `==2.8.0` would also take a 2.8.0+cpu that lies in some find-links folder, and then refuse its hash.
    with order.uv.listed([line.replace("==", "===", 1) for line in kept]) as wanted:
        done = order.uv.pip("sync", "--python", order.root, "--require-hashes", wanted)
    return refusal(done, lock=order.lock)


def distribution(statement: str) -> str:
    return str(canonicalize_name(statement.partition("==")[0]))


def torch_added(order: Order) -> Evidence | None:
    """Another build of the locked torch, with what it needs; everything else stays where the lock has it."""
    lock, uv, backend = order.lock, order.uv, order.backend
    if backend.locked:
        return None
    rest = [f"{name}=={version}" for name, version in lock.versions.items() if not in_family(name)]
    with uv.listed(rest) as kept, uv.listed([f"torch=={lock.versions['torch']}"]) as wanted:
        done = uv.pip(
            "install", "--python", order.root, "--torch-backend", backend.name, "--constraints", kept, "-r", wanted
        )
    return refusal(done, lock=lock, but="network")  # another index than the configured one: there is a way round it


def refusal(done: Finished, *, lock: Lock, but: str = "") -> Evidence | None:
    if done.exit_code == 0:
        return None
    blame_machine(done, doing=f"installing {lock.version_set.key}", but=but)
    return Evidence(phase=Phase.INSTALL, reason=reason(done.log), exit_code=done.exit_code, log=done.log)


def verified(order: Order) -> Evidence | None:
    """What got installed is what the lock says; another build of torch only has to be of the same version."""
    there = installed(order.root)
    wrong = [
        f"{name} {version} is {there.get(name, 'missing')}"
        for name, version in order.lock.versions.items()
        if (order.backend.locked or name == "torch" or not in_family(name))
        and not (name in there and same_version(there[name], version))
    ]
    if not wrong:
        return None
    return Evidence(phase=Phase.INSTALL, reason=f"what got installed is not what was locked: {', '.join(wrong)}")


def installed(root: Path) -> dict[str, str]:
    """Versions by distribution, read from the environment's own metadata."""
    found = distributions(path=[str(site_packages(root))])
    return dict(sorted((canonicalize_name(each.name), each.version) for each in found))


def site_packages(root: Path) -> Path:
    return next(root.glob("lib/python3.*/site-packages"))


def runner_digest() -> str:
    return sha256(RUNNER.read_bytes()).hexdigest()[:12]


def runner_added(order: Order) -> None:
    """Let the environment find pytest behind its own packages: a .pth file appends to sys.path."""
    folder = order.runner or runner_folder(order)
    (site_packages(order.root) / PTH).write_text(f"{folder}\n", encoding="utf-8")


def runner_folder(order: Order) -> Path:
    """What an environment gets to see of pytest, once per version of Python, shared by all environments."""
    version = site_packages(order.root).parent.name
    folder = order.cache / "runner" / f"{runner_digest()}-{version}"
    hold = leases.exclusive(hold_path(folder))
    try:
        if not folder.exists():
            new = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(new, ignore_errors=True)
            done = order.uv.pip("install", "--python", order.root, "--target", new, "--require-hashes", "-r", RUNNER)
            if done.exit_code != 0:
                blame_machine(done, doing="installing pytest for the environments")
                raise UserError(f"pytest could not be installed for the environments: {reason(done.log)}")
            new.rename(folder)
    finally:
        hold.release()
    return folder


def write_marker(order: Order) -> None:
    marker = {
        "schema": SCHEMA,
        "key": order.lock.version_set.key,
        "lock": order.lock.digest,
        "backend": order.backend.name,
        "python": order.lock.version_set.python,
        "runner": order.runner_identity,
        "installed": installed(order.root),
    }
    new = order.root / f"{MARKER}.new"
    new.write_text(json.dumps(marker, indent=1), encoding="utf-8")
    new.replace(order.root / MARKER)
