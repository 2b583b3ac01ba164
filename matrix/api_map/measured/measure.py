"""Imports combinations of releases for real: unpacks their wheels and lays them over an environment with torch."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cases.imports.wire import LIBRARIES, Combination, CombinationResult
from matrix import processes
from matrix.api_map.packages import SINCE
from matrix.errors import UserError
from matrix.keys import without_local

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterable

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


def import_combinations(
    combinations: Iterable[PlannedCombination],
    *,
    python: Path,
    wheels: UnpackedWheels,
    results: Path,
    minutes: float,
    extra: Path | None = None,
) -> list[CombinationResult]:
    """Import combinations in an environment that has torch, append each result to a file, and return all of the file.

    Args:
        combinations: those to import.
        python: interpreter of the environment.
        wheels: where releases are unpacked.
        results: file of JSON lines.
        minutes: start no combination afterwards.
        extra: folder with libraries that take precedence over those of the environment.

    Raises:
        UserError: the interpreter cannot be started.
    """
    listed = results.with_suffix(".combinations")
    results.parent.mkdir(parents=True, exist_ok=True)
    with listed.open("w", encoding="utf-8") as sink:
        for each in combinations:
            rest = {name: version for name, version in each.versions.items() if name != "trl"}
            combination = Combination(
                versions=rest,
                folders=tuple(str(wheels.unpacked(name, version)) for name, version in rest.items()),
                variants=tuple((version, str(wheels.unpacked("trl", version))) for version in each.variants),
            )
            sink.write(combination.line() + "\n")
    finished = processes.call(
        [str(python), "-m", PROBE, str(listed), str(results), "--minutes", str(minutes)]
        + (["--extra", str(extra)] if extra else []),
        timeout_s=60 * minutes + SLACK_S,
        # Only the interpreter's programs: bitsandbytes runs `pip list`, which takes longer than its import.
        env={**os.environ, **OFFLINE, "PATH": str(python.parent), **imports_from(HERE)},
    )
    if finished.exit_code != 0:
        raise UserError(f"{python}: importing combinations ended with {finished.exit_code}: {finished.log[-500:]}")
    return read_results(results)


def imports_from(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": ""}


def environment_versions(python: Path) -> tuple[str, str]:
    """Return the versions of an environment's interpreter and of its torch, such as 3.12.1 and 2.5.1.

    Raises:
        UserError: it cannot be started, or has no torch.
    """
    code = "import platform, importlib.metadata as m; print(platform.python_version(), m.version('torch'))"
    finished = processes.call([str(python), "-c", code], timeout_s=STARTUP_S)
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
    finished = processes.call([str(python), "-c", code], timeout_s=STARTUP_S, env={**os.environ, "PYTHONPATH": path})
    if finished.exit_code != 0:
        raise UserError(f"{python}: its libraries cannot be listed ({finished.log.strip()[-200:]})")
    found: dict[str, str] = json.loads(finished.log.strip().rpartition("\n")[2])
    return found


def libraries_beside(results: Path) -> dict[str, str]:
    """Return the versions of the environment's other libraries by module, as the probe wrote them beside results."""
    path = results.with_suffix(LIBRARIES)
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def read_results(path: Path) -> list[CombinationResult]:
    if not path.exists():
        return []
    return [CombinationResult.parsed(each) for each in path.read_text(encoding="utf-8").splitlines()]
