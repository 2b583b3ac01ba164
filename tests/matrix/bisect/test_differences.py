"""Packages that require each other's versions move together."""

from __future__ import annotations

from packaging.requirements import Requirement

from matrix.bisect.differences import Differences, Packages


def packages(versions: dict[str, str], **requires: str) -> Packages:
    return Packages(versions=versions, requires={name: [Requirement(line)] for name, line in requires.items()})


OLD = packages({"torch": "2.0", "triton": "2.0", "peft": "0.1", "six": "1"}, torch="triton==2.0")
NEW = packages({"torch": "2.1", "triton": "2.1", "peft": "0.2", "six": "1"}, torch="triton==2.1", peft="torch>=2.1")
BOTH = Differences(good=OLD, bad=NEW)


def test_only_packages_that_differ_count() -> None:
    assert BOTH.names == ("peft", "torch", "triton")


def test_exact_requirements_make_a_group() -> None:
    assert [group.names for group in BOTH.groups] == [("torch", "triton"), ("peft",)]


def test_a_group_comes_after_those_that_it_requires() -> None:
    assert BOTH.closure(frozenset({1})) == {0, 1}
    assert BOTH.closure(frozenset({0})) == {0}


def test_the_packages_of_a_traceback_are_likelier() -> None:
    torch, peft = BOTH.weights("site-packages/peft/tuners/lora.py")
    assert peft > torch


def test_a_package_that_replaces_the_files_of_another_moves_with_it() -> None:
    old = packages({"torch": "2.0", "nccl-cu12": "2"}, torch="nccl-cu12==2")
    new = packages({"torch": "2.1", "nccl-cu13": "2"}, torch="nccl-cu13==2")
    replaced = {"nccl-cu13": frozenset({"nccl-cu12"})}
    groups = Differences(good=old, bad=new, replaced=replaced).groups
    assert [group.names for group in groups] == [("nccl-cu12", "nccl-cu13", "torch")]
