"""Resolving version sets and storing their locks."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest

from cases.space.verdict import Phase
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.processes import Finished
from matrix.versions import locking, locks, sets
from matrix.versions.locks import Lock
from matrix.versions.sets import VersionSet
from matrix.versions.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PINS = dict(zip(sets.PACKAGES, ("2.8.0", "4.56.1", "0.17.1", "0.47.0", "1.10.1", "0.23.0"), strict=True))
RESOLVED = "Resolved 6 packages\nwarning: `some/folder` is odd\n" + "".join(
    f"{name}=={version} \\\n    --hash=sha256:{name}\n" for name, version in PINS.items()
)
REFUSED = "error: No solution found\n  cause: Because there is no version of torch==2.8.0, it cannot be.\n"
PYLOCK = """lock-version = "1.0"
[[packages]]
name = "peft"
wheels = [{ url = "https://files.example/peft.whl", upload-time = 2024-09-25T11:53:20Z }]
"""


def a_set(key: str = "2025-09", **moved: str) -> VersionSet:
    return VersionSet(key=key, python="3.11", as_of=date(2025, 9, 15), pins={**PINS, **moved}, why="a slice")


class FakeUv:
    """A fake uv that records its calls and always prints the same log."""

    def __init__(self, tmp_path: Path, log: str, exit_code: int | None = 0) -> None:
        self.calls: list[Sequence[str]] = []
        self.done = Finished(exit_code=exit_code, log=log)
        self.uv = Uv(binary=tmp_path / "uv", workdir=tmp_path, variables={"UV_FIND_LINKS": "/wheels"}, call=self)
        self.environ: Mapping[str, str] = {}

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,  # noqa: ARG002
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,  # noqa: ARG002
        pass_fds: Sequence[int] = (),  # noqa: ARG002
    ) -> Finished:
        self.calls.append(argv)
        self.environ = env or {}
        return self.done


def test_a_lock_holds_the_pins_and_nothing_of_the_machine(tmp_path: Path) -> None:
    made = locking.resolve(a_set(), uv=FakeUv(tmp_path, RESOLVED).uv)
    assert isinstance(made, Lock)
    assert made.versions == PINS
    assert "/home" not in made.text


def test_a_set_is_resolved_as_of_its_date_and_without_undated_folders(tmp_path: Path) -> None:
    fake = FakeUv(tmp_path, RESOLVED)
    locking.resolve(a_set(), uv=fake.uv)
    assert "2025-09-15T23:59:59Z" in fake.calls[0]
    assert "UV_FIND_LINKS" not in fake.environ


def test_a_set_that_does_not_resolve_is_evidence(tmp_path: Path) -> None:
    why = locking.resolve(a_set(), uv=FakeUv(tmp_path, REFUSED, exit_code=1).uv)
    assert isinstance(why, Evidence)
    assert (why.phase, why.exit_code) == (Phase.RESOLVE, 1)
    assert why.reason == "No solution found: Because there is no version of torch==2.8.0, it cannot be."


def test_a_version_without_an_upload_date_gets_a_remark(tmp_path: Path) -> None:
    hidden = "warning: `torch-2.8.0-cp311-cp311-manylinux_2_28_x86_64.whl` is missing an upload date, but user...\n"
    why = locking.resolve(a_set(), uv=FakeUv(tmp_path, hidden + REFUSED, exit_code=1).uv)
    assert isinstance(why, Evidence)
    assert "The index states no upload date for torch==2.8.0" in why.reason


def test_an_unreachable_index_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="locking 2025-09: the package index cannot be reached"):
        locking.resolve(a_set(), uv=FakeUv(tmp_path, "error: Failed to fetch: `x`", exit_code=2).uv)


def test_a_stored_lock_is_not_resolved_again(tmp_path: Path) -> None:
    fake = FakeUv(tmp_path, RESOLVED)
    made = locking.read_or_resolve(a_set(), uv=fake.uv, folder=tmp_path)
    assert locking.read_or_resolve(a_set(), uv=fake.uv, folder=tmp_path) == made
    assert len(fake.calls) == 1


def test_a_lock_of_other_pins_is_stale(tmp_path: Path) -> None:
    locking.read_or_resolve(a_set(), uv=FakeUv(tmp_path, RESOLVED).uv, folder=tmp_path)
    stored = locks.read(a_set(peft="0.17.0"), folder=tmp_path)
    assert stored is not None
    assert stored.stale


def test_an_unresolvable_set_leaves_no_lock(tmp_path: Path) -> None:
    locking.read_or_resolve(a_set(), uv=FakeUv(tmp_path, REFUSED, exit_code=1).uv, folder=tmp_path / "locks")
    assert not (tmp_path / "locks").exists()


def test_a_version_is_dated_by_its_first_upload(tmp_path: Path) -> None:
    day = locking.release_date("peft", "0.13.0", python="3.11", uv=FakeUv(tmp_path, PYLOCK).uv)
    assert day == date(2024, 9, 25)


def test_a_version_that_does_not_exist_is_bad_input(tmp_path: Path) -> None:
    fake = FakeUv(tmp_path, REFUSED.replace("torch==2.8.0", "peft==99"), exit_code=1)
    with pytest.raises(UserError, match="the configured index has no peft 99"):
        locking.release_date("peft", "99", python="3.11", uv=fake.uv)
