"""Reads and writes checkpoints as they are published: ``config.json`` and weights, without any library of the stack.

The safetensors format: eight bytes with the length of a JSON header, the header, and the bytes of all tensors
(https://huggingface.co/docs/safetensors, section Format).
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "U8": "uint8"}
WRITTEN_AS = "model.safetensors"


def config(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return read


def tensors(folder: Path) -> dict[str, Any]:
    """Every tensor of a model's checkpoint by its name on disk, in its own dtype; shards are joined.

    Raises:
        FileNotFoundError: the folder holds no weights.
    """
    import torch

    found: dict[str, Any] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        found.update(read_file(path))
    for path in sorted(folder.glob("pytorch_model*.bin")):
        found.update(torch.load(path, weights_only=True))
    if not found:
        raise FileNotFoundError(f"no model*.safetensors or pytorch_model*.bin in {folder}")
    return found


def read_file(path: Path) -> Iterator[tuple[str, Any]]:
    """The tensors of one safetensors file."""
    import torch

    content = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        dtype = getattr(torch, DTYPES[entry["dtype"]])
        flat = torch.frombuffer(content[begin:end], dtype=dtype) if end > begin else torch.empty(0, dtype=dtype)
        yield name, flat.reshape(entry["shape"])


def write(folder: Path, settings: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
    """Write a checkpoint of one file; ``weights`` are float32."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    blobs, offset = [], 0
    for name, tensor in sorted(weights.items()):
        blob = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of eight
    (folder / WRITTEN_AS).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
