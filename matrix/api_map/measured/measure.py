"""Imports combinations of releases for real: unpacks their wheels and lays them over an environment with torch."""

from __future__ import annotations

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cases.imports.wire import LIBRARIES, Combination, CombinationResult
from matrix.api_map.measured import listing
from matrix.api_map.packages import SINCE
from matrix.errors import UserError
from matrix.keys import without_local
from matrix.processes import call

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterable, Sequence

    from matrix.api_map.measured.combinations import PlannedCombination
    from matrix.api_map.reading.index import PackageIndex, WheelFile

HERE: Final = Path(__file__).parents[3]
PROBE: Final = "cases.imports.probe"
LEFT_OUT: Final = (
    "/tests/",
    "libbitsandbytes_cuda",
    "libbitsandbytes_rocm",
    "libbitsandbytes_xpu",
    "libbitsandbytes_hip",
)
OFFLINE: Final = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "WANDB_DISABLED": "true",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}
SLACK_S: Final = 300.0
STARTUP_S: Final = 60.0


class UnpackedWheels:
    """Unpacked wheels below one folder. Equal files of releases of a package are one file with several names."""

    def __init__(self, folder: Path, index: PackageIndex) -> None:
        self.folder = folder
        self.index = index
        self.wheels: dict[str, dict[str, WheelFile]] = {}

    def unpacked(self, package: str, version: str) -> Path:
        """Return the folder of a release.

        Raises:
            UserError: its wheel is missing or cannot be read.
        """
        target = self.folder / "releases" / f"{package}-{version}"
        if not target.exists():
            new = target.with_name(f".{target.name}")
            shutil.rmtree(new, ignore_errors=True)
            with self.index.open(self.wheel(package, version)) as wheel:
                for each in wheel.infolist():
                    if not each.is_dir() and not any(part in each.filename for part in LEFT_OUT):
                        self.link(wheel, each, package, new / each.filename)
            new.rename(target)
        return target

    def link(self, wheel: zipfile.ZipFile, file: zipfile.ZipInfo, package: str, target: Path) -> None:
        kept = self.folder / "files" / package / f"{file.CRC:08x}-{file.file_size}{Path(file.filename).suffix}"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(wheel.read(file))
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(kept, target)

    def has(self, package: str, version: str) -> bool:
        """Tell if the index has a wheel of a release for the interpreter."""
        return version in self.of_package(package)

    def wheel(self, package: str, version: str) -> WheelFile:
        if not self.has(package, version):
            raise UserError(f"{package} {version}: the index has no wheel of it since {SINCE}")
        return self.of_package(package)[version]

    def of_package(self, package: str) -> dict[str, WheelFile]:
        if package not in self.wheels:
            self.wheels[package] = {each.version: each for each in self.index.releases(package, since=SINCE)}
        return self.wheels[package]


def unpacked(combinations: Iterable[PlannedCombination], wheels: UnpackedWheels) -> list[Combination]:
    """Unpack the releases of combinations, and return these with their folders.

    Raises:
        UserError: a wheel is missing or cannot be read.
    """
    found = []
    for each in combinations:
        rest = {name: version for name, version in each.versions.items() if name != "trl"}
        found.append(
            Combination(
                versions=rest,
                folders=tuple(str(wheels.unpacked(name, version)) for name, version in rest.items()),
                variants=tuple((version, str(wheels.unpacked("trl", version))) for version in each.variants),
            )
        )
    return found


def import_combinations(
    combinations: Sequence[Combination],
    *,
    python: Path,
    results: Path,
    minutes: float,
    extra: Path | None = None,
    processes: int = 1,
) -> list[CombinationResult]:
    """Import combinations in an environment that has torch, append each result to a file, and return all of the file.

    Args:
        combinations: those to import.
        python: interpreter of the environment.
        results: file of JSON lines.
        minutes: start no combination afterwards.
        extra: folder with libraries that take precedence over those of the environment.
        processes: how many import at the same time.

    Raises:
        UserError: the interpreter cannot be started.
    """
    listing.collect(results)
    folder = results.with_suffix(listing.SHARES)
    folder.mkdir(parents=True)
    end = time.monotonic() + 60 * minutes
    with ThreadPoolExecutor(processes) as pool:
        runs = [
            pool.submit(import_share, each, python, folder / f"{number}.jsonl", end, extra)
            for number, each in enumerate(listing.shares(combinations, processes))
        ]
    found = resumed(results)
    for each in runs:
        each.result()
    return found


def import_share(
    combinations: Iterable[Combination], python: Path, results: Path, end: float, extra: Path | None
) -> None:
    """Import combinations in one process until a time of the monotonic clock, in seconds."""
    minutes = (end - time.monotonic()) / 60
    if minutes <= 0:
        return
    listed = results.with_suffix(".combinations")
    listed.write_text("".join(f"{each.line()}\n" for each in combinations), encoding="utf-8")
    finished = call(
        [str(python), "-m", PROBE, str(listed), str(results), "--minutes", str(minutes)]
        + (["--extra", str(extra)] if extra else []),
        timeout_s=60 * minutes + SLACK_S,
        # Only the interpreter's programs: bitsandbytes runs `pip list`, which takes longer than its import.
        env={**os.environ, **OFFLINE, "PATH": str(python.parent), **imports_from(HERE)},
    )
    if finished.exit_code != 0:
        raise UserError(f"{python}: importing combinations ended with {finished.exit_code}: {finished.log[-500:]}")


def imports_from(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": ""}


def environment_versions(python: Path) -> tuple[str, str]:
    """Return the versions of an environment's interpreter and of its torch, such as 3.12.1 and 2.5.1.

    Raises:
        UserError: it cannot be started, or has no torch.
    """
    code = "import platform, importlib.metadata as m; print(platform.python_version(), m.version('torch'))"
    try:
        finished = call([str(python), "-c", code], timeout_s=STARTUP_S)
    except OSError as error:
        raise UserError(f"{python}: cannot be started ({error.strerror})") from error
    if finished.exit_code != 0:
        problem = finished.log.strip().rpartition("\n")[2]
        raise UserError(f"{python}: no Python of an environment with torch ({problem})")
    version, torch = finished.log.split()
    return version, without_local(torch)


def environment_libraries(python: Path, extra: Path | None) -> dict[str, str]:
    """Return the versions of an environment's libraries by module; those of the extra folder take precedence.

    Raises:
        UserError: it cannot be started.
    """
    code = "import json; from cases.imports.probe import libraries; print(json.dumps(libraries()))"
    path = os.pathsep.join([str(HERE), *([str(extra)] if extra else [])])
    finished = call([str(python), "-c", code], timeout_s=STARTUP_S, env={**os.environ, "PYTHONPATH": path})
    if finished.exit_code != 0:
        raise UserError(f"{python}: its libraries cannot be listed ({finished.log.strip()[-200:]})")
    found: dict[str, str] = json.loads(finished.log.strip().rpartition("\n")[2])
    return found


def libraries_beside(results: Path) -> dict[str, str]:
    """Return the versions of the environment's other libraries by module, as the probe wrote them beside results."""
    path = results.with_suffix(LIBRARIES)
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def resumed(results: Path) -> list[CombinationResult]:
    """Return the results of a file, and those of the shares that an interrupted call left beside it."""
    listing.collect(results)
    return read_results(results)


def read_results(path: Path) -> list[CombinationResult]:
    if not path.exists():
        return []
    return [CombinationResult.parsed(each) for each in path.read_text(encoding="utf-8").splitlines()]
