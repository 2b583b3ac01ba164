"""Installs environments: one per lock, interpreter and build of torch, made by uv, reused and shared between runs."""

from __future__ import annotations

import errno
import json
import shutil
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from cases.space.verdict import Phase
from matrix.environments import leases
from matrix.environments.environment import Environment, lease_path, site_packages
from matrix.environments.integrity import damage_of, damaged_packages
from matrix.environments.marker import MARKER, Marker, read_marker, write_marker
from matrix.environments.pytest_runner import PTH, runner_digest, runner_folder
from matrix.environments.torch_build import install_torch
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.versions.backends import Backend, in_torch_family
from matrix.versions.locks import distribution, same_version, statements
from matrix.versions.uv import CACHE_CLEAN_LIMIT_S, blame_machine, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from matrix.processes import Finished
    from matrix.versions.locks import Lock
    from matrix.versions.uv import Uv


@dataclass(frozen=True, kw_only=True)
class InstallRequest:
    """A lock to install, the cache that holds its environment, and the build of torch.

    ``runner`` is a folder that has pytest; None installs pytest.
    """

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
    """The lock's environment, from the cache or newly installed, or evidence why it cannot be installed.

    The caller releases the environment. If the index has no such build of torch, the lock's build is installed
    and a note says so.

    Args:
        lock: the distributions to install.
        cache: the folder of ``cache_folder``.
        uv: the command that installs.
        backend: the build of torch; the lock's by default.
        make_room: called before and after a new installation, never when a cached environment is reused.
        runner: a folder that has pytest; by default pytest is installed.

    Raises:
        UserError: the machine is at fault: no interpreter, no network, a full disk.
    """
    request = InstallRequest(lock=lock, cache=cache, uv=uv, backend=backend or Backend(), runner=runner)
    result = acquire(request, make_room=make_room)
    if isinstance(result, Environment) or request.backend.locked:
        return result
    note = (
        f"torch's {request.backend.name} build could not be installed ({result.reason});"
        " torch is the configured index's build"
    )
    return acquire(replace(request, backend=Backend(notes=(*request.backend.notes, note))), make_room=make_room)


def acquire(request: InstallRequest, *, make_room: Callable[[], object]) -> Environment | Evidence:
    """A leased environment, installed first if the cache has none that can be reused."""
    installed_now = False
    notes: list[str] = []
    while True:
        lease = leases.acquire_shared(lease_path(request.root))
        marker = reusable(request)
        if isinstance(marker, Marker):
            if installed_now:
                make_room()
            return leased(request, marker, lease, notes)
        lease.release()
        notes += [marker] if marker else []
        make_room()
        installed_now = True
        refusal = install_exclusively(request)
        if refusal is not None:
            return refusal
        # The lease was released for a moment: another run may have evicted the environment in the meantime.


def reusable(request: InstallRequest) -> Marker | str:
    """The marker of a complete environment, or why it cannot be reused: empty if there is none."""
    marker = read_marker(request.root)
    # The interpreter may have been uninstalled since.
    if marker is None or marker.runner != request.runner_identity or not (request.root / "bin" / "python").exists():
        return ""
    damage = damage_of(site_packages(request.root), marker)
    return f"the cached environment was damaged and was installed again: {damage}" if damage else marker


def leased(request: InstallRequest, marker: Marker, lease: leases.Lease, notes: list[str]) -> Environment:
    """The environment, which becomes the most recently used one."""
    (request.root / MARKER).touch()
    try:
        add_runner(request)
    except BaseException:
        lease.release()
        raise
    return Environment(
        key=request.lock.version_set.key,
        lock=marker.lock,
        backend=marker.backend,
        root=request.root,
        installed=marker.installed,
        notes=(*request.uv.notes, *request.backend.notes, *notes),
        lease=lease,
    )


