"""The known cause of a red cell, and where to file it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.versions.sets import PACKAGES
from reports.answers.scripts.known_cause import REPOSITORIES, known_cause, last_package

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome
    from reports.results.grid import Grid


def cause_in(published: Grid, key: str, case: str) -> tuple[str, str]:
    outcome = published.lookup(case, key)
    assert outcome is not None
    pins = next(column.pins for column in published.sets if column.key == key)
    known = known_cause(outcome, pins)
    return known.repository, known.cause


def test_a_finding_names_its_package(published: Grid) -> None:
    repository, cause = cause_in(published, "2026-11", "save_reload-lora-fsdp1-fp32")
    assert repository == "huggingface/peft"
    assert "adapter file without tensors" in cause


def test_a_signature_names_the_repository_of_its_threads(published: Grid) -> None:
    repository, cause = cause_in(published, "2025-12", "train-lora-nf4-fsdp2-bf16")
    assert repository == "bitsandbytes-foundation/bitsandbytes"
    assert "uint8" in cause


@pytest.mark.parametrize(
    ("frames", "package"),
    [
        (["transformers", "peft", "torch"], "peft"),
        (["torch", "torch"], "torch"),
        (["numpy"], ""),
    ],
)
def test_the_last_package_above_torch_is_named(frames: list[str], package: str) -> None:
    assert last_package(frames) == package


def test_an_unknown_failure_without_frames_goes_to_the_package_of_the_job(
    build_outcome: Callable[..., Outcome],
) -> None:
    known = known_cause(build_outcome("train-lora-single-fp32", "2026-11", "fail"), dict.fromkeys(PACKAGES, "1.0"))
    assert (known.cause, known.repository) == ("", "huggingface/peft")


def test_every_package_has_a_repository() -> None:
    assert set(REPOSITORIES) == set(PACKAGES)
