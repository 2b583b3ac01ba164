"""GPUs as a driver would tell of them, for machines that have none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from cases.runtime.gpu_pool import Pool
from cases.runtime.nvml import Gpu, Usage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BROWSER = "browser"  # tests that need Chromium: they run only if the command names them, as `nox -s browser` does
IDLE = Usage(4.0)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_left_out = collection_path.name == BROWSER and not any(BROWSER in argument for argument in config.args)
    return True if is_left_out else None


@dataclass
class FakeDriver:
    """``used`` says what is on a GPU, by UUID; the others are idle."""

    known: tuple[Gpu, ...]
    used: dict[str, Usage] = field(default_factory=dict)
    version: str = "580.1"
    cuda: str = "13.0"

    def gpus(self) -> tuple[Gpu, ...]:
        return self.known

    def usage(self, gpu: Gpu) -> Usage:
        return self.used.get(gpu.uuid, IDLE)


@pytest.fixture
def pool_of(tmp_path: Path) -> Callable[..., Pool]:
    """A pool of some GPUs: so many whole ones, or those given."""

    def made(gpus: int | tuple[Gpu, ...], settle_timeout_s: float = 0.0, **used: Usage) -> Pool:
        found = tuple(Gpu(f"GPU-{n}", "NVIDIA H200", n) for n in range(gpus)) if isinstance(gpus, int) else gpus
        driver = FakeDriver(found, {name.replace("_", "-"): usage for name, usage in used.items()})
        return Pool(driver, found, settle_timeout_s=settle_timeout_s, folder=tmp_path / "locks")

    return made
