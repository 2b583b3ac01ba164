"""RECORD files find missing and resized files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from matrix.environments.integrity import damaged_packages

if TYPE_CHECKING:
    from pathlib import Path


def install(site: Path, name: str, files: dict[str, str]) -> Path:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, encoding="utf-8")
    rows = [f'"{path}",sha256=x,{len(text)}' for path, text in files.items()]
    record = info / "RECORD"
    record.write_text("\n".join([*rows, f"{info.name}/RECORD,,", ""]), encoding="utf-8")
    return record


def test_an_intact_package_is_not_damaged(tmp_path: Path) -> None:
    install(tmp_path, "torch", {"torch/a,b.py": "x"})
    assert damaged_packages(tmp_path, ["torch"]) == {}


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    install(tmp_path, "torch", {"torch.py": "x"})
    (tmp_path / "torch.py").unlink()
    assert damaged_packages(tmp_path) == {"torch": "torch.py is missing"}


def test_a_truncated_file_is_reported(tmp_path: Path) -> None:
    install(tmp_path, "torch", {"torch.py": "xyz"})
    (tmp_path / "torch.py").write_text("x", encoding="utf-8")
    assert damaged_packages(tmp_path) == {"torch": "torch.py has 1 bytes instead of 3"}


def test_a_file_of_two_packages_needs_one_of_their_sizes(tmp_path: Path) -> None:
    install(tmp_path, "one", {"tests/__init__.py": "x"})
    install(tmp_path, "two", {"tests/__init__.py": "xyz"})
    assert damaged_packages(tmp_path) == {}


def test_an_expected_package_that_is_gone_is_reported(tmp_path: Path) -> None:
    install(tmp_path, "torch", {"torch.py": "x"})
    assert damaged_packages(tmp_path, ["torch", "peft"]) == {"peft": "its .dist-info folder is missing"}


@pytest.mark.parametrize("text", [None, "", "torch.py,sha256=x,1\n", "torch.py,sha25"])
def test_a_missing_or_truncated_record_is_reported(tmp_path: Path, text: str | None) -> None:
    record = install(tmp_path, "torch", {"torch.py": "x"})
    record.unlink() if text is None else record.write_text(text, encoding="utf-8")
    assert damaged_packages(tmp_path) == {"torch": "torch-1.0.dist-info/RECORD is missing or damaged"}


def test_the_size_of_generated_files_is_not_compared(tmp_path: Path) -> None:
    record = install(tmp_path, "torch", {"torch.pyc": "x"})
    record.write_text("torch.pyc,,\ntorch-1.0.dist-info/RECORD,,\n", encoding="utf-8")
    assert damaged_packages(tmp_path) == {}


def test_a_check_takes_microseconds_per_file(tmp_path: Path) -> None:
    install(tmp_path, "torch", {f"torch/{number}.py": "x" for number in range(2000)})
    began = time.process_time()
    damaged_packages(tmp_path)
    assert time.process_time() - began < 0.5
