"""Published results name no folder of the machine that measured them."""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

import pytest

from reports.answers.knowledge import PUBLISHED

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = re.compile(r"(?<![\w.<>/])(?:~|/(?:root|home|Users|opt|tmp|srv|mnt|data|workspace))/[\w.-]+")
FILES = sorted(path for path in PUBLISHED.rglob("*") if path.suffix in {".json", ".gz", ".md"})


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PUBLISHED)))
def test_no_folder_of_a_machine_is_published(path: Path) -> None:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    assert set(FOLDER.findall(text)) == set()


def test_no_uncompressed_matrix_and_no_page_is_published() -> None:
    assert [*PUBLISHED.rglob("matrix.json"), *PUBLISHED.rglob("*.html")] == []
