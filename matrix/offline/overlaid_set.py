"""A set of a pack as it is on a host: the pack's wheels, and behind them the host's packages."""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from matrix.environments.host import by_name
from matrix.errors import UserError
from matrix.keys import HOST, SetKey

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet
    from importlib.metadata import Distribution
    from pathlib import Path

    from matrix.environments.host import HostInterpreter

CUDA: Final = re.compile(r"nvidia-.*|cuda-.*")
VERSION: Final = re.compile(r"^__version__ = ['\"]([^'\"]+)['\"]", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class UnmetRequirement:
    """A requirement of a package that the environment does not meet. ``version`` is empty if nothing is installed."""

    name: str
    required: Requirement
    version: str

    @property
    def text(self) -> str:
        return f"{self.name} needs {self.required}, installed is {self.version or 'none'}"

    @property
    def note(self) -> str:
        return f"{self.name} pins {self.required.name}{self.required.specifier}, the host has {self.version}"

    @property
    def has_required_major(self) -> bool:
        """True if another release of a required major version is installed; such libraries keep their interface."""
        majors = {Version(each.version.removesuffix(".*")).major for each in self.required.specifier}
        return bool(self.version) and Version(self.version).major in majors


@dataclass(frozen=True, kw_only=True)
class OverlaidSet:
    """A set of the pack on a host. ``wheels``: name, version and file of each."""

    key: str
    wheels: tuple[tuple[str, str, Path], ...]
    host: HostInterpreter

    @cached_property
    def packed_torch(self) -> str:
        """Version and build of the pack's own torch; empty if the host's torch is used."""
        return next((torch_build(path) for name, _, path in self.wheels if name == "torch"), "")

    @property
    def torch(self) -> str:
        return self.packed_torch or self.host.torch

    @property
    def hosted_key(self) -> str:
        key = SetKey.parse(self.key)
        return str(key.plus(HOST) if self.packed_torch else key.plus("torch", self.host.torch))

    @property
    def description(self) -> str:
        return "overlay on the host's CUDA libraries" if self.packed_torch else "overlay on the host's torch"

    @property
    def paths(self) -> tuple[str, ...]:
        """Visible folders of the host. Its packages were not built for another torch, so a packed torch hides them."""
        return () if self.packed_torch else self.host.paths

    @cached_property
    def host_libraries(self) -> Mapping[str, Distribution]:
        return {name: each for name, each in by_name(self.host.paths).items() if CUDA.fullmatch(name)}

    @property
    def from_host(self) -> Mapping[str, str]:
        if self.packed_torch:
            return {name: each.version for name, each in self.host_libraries.items()}
        return {**self.host.installed, "torch": self.host.torch}

    @property
    def versions(self) -> Mapping[str, str]:
        packed = {name: version for name, version, _ in self.wheels}
        return {**self.from_host, **packed, "torch": self.torch}

    def tolerates(self, unmet: UnmetRequirement) -> bool:
        """True for other releases of CUDA's libraries: torch pins those it was built with, and accepts close ones."""
        from_cuda = CUDA.fullmatch(canonicalize_name(unmet.required.name)) is not None
        return bool(self.packed_torch) and unmet.name == "torch" and from_cuda and unmet.has_required_major


def requirements(distribution: Distribution, host: HostInterpreter) -> list[Requirement]:
    """Requirements of a distribution that apply to the interpreter, without extras."""
    markers: dict[str, str | AbstractSet[str]] = {name: str(value) for name, value in default_environment().items()}
    markers |= {"python_version": host.minor, "python_full_version": host.version, "extra": ""}
    every = (Requirement(line) for line in distribution.requires or ())
    return [each for each in every if each.marker is None or each.marker.evaluate(markers)]


def torch_build(wheel: Path) -> str:
    """Version and build of a wheel of torch, such as ``2.13.0+cu130``, as ``torch.__version__`` states it.

    Raises:
        UserError: it is no wheel of torch.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            text = archive.read("torch/version.py").decode()
        return str(VERSION.findall(text)[0])
    except (OSError, KeyError, IndexError, UnicodeDecodeError, zipfile.BadZipFile) as error:
        raise UserError(f"{wheel}: it does not state its build of torch; pack it again") from error