def install_exclusively(request: InstallRequest) -> Evidence | None:
    """Install under an exclusive lease, unless another run just did. A failed installation leaves no files."""
    lease = leases.acquire_exclusive(lease_path(request.root))
    try:
        if isinstance(reusable(request), Marker):
            return None
        shutil.rmtree(request.root, ignore_errors=True)
        # uv keeps the lease's file open: if the harness is killed, the lease lasts until the orphaned uv ends.
        refusal = build(replace(request, uv=replace(request.uv, pass_fds=(lease.file.fileno(),))))
        if refusal is not None:
            shutil.rmtree(request.root, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(request.root, ignore_errors=True)
        raise user_error(error, request.root) from error
    except BaseException:
        shutil.rmtree(request.root, ignore_errors=True)
        raise
    else:
        return refusal
    finally:
        lease.release()


def user_error(error: OSError, root: Path) -> UserError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return UserError(f"{root}: the disk is full; free some space, or set FTMATRIX_CACHE to a larger disk")
    return UserError(f"{root}: {error.strerror or error}; set FTMATRIX_CACHE to a writable directory")


def build(request: InstallRequest) -> Evidence | None:
    """Install everything and write the marker. The first step that fails ends the installation."""
    refusal = install_packages(request)
    if refusal is not None:
        return refusal
    damaged = damaged_packages(site_packages(request.root))
    if damaged:
        # Files are hard links to uv's cache, so a file damaged in place is damaged there as well.
        request.uv("cache", "clean", *sorted(damaged), timeout_s=CACHE_CLEAN_LIMIT_S)
        shutil.rmtree(request.root, ignore_errors=True)
        refusal = install_packages(request)
        if refusal is not None:
            return refusal
        damaged = damaged_packages(site_packages(request.root))
    add_runner(request)
    write_marker(request.root, marker_of(request, unverified=tuple(sorted(damaged))))
    return None


def install_packages(request: InstallRequest) -> Evidence | None:
    create_venv(request)
    for step in (sync, add_torch, check_versions):
        refusal = step(request)
        if refusal is not None:
            return refusal
    return None


def create_venv(request: InstallRequest) -> None:
    python = request.lock.version_set.python
    result = request.uv("venv", "--python", python, request.root)
    if result.exit_code == 0:
        return
    if "interpreter" in result.log:  # uv found none, or one that does not start
        installed = ", ".join(interpreters(request.uv)) or "none"
        raise UserError(
            f"no working Python {python} found; install it and put python{python} on PATH (found: {installed})"
        )
    blame_machine(result, doing=f"creating an environment for Python {python}")
    raise UserError(f"an environment for Python {python} could not be created: {reason(result.log)}")


def interpreters(uv: Uv) -> list[str]:
    """Versions and paths of the working interpreters. uv prints warnings about others before its list."""
    result = uv("python", "list", "--only-installed", "--output-format", "json")
    try:
        rows = json.loads(result.log[result.log.index("[{") :])
    except ValueError:
        return []
    return sorted({f"{row['version']} ({row['path']})" for row in rows})


def sync(request: InstallRequest) -> Evidence | None:
    """Install the lock by its hashes, without torch and its libraries if another build of torch follows."""
    lines = statements(request.lock.text)
    requirement_lines = [line for line in lines if request.backend.locked or not in_torch_family(distribution(line))]
    # `==2.8.0` would also accept a 2.8.0+cpu from a find-links folder, and then reject its hash.
    with request.uv.requirements_file([line.replace("==", "===", 1) for line in requirement_lines]) as requirements:
        result = request.uv.pip("sync", "--python", request.root, "--require-hashes", requirements)
    return refusal_of(result, lock=request.lock)


def add_torch(request: InstallRequest) -> Evidence | None:
    if request.backend.locked:
        return None
    lock = request.lock
    result = install_torch(request.root, lock=lock, backend=request.backend, cache=request.cache, uv=request.uv)
    return refusal_of(result, lock=lock, ignore="network")  # the caller falls back to the configured index


def refusal_of(result: Finished, *, lock: Lock, ignore: str = "") -> Evidence | None:
    if result.exit_code == 0:
        return None
    blame_machine(result, doing=f"installing {lock.version_set.key}", ignore=ignore)
    return Evidence(phase=Phase.INSTALL, reason=reason(result.log), exit_code=result.exit_code, log=result.log)


def check_versions(request: InstallRequest) -> Evidence | None:
    """Compare installed versions with the lock. Another build of torch only needs the same public version."""
    installed = installed_versions(request.root)
    wrong = [
        f"{name} {version} is {installed.get(name, 'missing')}"
        for name, version in request.lock.versions.items()
        if (request.backend.locked or name == "torch" or not in_torch_family(name))
        and not (name in installed and same_version(installed[name], version))
    ]
    if not wrong:
        return None
    return Evidence(phase=Phase.INSTALL, reason=f"installed versions differ from the lock: {', '.join(wrong)}")


def installed_versions(root: Path) -> Mapping[str, str]:
    """Version by normalised name, read from the environment's metadata."""
    packages = distributions(path=[str(site_packages(root))])
    return dict(sorted((canonicalize_name(each.name), each.version) for each in packages))


def add_runner(request: InstallRequest) -> None:
    """Let the environment find pytest behind its own packages."""
    folder = request.runner or runner_folder(request.root, cache=request.cache, uv=request.uv)
    path, text = site_packages(request.root) / PTH, f"{folder}\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def marker_of(request: InstallRequest, *, unverified: tuple[str, ...]) -> Marker:
    return Marker(
        key=request.lock.version_set.key,
        lock=request.lock.digest,
        backend=request.backend.name,
        python=request.lock.version_set.python,
        runner=request.runner_identity,
        installed=installed_versions(request.root),
        unverified=unverified,
    )
