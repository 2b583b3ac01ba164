"""Imports combinations of releases for real: unpacks their wheels and lays them over an environment with torch."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cases.imports.wire import Combination, CombinationResult
from matrix import processes
from matrix.api_map.packages import SINCE
from matrix.errors import UserError

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Callable, Mapping, Sequence

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

    def wheel(self, package: str, version: str) -> WheelFile:
        if package not in self.wheels:
            self.wheels[package] = {each.version: each for each in self.index.releases(package, since=SINCE)}
        if version not in self.wheels[package]:
            raise UserError(f"{package} {version}: the index has no wheel of it since {SINCE}")
        return self.wheels[package][version]


def import_combinations(
    combinations: Sequence[Mapping[str, str]],
    *,
    python: Path,
    wheels: UnpackedWheels,
    results: Path,
    minutes: float,
    extra: Path | None = None,
    variants: Callable[[Mapping[str, str]], Sequence[str]] = lambda versions: (versions["trl"],),
) -> list[CombinationResult]:
    """Import combinations in an environment that has torch, append each result to a file, and return all of the file.

    Args:
        combinations: versions by package.
        python: interpreter of the environment.
        wheels: where releases are unpacked.
        results: file of JSON lines; combinations in it are not imported again.
        minutes: start no combination afterwards.
        variants: the versions of trl to import with the rest of a combination.
        extra: folder with libraries that take precedence over those of the environment.

    Raises:
        UserError: the interpreter cannot be started.
    """
    done = {key(each.versions) for each in read_results(results)}
    listed = results.with_suffix(".combinations")
    with listed.open("w", encoding="utf-8") as sink:
        for versions in combinations:
            if key(versions) not in done:
                rest = {name: version for name, version in versions.items() if name != "trl"}
                combination = Combination(
                    versions=rest,
                    folders=tuple(str(wheels.unpacked(name, version)) for name, version in rest.items()),
                    variants=tuple((each, str(wheels.unpacked("trl", each))) for each in variants(versions)),
                )
                sink.write(combination.line() + "\n")
    finished = processes.call(
        [str(python), "-m", PROBE, str(listed), str(results), "--minutes", str(minutes)]
        + (["--extra", str(extra)] if extra else []),
        timeout_s=60 * minutes + SLACK_S,
        env={**os.environ, **OFFLINE, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": ""},
    )
    if finished.exit_code != 0:
        raise UserError(f"{python}: importing combinations ended with {finished.exit_code}: {finished.log[-500:]}")
    return read_results(results)


def read_results(path: Path) -> list[CombinationResult]:
    if not path.exists():
        return []
    return [CombinationResult.parsed(each) for each in path.read_text(encoding="utf-8").splitlines()]


def key(versions: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(versions.items()))
