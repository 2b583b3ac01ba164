"""GPUs as a driver would tell of them, for machines that have none, and folders that xdist workers share."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from cases.runtime.gpu_pool import Pool
from cases.runtime.nvml import Gpu, Usage
from matrix.environments import leases

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
BROWSER = "browser"  # tests that need Chromium: they run only if the command names them, as `nox -s browser` does
# Tests of these folders wait for installations and runs; meanwhile, other workers run the quick tests of the others.
FIRST = ("real", "minimatrix")
IDLE = Usage(4.0)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_left_out = collection_path.name == BROWSER and not any(BROWSER in argument for argument in config.args)
    return True if is_left_out else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: folders.get(item.path.relative_to(HERE).parts[0], len(FIRST)))


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


class MakeOnce(Protocol):
    def __call__(self, name: str, make: Callable[[Path], object]) -> Path: ...


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all xdist workers of this session."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def make_once(shared_folder: Path) -> MakeOnce:
    """``make_once(name, make)``: a folder that the first worker that needs it fills by ``make``; the others wait."""

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, finished = shared_folder / name, shared_folder / f"{name}.finished"
        with leases.held_exclusively(shared_folder / f"{name}.lock"):
            if not finished.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
                make(folder)
                finished.touch()
        return folder

    return made
