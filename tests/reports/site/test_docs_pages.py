"""The documentation on the site has every command, option and verdict."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from cases.space.verdict import Verdict
from reports.cli import COMMANDS
from reports.site import docs_pages
from reports.site.build import common
from reports.site.published_data import PublishedData
from reports.site.writer import SiteWriter

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    nothing = PublishedData(folder=folder, answers={}, grids={}, columns=(), groups=(), measurements=(), sources=())
    docs_pages.write(SiteWriter(folder, common(nothing)))
    return folder / "docs"


def test_every_command_is_documented(docs: Path) -> None:
    text = (docs / "commands.html").read_text(encoding="utf-8")
    names = {each.name for each in docs_pages.commands()}
    assert {name.partition(" ")[0] for name in names} == {*COMMANDS}
    assert [name for name in names if f'<h2 id="{name.replace(" ", "-")}">ftmatrix {name}</h2>' not in text] == []


def test_every_command_and_option_has_words() -> None:
    for each in docs_pages.commands():
        assert each.summary, each.name
        assert [one.name for one in each.parameters if one.name.startswith("--") and not one.words] == []


def test_every_verdict_is_documented(docs: Path) -> None:
    text = (docs / "verdicts.html").read_text(encoding="utf-8")
    assert [verdict for verdict in Verdict if f"</span> {verdict.value}</span>" not in text] == []


def test_every_command_of_the_guide_exists(docs: Path) -> None:
    pages = [path.read_text(encoding="utf-8") for path in docs.glob("*.html")]
    named = {word for text in pages for word in re.findall(r"<code>[^<]*ftmatrix ([a-z-]+)", text)}
    assert named
    assert named - {*COMMANDS} == set()
