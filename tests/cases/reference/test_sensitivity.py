"""Tests of the sensitivities that a perturbed reference shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from cases.reference import sensitivity, tolerance, twin
from cases.reference.sensitivity import PERTURBATION, PerturbedNetwork, distances, root_mean_square
from cases.reference.twin import Trajectory
from cases.space.options import Options


@pytest.fixture(autouse=True)
def numbers_for_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerance, "relative", lambda found, reference: abs(found - reference) / reference)


def trajectory(gradient: float, weight: float, logits: float) -> Trajectory:
    return Trajectory(gradients=[{"a": 1.0}, {"a": gradient}], after={"a": weight}, logits=logits)


def test_a_sensitivity_is_a_distance_in_units_of_the_perturbation() -> None:
    moved = trajectory(1 + 5 * PERTURBATION, 2 - PERTURBATION, 1 + 3 * PERTURBATION)
    found = distances(moved, trajectory(1.0, 2.0, 1.0))
    assert found == {"gradient": [{"a": 0.0}, {"a": 5.0}], "weights": [{"a": 0.5}], "logits": [{"": 3.0}]}


def test_runs_count_by_their_root_mean_square() -> None:
    assert root_mean_square([{"weights": [{"a": 1.0}]}, {"weights": [{"a": 7.0}]}]) == {"weights": [{"a": 5.0}]}


def test_every_perturbed_embedding_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter((2.0, 3.0))
    monkeypatch.setattr(sensitivity, "factors", lambda *_: next(drawn))
    network = PerturbedNetwork({}, {}, layers={"embed": lambda _ids: 10.0}, generator=None)
    assert [network.embedding("embed", None) for _ in range(2)] == [20.0, 30.0]


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the perturbed runs, each of which moves one gradient by the perturbation."""
    used: list[int] = []

    def perturbed(_options: Options, _folder: Path, seed: int) -> Trajectory:
        used.append(seed)
        return trajectory(1 + PERTURBATION, 1.0, 1.0)

    monkeypatch.setattr(twin, "run", lambda *_: trajectory(1.0, 1.0, 1.0))
    monkeypatch.setattr(sensitivity, "perturbed", perturbed)
    return used


def test_the_reference_is_stored_with_the_sensitivities_of_all_seeds(seeds: list[int]) -> None:
    found = sensitivity.run(Options(), Path())
    assert found.sensitivities["gradient"] == [{"a": 0.0}, {"a": 1.0}]
    assert seeds == [*sensitivity.SEEDS]


def test_rows_whose_positions_round_far_have_no_sensitivities(seeds: list[int]) -> None:
    assert not sensitivity.run(Options(data="long", rope_scaling="yarn"), Path()).sensitivities
    assert not seeds
