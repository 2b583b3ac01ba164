"""Keeps part of the disk free by evicting the least recently used environments.

Files of an environment are hard links to uv's cache, so removing an environment alone frees nothing. Wheels that no
remaining environment uses are removed from uv's cache with it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matrix.environments import leases
from matrix.environments.environment import lease_path
from matrix.environments.marker import MARKER, read_marker
from matrix.versions.uv import CACHE_CLEAN_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from matrix.versions.uv import Uv

GIGABYTE: Final = 10**9
BUDGET: Final = 20 * GIGABYTE
NOTABLE: Final = GIGABYTE // 10  # smaller gains are not reported


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedEnvironment:
    """An environment on disk: complete or not, in use or not. ``last_used`` in seconds since the epoch."""

    root: Path
    name: str
    last_used: float
    installed: Mapping[str, str]


def free_bytes(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    return shutil.disk_usage(folder).free


def keep_free(
    cache: Path,
    *,
    uv: Uv,
    budget_bytes: int = BUDGET,
    say: Callable[[str], None] = print,
    free: Callable[[Path], int] = free_bytes,
) -> int:
    """Evict until ``budget_bytes`` are free or everything left is in use; return the bytes that are free then."""
    for step in eviction_steps(cache, uv=uv):
        before = free(cache)
        if before >= budget_bytes:
            return before
        action = step()
        after = free(cache)
        if action and (after - before >= NOTABLE or action.startswith("evicted")):
            say(f"{action}: freed {size(after - before)}, {size(after)} free")
    after = free(cache)
    if after < budget_bytes:
        say(f"only {size(after)} of the required {size(budget_bytes)} are free; nothing is left to evict")
    return after


def eviction_steps(cache: Path, *, uv: Uv) -> Iterator[Callable[[], str]]:
    """Actions that free space, the cheapest to undo first. Each returns what it did, or nothing if it did nothing."""
    for each in least_recently_used(cache):
        yield lambda each=each: evict(each, cache=cache, uv=uv)  # type: ignore[misc]
    yield lambda: clean(uv, "prune")
    # Never empty a cache that the user shares with other work. Files that environments link to would free nothing.
    if uv.cache.is_relative_to(cache) and unlinked_bytes(uv.cache) > NOTABLE:
        yield lambda: clean(uv, "clean")


def least_recently_used(cache: Path) -> list[CachedEnvironment]:
    folder = cache / "envs"
    roots = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    return sorted((cached_environment(root) for root in roots), key=lambda each: each.last_used)


def cached_environment(root: Path) -> CachedEnvironment:
    marker = read_marker(root)
    used = last_used(root)
    if marker is None or used is None:  # left by a killed run, or by another version of the harness
        return CachedEnvironment(root=root, name=root.name, last_used=0.0, installed={})
    return CachedEnvironment(root=root, name=f"{marker.key} ({root.name})", last_used=used, installed=marker.installed)


def last_used(root: Path) -> float | None:
    try:
        return (root / MARKER).stat().st_mtime
    except FileNotFoundError:  # another run is evicting it
        return None


def evict(victim: CachedEnvironment, *, cache: Path, uv: Uv) -> str:
    """Remove an environment that nobody uses; return what was done, or nothing if it is in use."""
    lease = leases.try_acquire_exclusive(lease_path(victim.root))
    if lease is None:
        return ""
    try:
        (victim.root / MARKER).unlink(missing_ok=True)  # first, or half an environment would look complete
        shutil.rmtree(victim.root, ignore_errors=True)
    finally:
        lease.release()
    names = unused_packages(victim, least_recently_used(cache))
    if names:
        uv("cache", "clean", *names, timeout_s=CACHE_CLEAN_LIMIT_S)
    return f"evicted environment {victim.name} and {len(names)} cached packages"


def unused_packages(victim: CachedEnvironment, others: list[CachedEnvironment]) -> list[str]:
    """Packages of which no other environment has this version.

    uv removes packages from its cache by name, so their other versions go as well. Other environments keep their
    links; only a new installation has to download those versions again.
    """
    needed = {pin for other in others for pin in other.installed.items()}
    return sorted(name for name, version in victim.installed.items() if (name, version) not in needed)


def clean(uv: Uv, command: str) -> str:
    result = uv("cache", command, timeout_s=CACHE_CLEAN_LIMIT_S)
    return f"uv cache {command}" if result.exit_code == 0 else ""


def unlinked_bytes(folder: Path) -> int:
    """Bytes that emptying the folder would free: files without a link from an environment."""
    stats = ((Path(at) / name).lstat() for at, _, names in os.walk(folder) for name in names)
    try:
        return sum(each.st_size for each in stats if each.st_nlink == 1)
    except FileNotFoundError:  # uv is using the folder: leave it
        return 0


def size(count: int) -> str:
    return f"{count / GIGABYTE:.1f} GB"
