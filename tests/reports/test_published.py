"""Published results name no folder of the machine that measured them."""

from __future__ import annotations

import base64
import gzip
import re
import zlib
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from reports.answers.knowledge import PUBLISHED
from reports.results import outcome_table

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = re.compile(r"(?<![\w.<>/])(?:~|/(?:root|home|Users|opt|tmp|srv|mnt|data|workspace))/[\w.-]+")
FILES = sorted(path for path in PUBLISHED.rglob("*") if path.suffix in {".json", ".gz", ".md", ".parquet"})
MOST_BYTES = 6_000_000  # a checkout and its history carry every version of these files


def text_of(path: Path) -> str:
    """Return what a file says, without its compression."""
    if path.suffix == ".parquet":
        header = (pq.read_metadata(path).metadata or {}).get(outcome_table.KEY)
        texts = [zlib.decompress(base64.b64decode(header)).decode()] if header else []
        return "\n".join([*texts, *(str(row) for row in pq.read_table(path).to_pylist())])
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PUBLISHED)))
def test_no_folder_of_a_machine_is_published(path: Path) -> None:
    assert set(FOLDER.findall(text_of(path))) == set()


def test_published_results_are_parquet_and_no_page() -> None:
    assert [path for name in ("matrix.json*", "*.html") for path in PUBLISHED.rglob(name)] == []


def test_published_results_are_small() -> None:
    assert sum(path.stat().st_size for path in PUBLISHED.rglob("*") if path.is_file()) < MOST_BYTES
