"""Every published error is decided, and every fault that repeats one has its row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.injection import published_faults
from cases.injection.patching import Fault
from matrix.errors import UserError
from matrix.known import published_errors

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = '[[source]]\nname = "P"\nlink = "https://p"\nabout = "1 bug"\non = 2026-11-23\nread = "all"\n'
ERROR = '[[error]]\nsource = "P"\nid = "1"\nlink = "a/b#1"\nknown = "listed"\ndoes = "loses data"\n'


def loaded(folder: Path, text: str) -> published_errors.PublishedErrors:
    file = folder / "errors.toml"
    file.write_text(text)
    return published_errors.load(file)


def test_every_fault_of_published_errors_has_a_row() -> None:
    faults = {each.name for each in vars(published_faults).values() if isinstance(each, Fault)}
    assert faults <= set(published_errors.faults(published_errors.load().error))


def test_no_error_is_listed_twice() -> None:
    ids = [(each.source, each.id) for each in published_errors.load().error]
    assert len(set(ids)) == len(ids)


def test_an_error_outside_has_its_reason(tmp_path: Path) -> None:
    (error,) = loaded(tmp_path, SOURCE + ERROR + 'outside = "no FP8"\n').error
    assert error.outside == "no FP8"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("", "either faults= or the reason outside="),
        ('faults = ["gradients_not_reduced"]\noutside = "x"\n', "either faults= or the reason outside="),
        ('faults = ["unheard_of"]\n', "unknown fault 'unheard_of'"),
    ],
)
def test_an_undecided_row_is_refused(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        loaded(tmp_path, SOURCE + ERROR + row)


def test_a_row_of_an_unknown_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown source 'Q'"):
        loaded(tmp_path, SOURCE + ERROR.replace('"P"', '"Q"') + 'outside = "x"\n')


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"errors\.toml: cannot read"):
        loaded(tmp_path, "[[")
