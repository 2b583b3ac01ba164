"""Small releases of two packages, in an index that serves their wheels from memory."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

import pytest

from matrix.api_map import build
from matrix.api_map.query import ApiMap
from matrix.api_map.reading.index import WheelFile
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Sources = dict[str, str]

TRAINER = {
    "transformers/__init__.py": (
        "from typing import TYPE_CHECKING\n"
        "_import_structure = {'trainer': ['Trainer'], 'args': []}\n"
        "_import_structure['args'].append('TrainingArguments')\n"
        "if TYPE_CHECKING:\n    from .trainer import Trainer\n"
        "else:\n    import sys\n    sys.modules[__name__] = _LazyModule(__name__, _import_structure)\n"
    ),
    "transformers/trainer.py": (
        "class Trainer:\n    def __init__(self, model=None, tokenizer=None):\n        self.model = model\n"
    ),
    "transformers/args.py": (
        "@dataclass\nclass TrainingArguments:\n    output_dir: str\n    evaluation_strategy: str = 'no'\n"
        "    seed: int = 0\n"
    ),
}
NEWER_TRAINER = TRAINER | {
    "transformers/trainer.py": (
        "class Trainer:\n"
        "    @deprecate_kwarg('tokenizer', new_name='processing_class', version='6')\n"
        "    def __init__(self, model=None, processing_class=None): pass\n"
    ),
    "transformers/args.py": (
        "@dataclass\nclass TrainingArguments:\n    output_dir: str\n    eval_strategy: str = 'no'\n    seed: int = 1\n"
        "    def __post_init__(self):\n"
        "        '`evaluation_strategy` is deprecated. Use `eval_strategy` instead'\n"
    ),
}
SFT = {
    "trl/__init__.py": "from .sft import SFTConfig, SFTTrainer\n",
    "trl/sft.py": (
        "from transformers import Trainer, TrainingArguments\n"
        "@dataclass\nclass SFTConfig(TrainingArguments):\n    max_length: int = 8\n"
        "class SFTTrainer(Trainer):\n"
        "    def __init__(self, args):\n"
        "        super().__init__(tokenizer=None)\n"
        "        TrainingArguments(evaluation_strategy='no')\n"
    ),
}


def wheel_of(package: str, version: str, sources: Sources, requires: tuple[str, ...] = ()) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as wheel:
        for path, text in sources.items():
            wheel.writestr(path, text)
        lines = [f"Requires-Dist: {each}" for each in requires]
        wheel.writestr(f"{package}-{version}.dist-info/METADATA", "\n".join(["Metadata-Version: 2.1", *lines, ""]))
    return stream.getvalue()


@dataclass
class FakeIndex:
    """Releases by package and version; bytes of a wheel, or None for one that cannot be read."""

    wheels: dict[tuple[str, str], bytes | None] = field(default_factory=dict)
    days: dict[tuple[str, str], date] = field(default_factory=dict)

    def add(
        self, package: str, version: str, sources: Sources | None, day: date, requires: tuple[str, ...] = ()
    ) -> None:
        self.wheels[package, version] = None if sources is None else wheel_of(package, version, sources, requires)
        self.days[package, version] = day

    def releases(self, package: str, *, since: date) -> tuple[WheelFile, ...]:
        return tuple(
            WheelFile(package=name, version=version, uploaded=self.days[name, version], url="", size=1)
            for name, version in sorted(self.wheels)
            if name == package and self.days[name, version] >= since
        )

    def open(self, wheel: WheelFile) -> zipfile.ZipFile:
        content = self.wheels[wheel.package, wheel.version]
        if content is None:
            raise UserError(f"{wheel.package} {wheel.version}: its wheel cannot be read (gone)")
        return zipfile.ZipFile(io.BytesIO(content))


@pytest.fixture
def index() -> FakeIndex:
    found = FakeIndex()
    found.add("transformers", "4.40.0", TRAINER, date(2024, 4, 1))
    found.add("transformers", "4.46.0", NEWER_TRAINER, date(2024, 10, 1))
    found.add("trl", "0.9.0", SFT, date(2024, 5, 1), requires=("transformers>=4.31",))
    return found


@pytest.fixture
def old_trainer() -> Sources:
    return TRAINER


@pytest.fixture
def updated() -> Callable[[FakeIndex, Path], dict[str, str]]:
    """Update the map in a folder from an index; return the problems by release."""

    def update(index: FakeIndex, where: Path) -> dict[str, str]:
        added = build.update(
            where / "map",
            index=index,  # type: ignore[arg-type]
            cache=where / "facts.sqlite",
            packages=("transformers", "trl"),
        )
        return {f"{each.package} {each.version}": each.problem for each in added}

    return update


@pytest.fixture
def folder(index: FakeIndex, updated: Callable[[FakeIndex, Path], object], tmp_path: Path) -> Path:
    updated(index, tmp_path)
    return tmp_path / "map"


@pytest.fixture
def api(folder: Path) -> ApiMap:
    return ApiMap(folder)
