"""The share of the stack's lines that green cells execute, of the parts whose code decides what a job computes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from cases.injection.source_mutants import functions_by_place, nested_code

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from types import CodeType

    from matrix.experiments.mutants import StackFile

PARTS: Final = {  # paths below site-packages begin with these
    "models used": "transformers/models/",
    "Trainer": "transformers/trainer.py",
    "peft's tuners": "peft/tuners/",
    "peft, the rest": "peft/",
    "accelerate": "accelerate/",
    "TRL": "trl/",
    "bitsandbytes": "bitsandbytes/",
    "torch's FSDP": "torch/distributed/fsdp/",
}


@dataclass(frozen=True, kw_only=True)
class LineShare:
    """Lines inside functions, of the files that mutants may change; ``executed`` by a green cell."""

    part: str
    executed: int
    lines: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def shares(sources: Iterable[StackFile], executed: Mapping[str, Collection[int]]) -> list[LineShare]:
    """The share of each part; ``executed`` has the lines of each file. A file counts for the first part it is in."""
    counts = dict.fromkeys(PARTS, (0, 0))
    for source in sources:
        part = next((name for name, path in PARTS.items() if source.file.startswith(path)), None)
        if part is not None:
            lines = lines_of_functions(source.text)
            done, every = counts[part]
            counts[part] = (done + len(lines & set(executed.get(source.file, ()))), every + len(lines))
    return [LineShare(part=name, executed=done, lines=every) for name, (done, every) in counts.items() if every]


def lines_of_functions(text: bytes) -> set[int]:
    """The lines of a source file that have code inside a function."""
    outer = functions_by_place(compile(text, "<source>", "exec", dont_inherit=True)).values()
    return {line for code in outer for each in (code, *inner_codes(code)) for line in code_lines(each)}


def inner_codes(code: CodeType) -> list[CodeType]:
    return [each for _, each in nested_code(code, "")]


def code_lines(code: CodeType) -> set[int]:
    """The lines of a function's body; its ``def`` runs where the function is made."""
    return {line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno}
