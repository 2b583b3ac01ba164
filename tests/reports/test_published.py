"""What is published says nothing about where it was measured, but for the hardware."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from reports.answers.knowledge import PUBLISHED

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = re.compile(r"(?<![\w.<>/])(?:~|/(?:root|home|Users|opt|tmp|srv|mnt|data|workspace))/[\w.-]+")
FILES = sorted(path for path in PUBLISHED.rglob("*") if path.suffix in {".json", ".md", ".html"})


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PUBLISHED)))
def test_no_folder_of_a_machine_is_published(path: Path) -> None:
    assert set(FOLDER.findall(path.read_text(encoding="utf-8"))) == set()
