"""The page of a finding states how large its error is, and gives the script that measured it."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from matrix.known.error_size import FOLDER, Size
from reports.site import problem_pages
from reports.site.build import common
from reports.site.published_data import PublishedData
from reports.site.writer import SiteWriter

if TYPE_CHECKING:
    from pathlib import Path

MEASURED = {
    "script": "sizes/adapters/oft.py merged",
    "shows": "logits 2 % off",
    "setting": "SmolLM-135M",
    "versions": "peft 0.21.2",
    "day": "2026-11-26",
}
WORDS = {"id": "one", "title": "an error", "standing": "reproduced", "needs": "", "note": ""}
ROW = {**WORDS, "silent": True, "red": [], "green": [], "claims": [], "links": []}


def drawn(folder: Path, size: dict[str, Any]) -> str:
    """Return the page of a finding with a size."""
    row = {**ROW, "size": Size.model_validate(size).model_dump(mode="json")}
    (folder / "findings.json.gz").write_bytes(gzip.compress(json.dumps({"problems": [row]}).encode()))
    nothing = PublishedData(folder=folder, answers={}, grids={}, columns=(), groups=(), measurements=(), sources=())
    problem_pages.write(SiteWriter(folder, common(nothing)), problem_pages.load(folder))
    return (folder / "finding" / "one.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ({"same": "twice as large"}, "For any model: twice as large"),
        ({"unmeasured": "needs a GPU"}, "Not measured: needs a GPU"),
        (MEASURED, "logits 2 % off"),
    ],
)
def test_the_page_states_the_size(tmp_path: Path, size: dict[str, str], words: str) -> None:
    assert words in drawn(tmp_path, size)


def test_the_scripts_that_the_page_links_are_there_to_download(tmp_path: Path) -> None:
    page = drawn(tmp_path, MEASURED)
    linked = re.findall(r'href="\.\./(download/sizes/[^"]+)"', page)
    assert linked == ["download/sizes/adapters/oft.py", "download/sizes/released.py"]
    for each in linked:
        assert (tmp_path / each).read_bytes() == (FOLDER / each.removeprefix("download/sizes/")).read_bytes()
