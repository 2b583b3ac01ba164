"""Words of ``--with`` name a git reference, a checkout, a wheel or a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from matrix.replacements.source import SourceKind, parsed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("word", "name", "place", "reference"),
    [
        ("peft=git+https://host/o/peft@feature/x", "peft", "https://host/o/peft", "feature/x"),
        ("peft @ git+https://host/o/peft.git", "peft", "https://host/o/peft.git", "HEAD"),
        ("git+ssh://git@host/o/peft@v0.20.0", "", "ssh://git@host/o/peft", "v0.20.0"),
    ],
)
def test_a_repository_has_an_address_and_a_reference(word: str, name: str, place: str, reference: str) -> None:
    (found,) = parsed((word,))
    assert (found.kind, found.name, found.place, found.reference) == (SourceKind.GIT, name, place, reference)


def test_a_token_of_an_address_is_not_shown() -> None:
    (found,) = parsed(("peft=git+https://token@host/o/peft@main",))
    assert (found.word, found.option) == (
        "peft=git+https://token@host/o/peft@main",
        "--with peft=git+https://host/o/peft@main",
    )


def test_a_release_has_a_normalised_name() -> None:
    (found,) = parsed(("BitsAndBytes==0.49",))
    assert (found.kind, found.word) == (SourceKind.RELEASE, "bitsandbytes==0.49")


def test_a_wheel_states_its_name(tmp_path: Path) -> None:
    wheel = tmp_path / "peft-0.1-py3-none-any.whl"
    wheel.touch()
    (found,) = parsed((str(wheel),))
    assert (found.kind, found.name) == (SourceKind.WHEEL, "peft")
    with pytest.raises(UserError, match="the wheel has peft"):
        parsed((f"trl={wheel}",))


def test_a_folder_without_a_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither a pyproject\.toml nor a setup\.py"):
        parsed((str(tmp_path),))


def test_a_file_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "peft.zip").touch()
    with pytest.raises(UserError, match="neither a folder nor a wheel"):
        parsed((str(tmp_path / "peft.zip"),))
