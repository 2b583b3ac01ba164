"""Installs another build of the locked torch, such as the CPU's, checked by hashes as everything else is.

A lock has the hashes of its own index's wheels only. Those of another build are locked when it is first installed on
this machine, and kept in the cache: a wheel that changes on the index later is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.versions.backends import in_torch_family
from matrix.versions.locks import PLATFORM, RESOLVE_LIMIT_S, distribution, pins_only, statements

if TYPE_CHECKING:
    from pathlib import Path

    from matrix.processes import Finished
    from matrix.versions.backends import Backend
    from matrix.versions.locks import Lock
    from matrix.versions.uv import Uv


def install_torch(root: Path, *, lock: Lock, backend: Backend, cache: Path, uv: Uv) -> Finished:
    """Install the backend's build of the locked torch. Packages that the lock pins are not changed."""
    hashed = cache / "torch-locks" / f"{lock.digest}-{backend.name}.txt"
    if not hashed.exists():
        result = lock_torch(lock, backend=backend, uv=uv)
        if result.exit_code != 0:
            return result
        store(hashed, pins_only(result.log))
    names = set(other_packages(lock))
    lines = [line for line in statements(hashed.read_text(encoding="utf-8")) if distribution(line) not in names]
    with uv.requirements_file(lines) as requirements:
        return uv.pip(
            *("install", "--python", root, "--torch-backend", backend.name),
            *("--no-deps", "--require-hashes", "-r", requirements),
        )


def lock_torch(lock: Lock, *, backend: Backend, uv: Uv) -> Finished:
    """Resolve the backend's build of the locked torch, with the hashes of the backend's index."""
    rest = [f"{name}=={version}" for name, version in other_packages(lock).items()]
    with uv.requirements_file(rest) as constraints:
        return uv.compile(
            [f"torch=={lock.versions['torch']}"],
            *("--generate-hashes", "--torch-backend", backend.name, "--constraints", str(constraints)),
            *("--python-version", lock.version_set.python, "--python-platform", PLATFORM),
            timeout_s=RESOLVE_LIMIT_S,
        )


def other_packages(lock: Lock) -> dict[str, str]:
    """Version by name of the packages that all builds of torch share."""
    return {name: version for name, version in lock.versions.items() if not in_torch_family(name)}


def store(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
