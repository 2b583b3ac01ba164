"""The packages of the map, and which of their modules it leaves out."""

from __future__ import annotations

from datetime import date
from typing import Final

SINCE: Final = date(2023, 6, 1)

PACKAGES: Final = (
    "torch",
    "transformers",
    "peft",
    "bitsandbytes",
    "accelerate",
    "trl",
    "huggingface_hub",
    "tokenizers",
    "safetensors",
    "datasets",
)

# Libraries of which some releases lack what the packages take when they are imported. Only their names count, not what
# they use.
LIBRARIES: Final = ("pyarrow", "triton")
MAPPED: Final = (*PACKAGES, *LIBRARIES)
ROOT_ONLY: Final = frozenset({"pyarrow"})  # the rest is compiled

# Scripts and sources from which other modules are generated. Nothing imports them.
SKIPPED_FILES: Final = ("convert_", "modular_")
SKIPPED_FOLDERS: Final = {
    "torch": (
        "test",
        "testing",
        "_inductor",
        "_dynamo",
        "_refs",
        "_decomp",
        "_functorch",
        "ao",
        "fx",
        "onnx",
        "package",
    )
}
TENSORFLOW_AND_FLAX: Final = ("modeling_tf_", "modeling_flax_", "tf_", "flax_", "keras_", "image_transforms_tf")


def is_read(package: str, path: str) -> bool:
    """Tell if the map reads a file of a wheel, given its path there."""
    folder, _, name = path.rpartition("/")
    if not path.startswith(f"{package}/") or not name.endswith((".py", ".pyi")) or name.startswith(SKIPPED_FILES):
        return False
    parts = folder.split("/")
    if package in ROOT_ONLY and path != f"{package}/__init__.py":
        return False
    return not (len(parts) > 1 and parts[1] in SKIPPED_FOLDERS.get(package, ()))


def compiled_module(package: str, path: str) -> str:
    """Return the dotted name of a compiled module; empty for other files."""
    folder, _, name = path.rpartition("/")
    if not path.startswith(f"{package}/") or not name.endswith((".so", ".pyd")) or name.startswith("lib"):
        return ""
    return f"{folder.replace('/', '.')}.{name.partition('.')[0]}"


def module_name(path: str) -> tuple[str, bool]:
    """Return the dotted name of the module in a file, and if it is a package."""
    dotted = path.rpartition(".")[0].replace("/", ".")
    is_package = dotted.endswith(".__init__")
    return dotted.removesuffix(".__init__"), is_package


def counts_libraries(module: str) -> bool:
    """Tell if it matters which libraries a module imports.

    A module of one model is only imported for that model, and torch brings what it imports.
    """
    return not module.startswith("transformers.models.") and module.partition(".")[0] != "torch"


def is_outlined(module: str) -> bool:
    """Tell if only the names of a module's classes and functions count: code for TensorFlow, Flax, and placeholders."""
    name = module.rpartition(".")[2]
    return name.startswith(TENSORFLOW_AND_FLAX) or (name.startswith("dummy_") and name.endswith("_objects"))
