from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.space.verdict import Verdict
from matrix.errors import UserError
from reports.render.files import write_whole
from reports.render.write import publish, render
from reports.results.document import read
from reports.results.loading import load, results

if TYPE_CHECKING:
    from pathlib import Path

    from matrix.run.outcome import Outcome, RunRecord, SetRecord

    Run = tuple[RunRecord, list[SetRecord], list[Outcome]]

REPORTS = {"index.html", "matrix.json", "matrix.md", "outcomes.parquet", "junit.xml"}


def test_every_report_is_written_and_nothing_else(small: Run, tmp_path: Path) -> None:
    index = render(results(*small), tmp_path / "report")
    assert index == tmp_path / "report" / "index.html"
    assert {path.name for path in index.parent.iterdir()} == REPORTS


def test_a_report_can_be_rendered_again_from_its_data(small: Run, tmp_path: Path) -> None:
    generated = read(render(results(*small), tmp_path / "one").with_name("matrix.json")).generated
    render(load(tmp_path / "one"), tmp_path / "two", now=generated)
    names = REPORTS - {"outcomes.parquet"}  # its rows are in the order of the outcomes, which a document sorts
    assert [(tmp_path / "one" / n).read_bytes() for n in names] == [(tmp_path / "two" / n).read_bytes() for n in names]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a", "\ud800")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_an_unwritable_folder_is_one_sentence(small: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose another folder"):
        render(results(*small), tmp_path / "file")


def test_evidence_is_linked_from_where_the_report_is(hostile: Run, tmp_path: Path) -> None:
    page = render(results(*hostile), tmp_path / "reports" / "one", evidence=tmp_path / "run").read_text(
        encoding="utf-8"
    )
    assert '"href":"../../run/javascript%3Aalert%281%29"' in page


def test_published_results_are_one_file(small: Run, tmp_path: Path) -> None:
    path = publish(results(*small), tmp_path / "published")
    assert [*path.parent.iterdir()] == [path] == [tmp_path / "published" / "outcomes.parquet"]


@pytest.mark.parametrize("name", ["matrix.json", "matrix.json.gz"])
def test_publishing_replaces_documents_of_older_versions(small: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    publish(results(*small), tmp_path)
    assert not (tmp_path / name).exists()


def test_the_last_attempt_of_each_repeat_is_published(small: Run, tmp_path: Path) -> None:
    record, sets, (first, *_) = small
    lost = first.model_copy(update={"verdict": Verdict.LOST})
    again = first.model_copy(update={"repeat": 2})
    publish(results(record, sets, [lost, first, again]), tmp_path)
    assert load(tmp_path).outcomes == (first, again)


def test_published_results_have_no_links_to_logs(hostile: Run, tmp_path: Path) -> None:
    publish(results(*hostile), tmp_path)
    assert [each.evidence for each in load(tmp_path).outcomes] == [{}]
