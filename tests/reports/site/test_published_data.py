"""The site shows every published cell, with the verdicts that answers use."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from cases.space.verdict import RED, Verdict
from matrix.errors import UserError
from matrix.keys import CellKey
from reports.answers import knowledge
from reports.answers.devices.nearness import near
from reports.answers.diagnosis import signatures
from reports.site import case_fixes, cause_pages, feature_pages, home, published_data
from reports.site.data_sources import source_files, sums
from reports.site.diagnosis.evidence_data import SignatureEvidence
from reports.site.matrix_data import LETTERS, NOTHING, matrix_data
from reports.site.names import device_name
from reports.site.problem_pages import headlines, load
from reports.site.stack_data import stack_data

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reports.site.feature_pages import Feature
    from reports.site.published_data import PublishedData


@pytest.fixture(scope="module")
def published() -> PublishedData:
    return published_data.load()


@pytest.fixture(scope="module")
def features(published: PublishedData) -> Sequence[Feature]:
    return feature_pages.features(published)


def test_every_published_folder_is_a_source(published: PublishedData) -> None:
    tables = {
        path.parent.relative_to(knowledge.PUBLISHED).as_posix()
        for path in knowledge.PUBLISHED.rglob("outcomes.parquet")
    }
    assert tables <= {*published.sources}
    assert {each.source for each in published.measurements} == {*published.sources}


def test_every_row_of_every_table_is_a_measurement(published: PublishedData) -> None:
    measured = {(each.source, each.set, each.case) for each in published.measurements}
    for path in knowledge.PUBLISHED.rglob("outcomes.parquet"):
        source = path.parent.relative_to(knowledge.PUBLISHED).as_posix()
        rows = pd.read_parquet(path, columns=["set", "case"])
        # a document has the present ids of cases that a table has under former ones
        missing = {(source, *row) for row in rows.itertuples(index=False)} - measured
        assert len(missing) <= len(rows) * 0.4, (source, sorted(missing)[:3])


def test_the_cells_of_answers_have_the_verdicts_of_answers(published: PublishedData) -> None:
    for device, grid in knowledge.by_device().items():
        shown = published.grids[device].verdicts
        assert {cell: shown[cell] for cell in grid.verdicts} == grid.verdicts


def test_the_matrix_has_every_cell_once(published: PublishedData) -> None:
    data = json.loads(json.dumps(matrix_data(published)))
    letters = {letter: verdict for verdict, letter in LETTERS.items()}
    shown = {}
    for device, rows in data["squares"].items():
        for row, squares in zip(data["rows"], rows, strict=True):
            for column, letter in zip(data["columns"], squares, strict=True):
                if letter != NOTHING:
                    shown[device, row[0], column["sets"][device]] = letters[letter]
    expected = {
        (device, *cell): verdict for device, grid in published.grids.items() for cell, verdict in grid.verdicts.items()
    }
    assert shown == expected


def test_the_cause_of_a_square_is_that_of_its_cell(published: PublishedData) -> None:
    data = matrix_data(published)
    explained = {key: cause for key, cause in published.cause_of.items() if cause}
    found = {
        (device, data["rows"][row][0], data["columns"][column]["sets"][device]): data["causes"][cause]
        for device, lists in data["cellCauses"].items()
        for row, column, cause in zip(*lists, strict=True)
    }
    assert found == explained


def test_red_on_another_device_stands_beside_every_recommendation(
    published: PublishedData, features: Sequence[Feature]
) -> None:
    """No recommendation on any page is contradicted by a red cell with the same versions, unless it says so."""
    silent, warned = [], 0
    for feature in features:
        for each in feature.recommended:
            if each.best is None:
                continue
            for other, key in contradicting(published, each):
                named = any(f"red on the {device_name(other)} with {key} " in line for line in each.against)
                warned += named
                silent += [] if named else [(feature.title, each.device, each.best.set, other, key)]
    assert silent == []
    assert warned > 0


def test_red_on_another_device_stands_beside_every_status_of_my_stack(
    published: PublishedData, features: Sequence[Feature]
) -> None:
    data = stack_data(published, features, load(knowledge.PUBLISHED), frozenset())
    silent = []
    for job in data["jobs"]:
        for device, by_set in job["sets"].items():
            for key, (status, _, cells, others, against) in by_set.items():
                shown = [*cells, *(cell for _, cell in others)] if status.startswith("green") else []
                cases = [CellKey.parse(cell).case for cell in shown]
                red = red_elsewhere(published, device, key, cases)
                silent += [
                    (job["file"], device, key) for _, there in red if not any(f" {there} (" in line for line in against)
                ]
    assert silent == []


def test_red_on_another_device_stands_beside_every_fix_of_a_cell(published: PublishedData) -> None:
    """On the pages of cases and causes."""
    silent, warned = [], 0
    for (device, case, key), fix in case_fixes.fixes(published).items():
        if fix.green:
            green = CellKey.parse(fix.green)
            for other, there in red_elsewhere(published, device, green.set, [green.case]):
                named = any(f"red on the {device_name(other)} with {there} " in line for line in fix.against)
                warned += named
                silent += [] if named else [(device, case, key, other, there)]
    assert silent == []
    assert warned > 0


def test_red_on_another_device_stands_beside_every_fix_of_an_error(published: PublishedData) -> None:
    """On My error and on its answer in a terminal: see ``tests/browser/test_explanations.py``."""
    evidence = SignatureEvidence(published)
    silent, warned = [], 0
    for row in signatures.load():
        for fix in (fix for proof in evidence.of(row)["proofs"] for _, fix in proof if fix):
            for cell in map(CellKey.parse, fix["green"]):
                for other, there in red_elsewhere(published, fix["device"], cell.set, [cell.case]):
                    named = any(f"red on the {device_name(other)} with {there} " in line for line in fix["against"])
                    warned += named
                    silent += [] if named else [(row.id, fix["device"], str(cell), other, there)]
    assert silent == []
    assert warned > 0


def contradicting(published: PublishedData, each: feature_pages.Recommended) -> set[tuple[str, str]]:
    """Return the device and the set of every red cell with the versions and a case of a recommendation."""
    assert each.best is not None
    cases = [CellKey.parse(cell).case for cell in each.best.cells]
    return red_elsewhere(published, each.device, each.best.set, cases)


def red_elsewhere(published: PublishedData, device: str, key: str, cases: Sequence[str]) -> set[tuple[str, str]]:
    own = published.records[device, key]
    return {
        (other, column.key)
        for other, grid in published.grids.items()
        for column in grid.sets
        if other != device and near(own, column) is not None
        for case in cases
        if grid.verdicts.get((case, column.key)) in RED
    }


def test_a_recommended_set_shows_no_red_cell_as_its_proof(
    published: PublishedData, features: Sequence[Feature]
) -> None:
    for feature in features:
        for each in feature.recommended:
            for cell in each.best.cells if each.best else ():
                key = CellKey.parse(cell)
                assert published.answers[each.device].verdicts[key.case, key.set] is Verdict.PASS


def test_the_headlines_are_silent_bugs_of_different_packages(published: PublishedData) -> None:
    shown = headlines(load(knowledge.PUBLISHED), published, 3)
    assert len({each.row["package"] for each in shown}) == 3
    assert all(each.silent and each.is_bug for each in shown)


def test_features_have_different_files(features: Sequence[Feature]) -> None:
    assert len({each.file for each in features}) == len(features)


def test_the_digest_is_that_of_the_list_of_all_files(published: PublishedData) -> None:
    text = sums(published.files)
    for line in text.splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((published.folder / name).read_bytes()).hexdigest() == digest
    assert published.digest == hashlib.sha256(text.encode()).hexdigest()
    tables = {path.relative_to(published.folder).as_posix() for path in published.folder.rglob("outcomes.parquet")}
    assert tables < {each.path for each in published.files}


def test_the_digest_changes_with_a_file_and_not_with_its_time(tmp_path: Path) -> None:
    path = tmp_path / "devices.json"
    path.write_text("1")
    before = sums(source_files(tmp_path, []))
    path.write_text("1")
    assert sums(source_files(tmp_path, [])) == before
    path.write_text("2")
    assert sums(source_files(tmp_path, [])) != before


def test_the_commonest_causes_are_those_with_the_most_red_cells(published: PublishedData) -> None:
    causes = cause_pages.pages(published, load(knowledge.PUBLISHED))
    shown = home.common_causes(published, causes, case_fixes.fixes(published))
    counts = sorted(Counter(filter(None, published.cause_of.values())).values(), reverse=True)
    assert [each.page.cells for each in shown] == counts[: home.CAUSES]
    assert all(sum(count for _, count in each.cells) == each.page.cells for each in shown)
    assert any(each.fix for each in shown)


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no results"):
        published_data.load(tmp_path)
