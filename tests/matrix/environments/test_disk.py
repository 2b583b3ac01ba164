"""What is taken away, in which order, and what never is."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.environments import disk, leases
from matrix.environments.provision import MARKER, SCHEMA, hold_path
from matrix.processes import Finished
from matrix.versions.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest


@dataclass
class Cache:
    """A cache with one unit of disk taken by each environment, of ten."""

    root: Path
    asked: list[Sequence[str]] = field(default_factory=list)

    def add(self, name: str, *, used: float = 0.0, **installed: str) -> Path:
        folder = self.root / "envs" / name
        folder.mkdir(parents=True)
        marker = {"schema": SCHEMA, "key": name, "installed": installed}
        (folder / MARKER).write_text(json.dumps(marker), encoding="utf-8")
        os.utime(folder / MARKER, (used, used))
        return folder

    def free(self, _folder: Path) -> int:
        return 10 - len(self.names())

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.root / "envs").iterdir() if path.is_dir())

    def call(self, argv: Sequence[str], **_: object) -> Finished:
        self.asked.append(argv[1:])
        return Finished(exit_code=0, log="")

    def keep_free(self, budget: int) -> int:
        variables = {"UV_CACHE_DIR": str(self.root / "uv")}
        uv = Uv(binary=self.root / "uv", workdir=self.root / "work", variables=variables, call=self.call)
        return disk.keep_free(self.root, uv=uv, budget_bytes=budget, free=self.free)


def test_nothing_goes_while_enough_is_free(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.add("old")
    assert cache.keep_free(9) == 9
    assert cache.names() == ["old"]


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for name, used in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
        cache.add(name, used=used)
    cache.keep_free(8)
    assert cache.names() == ["b", "c"]


def test_a_half_made_one_goes_before_any(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.add("whole", used=1.0)
    (cache.add("half", used=2.0) / MARKER).unlink()
    cache.keep_free(9)
    assert cache.names() == ["whole"]


def test_one_in_use_stays_whatever_the_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = Cache(tmp_path)
    hold = leases.shared(hold_path(cache.add("used")))
    cache.keep_free(10)
    hold.release()
    assert cache.names() == ["used"]
    assert "nothing is left to evict" in capsys.readouterr().out


def test_its_cached_packages_go_with_it_but_for_those_that_others_have(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.add("old", used=1.0, torch="2.7", six="1.17")
    cache.add("new", used=2.0, torch="2.8", six="1.17")
    cache.keep_free(9)
    assert cache.asked == [["cache", "clean", "torch"]]


def test_it_says_what_went_and_what_it_brought(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = Cache(tmp_path)
    cache.add("old", torch="2.7")
    cache.keep_free(10)
    assert capsys.readouterr().out.startswith("evicted environment old (old) and 1 cached packages: 0.0 GB freed")


def test_an_empty_cache_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    assert Cache(tmp_path).keep_free(10) == 10


def test_files_that_environments_link_to_would_free_nothing(tmp_path: Path) -> None:
    (tmp_path / "wheel").write_bytes(b"12345")
    (tmp_path / "wasted").write_bytes(b"123")
    (tmp_path / "link").hardlink_to(tmp_path / "wheel")
    assert disk.unlinked_bytes(tmp_path) == 3
