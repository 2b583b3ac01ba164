"""Packages that do not fit a set are refused, and folders that nobody uses are removed."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from matrix.environments import leases
from matrix.environments.environment import lease_path
from matrix.environments.linked_environment import InstalledPackage
from matrix.errors import UserError
from matrix.replacements.building import remove_oldest
from matrix.replacements.content import content_of
from matrix.replacements.replaced_sets import refuse_unmet
from matrix.replacements.source import parsed
from matrix.versions.sets import PACKAGES, VersionSet

SET = VersionSet(
    key="2026-11", python="3.11", as_of=date(2026, 11, 15), pins=dict.fromkeys(PACKAGES, "1.0"), why="a test"
)


def package(name: str, *requires: str) -> InstalledPackage:
    return InstalledPackage(name=name, version="1.0", folder=Path(), files=(), requires=requires)


def test_a_package_of_the_set_that_requires_another_version_is_named() -> None:
    with pytest.raises(UserError, match=r"trl 1\.0 requires peft>=2, but 2026-11 has peft 1\.9\.dev0"):
        refuse_unmet([package("trl", "peft>=2")], {"peft": "1.9.dev0"}, where=SET, names={"peft"})


def test_only_requirements_on_replaced_packages_count_for_the_others() -> None:
    refuse_unmet([package("trl", "numpy>=9", "peft>=1")], {"peft": "1.9.dev0+g123"}, where=SET, names={"peft"})


def test_requirements_of_extras_and_of_other_pythons_do_not_count() -> None:
    requires = ("rich; extra == 'cli'", "tomli; python_version < '3.11'")
    refuse_unmet([package("peft", *requires)], {}, where=SET)


def test_the_oldest_folders_are_removed_except_used_ones(tmp_path: Path) -> None:
    for age, name in enumerate(("newest", "old", "older", "oldest")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    lease = leases.acquire_shared(lease_path(tmp_path / "oldest"))
    remove_oldest(tmp_path, kept=2)
    lease.release()
    assert {each.name for each in tmp_path.iterdir() if each.is_dir()} == {"newest", "old", "oldest"}


def test_a_folder_without_git_leaves_out_what_builds_left(tmp_path: Path) -> None:
    top = tmp_path / "peft"
    for path in ("pyproject.toml", "src/peft/build/x.py", "build/lib/old.py", "peft.egg-info/PKG-INFO"):
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text("")
    content = content_of(*parsed((str(top),)), cache=tmp_path)
    content.copy(tmp_path / "copy")
    copied = sorted(
        str(each.relative_to(tmp_path / "copy")) for each in (tmp_path / "copy").rglob("*") if each.is_file()
    )
    assert copied == ["pyproject.toml", "src/peft/build/x.py"]
    assert content.label.startswith("@tree.")
