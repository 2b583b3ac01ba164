"""The text of ``bench``: each launcher, the time by part, and the missing measurements."""

from __future__ import annotations

from typing import Any

from matrix.experiments.bench import BenchResult, StartMethod
from matrix.experiments.profile import TimeProfile
from reports.render.text.bench_text import lines


def text(**other: Any) -> str:
    known: dict[str, Any] = {
        "set": "2026-11",
        "hardware": "cuda: NVIDIA H200 x 2",
        "device": "cuda",
        "facts": {"torch_build": "2.11.0+cu130", "driver": "580.1", "peft": "0.18.1"},
        "workers": 2,
        "repeats": 1,
        "cells": 12,
        "harness_wall_s": 60.0,
        "harness_cells_per_minute": 12.0,
        "import_s": 12.0,
        "bodies_s": 30.0,
        "ideal_wall_s": 27.0,
        "wall_over_ideal": 2.2,
        "warm_cell_s": 2.9,
        "ranks": 2,
        "ways": (
            StartMethod(name="warm fork", cells=12, median_s=2.9, cells_per_minute=12.0, times=1.0),
            StartMethod(name="torchrun", cells=2, median_s=18.0, cells_per_minute=3.33, times=6.2),
        ),
        "launches": (),
        "disagreements": (),
        "profile": TimeProfile(
            cells=12, parts={"wrap": 1.25}, beside={"wait for free GPUs": 0.5}, nccl_s={"total": 0.72}
        ),
        "install_warm_cache_s": 1.0,
    }
    return "\n".join(lines(BenchResult(**{**known, **other})))


def test_each_launcher_is_a_row() -> None:
    rows = [line.split() for line in text().splitlines() if line.startswith(("  warm fork", "  torchrun"))]
    assert [row[-4:] for row in rows] == [["12", "2.90", "12.0", "1.0"], ["2", "18.00", "3.3", "6.2"]]


def test_the_stack_and_the_hardware_are_named() -> None:
    assert "2026-11 on cuda: NVIDIA H200 x 2" in text()
    assert "torch 2.11.0+cu130, peft 0.18.1, driver 580.1" in text()


def test_the_text_has_the_parts_of_a_cell_and_the_times_of_nccl() -> None:
    assert ["wrap", "1.250"] in [line.split() for line in text().splitlines()]
    assert "total 0.72" in text()


def test_the_text_names_modules_imported_after_the_fork() -> None:
    late = TimeProfile(cells=3, parts={}, beside={}, nccl_s={}, late={"torch._inductor": 2})
    assert "torch._inductor (2)" in text(profile=late)


def test_the_text_names_verdicts_that_differ() -> None:
    assert "the verdicts differ: a: a warm fork says pass" in text(disagreements=("a: a warm fork says pass",))


def test_the_text_names_missing_measurements() -> None:
    assert "install: not measured" in text(install_warm_cache_s=None)
    assert "no cell could also be started by a launcher" in text(ways=())
    assert "no single-stage cell" in text(profile=TimeProfile(cells=0, parts={}, beside={}, nccl_s={}))
