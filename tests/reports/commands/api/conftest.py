"""A small map of two packages, as built from wheels in memory."""

from __future__ import annotations

import io
import zipfile
from datetime import date
from typing import TYPE_CHECKING, ClassVar

import pytest

from matrix.api_map import build
from matrix.api_map.reading.index import WheelFile

if TYPE_CHECKING:
    from pathlib import Path
TRANSFORMERS = {
    "4.40.0": (
        "@dataclass\nclass TrainingArguments:\n    output_dir: str\n    evaluation_strategy: str = 'no'\n"
        "class Trainer:\n    def __init__(self, model=None, args=None, tokenizer=None): pass\n"
        "    def train(self, resume_from_checkpoint=None): pass\n"
        "    def compute_loss(self, model, inputs, return_outputs=False): pass\n"
        "    def push_to_hub(self, message=''): pass\n"
        "class HfArgumentParser:\n    def __init__(self, dataclass_types=None, **kwargs): pass\n"
        "class BitsAndBytesConfig:\n    def __init__(self, load_in_4bit=False, **kwargs): pass\n"
        "class AdamW: pass\nclass GoneTokenizer: pass\n"
    ),
    "4.46.0": (
        "@dataclass\nclass TrainingArguments:\n    output_dir: str\n    eval_strategy: str = 'no'\n"
        "    def __post_init__(self):\n"
        "        '`evaluation_strategy` is deprecated. Use `eval_strategy` instead'\n"
        "class TokenizersBackend: pass\n"
        "class Trainer:\n    def __init__(self, model=None, args=None, processing_class=None):\n"
        "        self.accelerator = None\n"
        "    def train(self, resume_from_checkpoint=None): pass\n"
        "    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None): pass\n"
        "    def push_to_hub(self, message='', revision=None): pass\n"
        "class HfArgumentParser:\n    def __init__(self, dataclass_types=None, **kwargs): pass\n"
        "class BitsAndBytesConfig:\n    def __init__(self, load_in_4bit=False, **kwargs): pass\n"
    ),
}
SFT = "from transformers import Trainer, TrainingArguments\n@dataclass\nclass SFTConfig(TrainingArguments):\n"
TRL = {
    "0.9.0": (
        f"{SFT}    max_seq_length: int = 8\n@dataclass\nclass ModelConfig:\n    use_peft: bool = False\n"
        "class SFTTrainer(Trainer):\n    def __init__(self, model=None, args=None, tokenizer=None): pass\n"
    ),
    "0.13.0": (
        f"{SFT}    max_length: int = 8\n@dataclass\nclass ModelConfig:\n    use_peft: bool = False\n"
        "class SFTTrainer(Trainer):\n    def __init__(self, model=None, args=None, processing_class=None): pass\n"
        "    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None): pass\n"
    ),
}
DAYS = {"4.40.0": date(2024, 4, 1), "4.46.0": date(2024, 10, 1), "0.9.0": date(2024, 5, 1), "0.13.0": date(2024, 12, 1)}
REQUIRED = {"0.9.0": "transformers>=4.31", "0.13.0": "transformers>=4.46"}


class SmallIndex:
    """Two releases of transformers and TRL, whose wheels hold one module each."""

    sources: ClassVar = {"transformers": TRANSFORMERS, "trl": TRL}

    def releases(self, package: str, *, since: date) -> tuple[WheelFile, ...]:
        return tuple(
            WheelFile(package=package, version=version, uploaded=DAYS[version], url="", size=1)
            for version in self.sources[package]
            if DAYS[version] >= since
        )

    def open(self, wheel: WheelFile) -> zipfile.ZipFile:
        stream = io.BytesIO()
        required = f"Requires-Dist: {REQUIRED[wheel.version]}\n" if wheel.version in REQUIRED else ""
        with zipfile.ZipFile(stream, "w") as file:
            file.writestr(f"{wheel.package}/__init__.py", self.sources[wheel.package][wheel.version])
            file.writestr(f"{wheel.package}-{wheel.version}.dist-info/METADATA", f"Metadata-Version: 2.1\n{required}\n")
        return zipfile.ZipFile(stream)


@pytest.fixture(scope="session")
def small_map(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A map of two releases of transformers, 4.40.0 and 4.46.0, and of TRL, 0.9.0 and 0.13.0."""
    where = tmp_path_factory.mktemp("api")
    build.update(
        where / "map",
        index=SmallIndex(),  # type: ignore[arg-type]
        cache=where / "facts.sqlite",
        packages=("transformers", "trl"),
    )
    return where / "map"
