"""Tells whose code a traceback died in: the fine-tuning stack's, the user's own, or another library's.

Errors of a tensor operation end in ``torch/nn/functional.py`` or ``torch/autograd``, whoever called it. Such frames,
those of the standard library and those of helpers such as safetensors are neutral: the frame above them decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

STACK: Final = ("transformers", "peft", "accelerate", "trl", "bitsandbytes")
# Folders of the stack in a checkout or a shortened path, which has no `site-packages`.
CHECKOUT: Final = re.compile(
    r"(?:^|[/\\])(?P<package>"
    r"transformers(?=[/\\](?:models|trainer\w*\.py|modeling_\w+\.py|integrations|quantizers|utils|generation"
    r"|tokenization_\w+\.py|training_args\w*\.py|core_model_loading\.py|dependency_versions_check\.py))"
    r"|peft(?=[/\\](?:tuners|utils|peft_model\.py|mapping\w*\.py|auto\.py|config\.py|mixed_model\.py))"
    r"|accelerate(?=[/\\](?:accelerator|optimizer|checkpointing|big_modeling|hooks|state|launchers)\.py"
    r"|[/\\](?:utils|commands)[/\\])"
    r"|trl(?=[/\\](?:trainer|models|core\.py|experimental))"
    r"|bitsandbytes(?=[/\\](?:nn|autograd|optim|backends|functional\.py|cextension\.py|triton))"
    r"|torch(?=[/\\](?:nn|autograd|distributed|utils|optim|cuda|amp|_\w+|serialization\.py|storage\.py|library\.py)))"
)
INSTALLED: Final = re.compile(r"(?:site|dist)-packages[/\\](?:[^/\\]+\.egg[/\\])?(?P<package>[A-Za-z0-9_]+)")
# The parts of torch that act for the stack's strategies; everything else in torch runs on behalf of its caller.
SHARDING: Final = re.compile(
    r"torch[/\\]distributed[/\\](?:fsdp|checkpoint|_composable|_shard|algorithms|device_mesh|_functional_coll)"
)
NEUTRAL: Final = frozenset(
    {
        "torch",
        "safetensors",
        "huggingface_hub",
        "triton",
        "pydantic",
        "typing_extensions",
        "importlib_metadata",
        "packaging",
        "tqdm",
    }
)
STANDARD_LIBRARY: Final = re.compile(r"[/\\]python3\.\d+[/\\](?!(?:site|dist)-packages)|^<(?!suite|ipython|stdin)")
REMOTE_MODEL: Final = re.compile(r"\btransformers_modules\b")
FRAME: Final = re.compile(
    r"^\s*File (?P<path>\S.*?)(?:, line |:)\d+(?:, in (?P<function>[\w.<>]+))?"
    r"|^\s*(?P<cell>Cell In ?\[\d+\]|<ipython-input\S*)"
    r"|^(?P<colab>[~./]\S*\.py) in (?P<name>\w+)\("
)
# Methods that a user overrides, which the stack or torch calls. An error under them is the user's.
OVERRIDDEN: Final = frozenset(
    {
        "forward",
        "compute_loss",
        "training_step",
        "prediction_step",
        "compute_metrics",
        "collate",
        "collate_fn",
        "__call__",
        "__getitem__",
        "formatting_func",
        "preprocess",
        "preprocess_logits_for_metrics",
    }
)


class Origin(Enum):
    """The party whose code raised an error."""

    STACK = "stack"
    USER = "user"
    OTHER = "other"  # another library
    UNKNOWN = "unknown"  # the log shows no frame that tells


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A frame of a traceback: its file and function, and the source lines below it."""

    path: str
    function: str
    source: str = ""

    @property
    def package(self) -> str:
        """The library that the file belongs to; empty for the user's own code."""
        found = INSTALLED.search(self.path) or CHECKOUT.search(self.path)
        if found is None or REMOTE_MODEL.search(self.path):
            return ""
        return found["package"]

    @property
    def is_neutral(self) -> bool:
        if SHARDING.search(self.path):
            return False
        return self.package in NEUTRAL or (not self.package and STANDARD_LIBRARY.search(self.path) is not None)

    @property
    def origin(self) -> Origin:
        if SHARDING.search(self.path) or self.package in STACK:
            return Origin.STACK
        return Origin.OTHER if self.package else Origin.USER


def frames(lines: Iterable[str]) -> Iterator[Frame]:
    """Yield the frames in some lines of a traceback, outermost first."""
    path = function = ""
    source: list[str] = []
    for line in lines:
        match = FRAME.match(line)
        if match is None:
            source.append(line.strip())
            continue
        if path:
            yield Frame(path=path, function=function, source="\n".join(source))
        path = match["path"] or match["cell"] or match["colab"]
        function, source = match["function"] or match["name"] or "", []
    if path:
        yield Frame(path=path, function=function, source="\n".join(source))


def culprit(calls: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame that is not neutral; None if there is none."""
    return next((each for each in reversed(calls) if not each.is_neutral), None)


def origin(calls: Sequence[Frame]) -> Origin:
    """Return whose code a traceback died in."""
    found = culprit(calls)
    return Origin.UNKNOWN if found is None else found.origin


def is_overridden(calls: Sequence[Frame]) -> bool:
    """Tell if a traceback died in a method of the user's that a framework calls."""
    found = culprit(calls)
    return found is not None and found.origin is Origin.USER and found.function.rpartition(".")[2] in OVERRIDDEN
