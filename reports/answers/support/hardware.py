"""Recognises hardware in a question, and states what its users must know: nothing was measured on most of it.

Compute capabilities: https://developer.nvidia.com/cuda-gpus and https://developer.nvidia.com/cuda-legacy-gpus. Memory:
the data sheets at https://www.nvidia.com/en-us/data-center/ and https://www.nvidia.com/en-us/geforce/. Multiplication
of bfloat16 needs capability 8.0: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities; so does
FlashAttention 2: https://github.com/Dao-AILab/flash-attention#nvidia-cuda-support. Capabilities from 10.0 need a build
for CUDA 12.8, which torch has since 2.7: https://pytorch.org/blog/pytorch-2-7/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

BF16: Final = (8, 0)
BLACKWELL: Final = (10, 0)
MEASURED: Final = ("H100", "H200")  # the published results on CUDA; a test compares them


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """A GPU with its compute capability, and its memory in GB as text, empty if there are several models."""

    name: str
    capability: tuple[int, int]
    memory: str = ""

    @property
    def has_bf16(self) -> bool:
        return self.capability >= BF16

    @property
    def words(self) -> str:
        memory = f", {self.memory} GB" if self.memory else ""
        bf16 = "bf16" if self.has_bf16 else "no bf16"
        return f"{self.name} (compute capability {'.'.join(map(str, self.capability))}{memory}, {bf16})"


GPUS: Final = (
    GpuModel(name="P100", capability=(6, 0), memory="12 or 16"),
    GpuModel(name="V100", capability=(7, 0), memory="16 or 32"),
    GpuModel(name="T4", capability=(7, 5), memory="16"),
    GpuModel(name="A100", capability=(8, 0), memory="40 or 80"),
    GpuModel(name="A30", capability=(8, 0), memory="24"),
    GpuModel(name="A10", capability=(8, 6), memory="24"),
    GpuModel(name="A40", capability=(8, 6), memory="48"),
    GpuModel(name="A6000", capability=(8, 6), memory="48"),
    GpuModel(name="L4", capability=(8, 9), memory="24"),
    GpuModel(name="L40", capability=(8, 9), memory="48"),
    GpuModel(name="H100", capability=(9, 0), memory="80"),
    GpuModel(name="H200", capability=(9, 0), memory="141"),
    GpuModel(name="B200", capability=(10, 0), memory="180"),
)
# The series of GeForce RTX cards have one capability each.
GEFORCE: Final = {"20": (7, 5), "30": (8, 6), "40": (8, 9), "50": (12, 0)}
GEFORCE_MEMORY: Final = {"3090": "24", "4090": "24", "5090": "32"}
# Generations of GPUs; of Ampere, the capability of the first.
GENERATIONS: Final = {
    "volta": GpuModel(name="a Volta GPU", capability=(7, 0)),
    "turing": GpuModel(name="a Turing GPU", capability=(7, 5)),
    "ampere": GpuModel(name="an Ampere GPU", capability=(8, 0)),
    "ada lovelace": GpuModel(name="an Ada GPU", capability=(8, 9)),
    "hopper": GPUS[[each.name for each in GPUS].index("H100")],
    "blackwell": GpuModel(name="a Blackwell GPU", capability=(10, 0)),
}
MAKERS: Final = r"(?:(?:nvidia|tesla|geforce|rtx|quadro)[ -]*)*"
COUNT: Final = r"(?:(?<![\w.])(?P<count>\d{1,2}|one|two|four|eight|dual)(?:\s*[x*\u00d7]\s*|\s+)|\b)"
NVIDIA: Final = re.compile(
    rf"{COUNT}{MAKERS}(?P<name>{'|'.join((*(each.name.lower() for each in GPUS), *GENERATIONS))}|(?:[2-5]0[5-9]0))"
    r"(?:g|s|ti|super)?(?:[ -]*(?:ti|super|sxm\d?|pcie|nvl|ada))*(?:s(?!\w))?\b(?!\s*(?:steps|rows|tokens|epochs))"
)
# Hardware without any published result, with the device whose results come nearest.
OTHERS: Final = (
    (
        r"\b(?:(?:amd|radeon|rocm|instinct)[ -]*)+(?:mi\d{3}[ax]?)?\b|\bmi[123]\d{2}[ax]?\b|\brx ?[67]\d00\b",
        "AMD GPUs (ROCm)",
        "cuda",
    ),
    (
        (
            r"\b(?:apple(?: silicon)?|macbook(?: pro| air)?|macos|mac(?: studio| mini)?"
            r"|mps|m[1-5](?: (?:pro|max|ultra))?)"
            r"(?:[ /-]*(?:m[1-5](?: (?:pro|max|ultra))?|silicon|mps|chips?|gpus?))*\b"
        ),
        "Apple GPUs (MPS)",
        "cpu",
    ),
    (r"\b(?:google )?tpus?(?:[ -]?v\d\w*)?\b|\btorch_?xla\b", "TPUs", "cpu"),
    (r"\b(?:intel )?(?:xpus?|arc|gaudi ?\d?|habana|hpus?)\b", "Intel accelerators", "cpu"),
    (r"\b(?:huawei )?(?:ascend|npus?)\b", "NPUs", "cpu"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHardware:
    """The hardware of a question and the rest of its text. ``count`` is 0 if the question gives no number of GPUs."""

    rest: str
    gpus: tuple[GpuModel, ...] = ()
    count: int = 0
    device: str = ""
    not_measured: tuple[str, ...] = ()


NUMBERS: Final = {"one": 1, "two": 2, "dual": 2, "four": 4, "eight": 8}


def number(text: str | None) -> int:
    return 0 if text is None else NUMBERS[text] if text in NUMBERS else int(text)


def found_hardware(text: str) -> FoundHardware:
    """Find the hardware in a question in lower case."""
    foreign, devices = [], []
    for pattern, name, device in OTHERS:
        text, times = re.subn(pattern, " ", text)
        if times:
            foreign.append(name)
            devices.append(device)
    matches = list(NVIDIA.finditer(text))
    counts = [number(each["count"]) for each in matches]
    return FoundHardware(
        rest=NVIDIA.sub(" gpu ", text) if matches else text,
        gpus=tuple(dict.fromkeys(gpu(each["name"]) for each in matches)),
        count=max(counts, default=0),
        device="cuda" if matches else next(iter(devices), ""),
        not_measured=tuple(foreign),
    )


def gpu(name: str) -> GpuModel:
    known = GENERATIONS.get(name) or next((each for each in GPUS if each.name.lower() == name), None)
    return known or GpuModel(name=f"RTX {name}", capability=GEFORCE[name[:2]], memory=GEFORCE_MEMORY.get(name, ""))


def hardware_notes(found: GpuModel, *, bf16: bool) -> Iterator[str]:
    """Yield what a user of a GPU must know; ``bf16`` tells that the question names it."""
    if found.name not in MEASURED:
        yield f"{found.words}: nothing was measured on it; the results are of {' and '.join(MEASURED)} GPUs"
    if not found.has_bf16 and not bf16:
        yield f"{found.name} has no bf16: where a cell below was measured with bf16, add fp16 to the question"
    if found.capability >= BLACKWELL:
        yield f"{found.name} needs torch 2.7 or later, in a build for CUDA 12.8 or later"


def unsupported(found: GpuModel, *, bf16: bool, flash: bool) -> Iterator[str]:
    """Yield the features of the question, of these two, that a GPU cannot run, with what to use instead."""
    if not found.has_bf16 and bf16:
        yield f"bf16 on a {found.name}, whose hardware does not support it; use fp16 or fp32"
    if found.capability < BF16 and flash:
        yield f"FlashAttention 2 on a {found.name}, whose hardware does not support it; use sdpa"
