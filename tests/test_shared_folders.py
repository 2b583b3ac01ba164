"""A folder that tests of several xdist workers share is made once, and again if the first attempt failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_folder_is_made_once(make_once: Callable[..., Path]) -> None:
    def make(folder: Path) -> None:
        folder.mkdir()
        made.append(folder)

    made: list[Path] = []
    assert make_once("made once", make) == make_once("made once", make)
    assert len(made) <= 1  # none, if another worker was first
    assert make_once("made once", make).is_dir()


def test_a_folder_of_a_failed_attempt_is_made_again(make_once: Callable[..., Path]) -> None:
    def fail(folder: Path) -> None:
        folder.mkdir()
        raise RuntimeError("half made")

    with pytest.raises(RuntimeError):
        make_once("made again", fail)
    assert make_once("made again", lambda folder: folder.mkdir()).is_dir()


def test_workers_of_a_session_share_the_folder(
    shared_folder: Path, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> None:
    base = tmp_path_factory.getbasetemp()
    assert base in {shared_folder, shared_folder / f"popen-{worker_id}"}
