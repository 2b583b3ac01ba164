"""A name becomes an outcome and its versions, or a message with suggestions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.space.verdict import RED
from matrix.errors import UserError
from matrix.versions import locks, sets
from reports.answers.scripts.repro_cells import PinnedVersions, outcome_of, pins_of
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.results.grid import Grid

CELL = "2026-11__train-lora-fsdp1-bf16"


def test_a_cell_is_found_by_its_name(published: Grid) -> None:
    assert outcome_of(CELL, published).cell == CELL


def test_a_cell_is_found_by_its_former_name(published: Grid) -> None:
    former = "2026-11__train-lora-fsdp1-peftwrap-flatparams-bf16"
    present = "2026-11__train-lora-fsdp1-auto_wrap_policy_peft-use_orig_params_false-bf16"
    assert outcome_of(former, published).cell == present


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("2026-11__train-lora-fsdp1-bf61", f"did you mean {CELL}"),
        ("2026-12__train-lora-fsdp1-bf16", f"did you mean .*{CELL}"),
        ("train-lora-fsdp1-bf16", "is not the name of a cell; use SET__CASE, e.g. .*__train-lora-fsdp1-bf16"),
        ("", "is not the name of a cell; use SET__CASE, e.g. "),
        ("__", "is not the name of a cell"),
        ("2024-04+peft0.5.0__train-lora-fsdp1-bf16", "was not run"),
        ("\x00\x1b[31m", "is not the name of a cell"),
    ],
)
def test_an_unknown_name_gets_suggestions(name: str, sentence: str, published: Grid) -> None:
    with pytest.raises(UserError, match=sentence):
        outcome_of(name, published)


def test_a_script_requires_the_versions_of_the_packaged_lock(published: Grid) -> None:
    packaged = {each.key: each for each in sets.load()}
    for outcome in published.outcomes:
        if outcome.verdict in RED and outcome.set in packaged:
            version_set = packaged[outcome.set]
            lock = locks.read(version_set)
            assert lock is not None
            assert outcome.lock.startswith(lock.digest)
            assert pins_of(outcome, published) == PinnedVersions(python=version_set.python, versions=lock.versions)


def test_a_cell_of_another_lock_is_refused(build_outcome: Callable[..., Outcome], published: Grid) -> None:
    with pytest.raises(UserError, match="measured with another lock of 2026-11"):
        pins_of(build_outcome(on="2026-11", lock="abc-pypi"), published)


def test_a_set_over_a_hosts_torch_has_the_six_packages(
    build_outcome: Callable[..., Outcome], build_set: Callable[..., SetRecord], build_run: Callable[..., RunRecord]
) -> None:
    """No index has the host's build of torch, so the script requires the public version."""
    pins = {"torch": "2.11.0+cu130", "peft": "0.18.0"}
    outcome = build_outcome(on="2026-09+host")
    matrix = grid(build_run(), [build_set("2026-09+host", pins=pins, python="3.12")], [outcome])
    found = pins_of(outcome, matrix)
    assert (found.python, found.six) == ("3.12", {"torch": "2.11.0", "peft": "0.18.0"})
