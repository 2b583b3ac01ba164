"""The disk budget: what is evicted, in which order, and what is never evicted."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.environments import disk, leases
from matrix.environments.environment import lease_path
from matrix.environments.marker import MARKER, Marker, write_marker
from matrix.processes import Finished
from matrix.versions.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest


@dataclass
class Cache:
    """A cache on a disk of ten units, of which each environment takes one."""

    root: Path
    commands: list[Sequence[str]] = field(default_factory=list)

    def add(self, name: str, *, used: float = 0.0, **installed: str) -> Path:
        folder = self.root / "envs" / name
        folder.mkdir(parents=True)
        write_marker(folder, Marker(key=name, lock="", backend="pypi", python="3.11", runner="", installed=installed))
        os.utime(folder / MARKER, (used, used))
        return folder

    def free(self, _folder: Path) -> int:
        return 10 - len(self.names())

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.root / "envs").iterdir() if path.is_dir())

    def call(self, argv: Sequence[str], **_: object) -> Finished:
        self.commands.append(argv[1:])
        return Finished(exit_code=0, log="")

    def keep_free(self, budget: int) -> int:
        variables = {"UV_CACHE_DIR": str(self.root / "uv")}
        uv = Uv(binary=self.root / "uv", workdir=self.root / "work", variables=variables, call=self.call)
        return disk.keep_free(self.root, uv=uv, budget_bytes=budget, free=self.free)


def test_nothing_is_evicted_while_enough_is_free(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.add("old")
    assert cache.keep_free(9) == 9
    assert cache.names() == ["old"]


def test_the_least_recently_used_environment_is_evicted_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for name, used in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
        cache.add(name, used=used)
    cache.keep_free(8)
    assert cache.names() == ["b", "c"]


def test_an_incomplete_environment_is_evicted_before_complete_ones(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.add("complete", used=1.0)
    (cache.add("incomplete", used=2.0) / MARKER).unlink()
    cache.keep_free(9)
    assert cache.names() == ["complete"]


def test_an_environment_in_use_is_never_evicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = Cache(tmp_path)
    lease = leases.acquire_shared(lease_path(cache.add("used")))
    cache.keep_free(10)
    lease.release()
    assert cache.names() == ["used"]
    assert "nothing is left to evict" in capsys.readouterr().out


def test_cached_packages_that_no_other_environment_has_are_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.add("old", used=1.0, torch="2.7", six="1.17")
    cache.add("new", used=2.0, torch="2.8", six="1.17")
    cache.keep_free(9)
    assert cache.commands == [["cache", "clean", "torch"]]


def test_an_eviction_reports_the_freed_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = Cache(tmp_path)
    cache.add("old", torch="2.7")
    cache.keep_free(10)
    assert capsys.readouterr().out.startswith("evicted environment old (old) and 1 cached packages: freed 0.0 GB")


def test_an_empty_cache_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    assert Cache(tmp_path).keep_free(10) == 10


def test_files_that_environments_link_to_do_not_count_as_free_space(tmp_path: Path) -> None:
    (tmp_path / "wheel").write_bytes(b"12345")
    (tmp_path / "wasted").write_bytes(b"123")
    (tmp_path / "link").hardlink_to(tmp_path / "wheel")
    assert disk.unlinked_bytes(tmp_path) == 3
