"""Every version set with results on GPUs has a row of what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reports.answers import knowledge
from reports.answers.devices import own_locks
from reports.site import published_data
from reports.site.gpu_pages import columns

if TYPE_CHECKING:
    from reports.site.published_data import PublishedData


@pytest.fixture(scope="module")
def published() -> PublishedData:
    return published_data.load()


def test_each_set_with_cells_has_one_row_that_counts_them(published: PublishedData) -> None:
    grid = published.grids["cuda"]
    cells = {each.basis.record.key: each.basis.cells for each in columns(published)}
    assert cells == {key: sum(on == key for _, on in grid.measured()) for key in {key for _, key in grid.measured()}}


def test_the_sets_of_the_gpu_matrix_are_marked(published: PublishedData) -> None:
    matrix = own_locks.default_grid(knowledge.PUBLISHED)
    own = {each.basis.record.key: each.basis for each in columns(published) if each.is_own_lock}
    assert own.keys() == {column.key for column in matrix.sets}
    for each in own_locks.columns(matrix, knowledge.PUBLISHED):
        row = own[each.record.key]
        assert row.drivers == each.drivers
        assert {*each.cuda} <= {*row.cuda}
        assert each.red <= row.red <= row.cells
