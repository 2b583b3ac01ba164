"""Builders of training jobs from texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reports.answers.configuration import configs, job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NEW = {"torch": "2.15.0", "transformers": "5.23.0", "peft": "0.21.2", "accelerate": "1.15.0", "trl": "1.16.0"}


@pytest.fixture
def job_of(tmp_path: Path) -> Callable[..., job.TrainingJob]:
    """Return the job of some files, by name and text."""

    def build(files: dict[str, str], **versions: str) -> job.TrainingJob:
        read: list[configs.Config] = []
        for name, text in files.items():
            (tmp_path / name).write_text(text)
            read.extend(configs.read(tmp_path / name))
        return job.combine(read, {**NEW, **versions})

    return build
