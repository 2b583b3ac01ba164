"""The disk budget: keep some of it free by taking away what was used least recently.

Files of an environment are links to uv's cache, so an environment alone frees nothing: the wheels that no kept
environment uses go with it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matrix.environments import leases
from matrix.environments.provision import MARKER, hold_path, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from matrix.versions.uv import Uv

GIGABYTE: Final = 10**9
BUDGET: Final = 20 * GIGABYTE
CLEAN_LIMIT_S: Final = 600.0
WORTH_SAYING: Final = GIGABYTE // 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An environment on disk: complete or half made, in use or not."""

    root: Path
    name: str
    used: float
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
    """Evict until the budget is free or nothing is left that nobody uses. Bytes that are free afterwards."""
    for step in steps(cache, uv=uv):
        before = free(cache)
        if before >= budget_bytes:
            return before
        what = step()
        left = free(cache)
        if what and (left - before >= WORTH_SAYING or what.startswith("evicted")):
            say(f"{what}: {size(left - before)} freed, {size(left)} free")
    left = free(cache)
    if left < budget_bytes:
        say(f"only {size(left)} are free, {size(budget_bytes)} were to stay free; nothing is left to evict")
    return left


def steps(cache: Path, *, uv: Uv) -> Iterator[Callable[[], str]]:
    """What can be taken away, what is missed least first."""
    for each in least_recently_used(cache):
        yield lambda each=each: evicted(each, cache=cache, uv=uv)  # type: ignore[misc]
    yield lambda: cleaned(uv, "prune")
    # A cache that the user shares with other work is not emptied, nor one whose files kept environments have anyway.
    if uv.cache.is_relative_to(cache) and unlinked_bytes(uv.cache) > WORTH_SAYING:
        yield lambda: cleaned(uv, "clean")


def least_recently_used(cache: Path) -> list[Kept]:
    folder = cache / "envs"
    roots = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    return sorted((kept(root) for root in roots), key=lambda each: each.used)


def kept(root: Path) -> Kept:
    marker = marked(root)
    used = last_used(root)
    if marker is None or used is None:  # half made by a run that was killed, or of another version of the harness
        return Kept(root=root, name=root.name, used=0.0, installed={})
    return Kept(root=root, name=f"{marker['key']} ({root.name})", used=used, installed=marker["installed"])


def last_used(root: Path) -> float | None:
    try:
        return (root / MARKER).stat().st_mtime
    except FileNotFoundError:  # another run is evicting it
        return None


def evicted(victim: Kept, *, cache: Path, uv: Uv) -> str:
    """Take it away unless somebody holds it. What was done, empty if nothing."""
    hold = leases.exclusive_now(hold_path(victim.root))
    if hold is None:
        return ""
    try:
        (victim.root / MARKER).unlink(missing_ok=True)  # first: half an environment must not look like a whole one
        shutil.rmtree(victim.root, ignore_errors=True)
    finally:
        hold.release()
    names = unused(victim, least_recently_used(cache))
    if names:
        uv("cache", "clean", *names, timeout_s=CLEAN_LIMIT_S)
    return f"evicted environment {victim.name} and {len(names)} cached packages"


def unused(victim: Kept, others: list[Kept]) -> list[str]:
    """Packages that no kept environment has in this version.

    uv forgets packages by name, so other versions of these go from its cache as well. That costs a kept environment
    nothing: its links stay, and only making it anew would download them again.
    """
    needed = {pin for other in others for pin in other.installed.items()}
    return sorted(name for name, version in victim.installed.items() if (name, version) not in needed)


def cleaned(uv: Uv, how: str) -> str:
    done = uv("cache", how, timeout_s=CLEAN_LIMIT_S)
    return f"uv cache {how}" if done.exit_code == 0 else ""


def unlinked_bytes(folder: Path) -> int:
    """What emptying the folder would free: files that no environment has a link to."""
    found = ((Path(at) / name).lstat() for at, _, names in os.walk(folder) for name in names)
    try:
        return sum(each.st_size for each in found if each.st_nlink == 1)
    except FileNotFoundError:  # uv is at work there: whatever it leaves is for another time
        return 0


def size(count: int) -> str:
    return f"{count / GIGABYTE:.1f} GB"
