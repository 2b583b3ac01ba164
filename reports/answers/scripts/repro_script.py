"""Writes a reproducer: one file that shows the symptom of a red cell when a user runs ``uv run FILE``.

The file has the calls of the cell's options, up to the one that went wrong, and the versions of its lock. It runs on
the kind of device on which the cell was measured.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cases.model import architectures
from cases.space import devices
from cases.space.options import IllegalError, Options
from matrix.errors import UserError
from reports.answers.scripts import python_text
from reports.answers.scripts.calls import TORCH
from reports.answers.scripts.recipe import NOTHING, Recipe
from reports.answers.scripts.repro_coverage import check_flow, check_options
from reports.answers.scripts.symptom import DTYPES, ShownSymptom, SymptomKind, symptom
from reports.results.wording import headline

if TYPE_CHECKING:
    from matrix.run.outcome import Outcome
    from reports.answers.scripts.repro_cells import PinnedVersions

TEMPLATES: Final = Path(__file__).parents[2] / "render" / "templates"
COLUMNS: Final = 120
LONGEST: Final = 119  # lines, so that a maintainer reads them
# Dependencies that the six packages do not pin and that could change the symptom. Torch pins its own.
COMPANIONS: Final = ("fsspec", "huggingface-hub", "numpy", "safetensors", "setuptools", "sympy", "tokenizers")
COMPARED: Final = (
    SymptomKind.GRADIENT,
    SymptomKind.TRAINER,
    SymptomKind.RESUMED,
    SymptomKind.MERGED,
    SymptomKind.RELOADED,
)  # an adapter must change these numbers
OF_DATASETS: Final = ("datasets", "dill", "multiprocess", "pandas", "pyarrow")
OF_TRL: Final = (*OF_DATASETS, "rich", "tyro")


@dataclass(frozen=True, kw_only=True)
class Reproducer:
    """The text of a reproducer, and the name of a file for it."""

    cell: str
    text: str
    symptom: ShownSymptom
    pins: PinnedVersions

    @property
    def name(self) -> str:
        return f"{re.sub(r'[^A-Za-z0-9]+', '_', self.cell)}.py"


def reproducer(outcome: Outcome, pins: PinnedVersions) -> Reproducer:
    """The reproducer of a red cell.

    Raises:
        UserError: the cell is not red, or the generator does not cover one of its options.
    """
    device = str(outcome.facts.get("device") or devices.CPU)
    if device == devices.CUDA_GLOO:
        raise UserError(f"{outcome.cell}: no script for ranks that share a GPU; run the cell on cpu or cuda")
    check_flow(outcome)
    shown = symptom(outcome)
    options = options_of(outcome)
    check_options(outcome.cell, options, shown)
    recipe = Recipe(options=options, versions=pins.versions)
    body = rendered(recipe, shown, device)
    parts = {
        "python": pins.python,
        "pins": requirements(recipe),
        "headline": shown.meaning or headline(outcome, 110),
        "cell": textwrap.wrap(f"A cell of ftmatrix: {outcome.cell}", COLUMNS),  # breaks long ids after hyphens
        "imports": python_text.imports(body, recipe.modules),
        "body": body,
    }
    text = environment().get_template("repro/file.py.j2").render(parts)
    if len(text.splitlines()) > LONGEST:
        raise UserError(f"{outcome.cell}: the script would have more than {LONGEST} lines; nobody reads a longer one")
    return Reproducer(cell=outcome.cell, text=text, symptom=shown, pins=pins)


def options_of(outcome: Outcome) -> Options:
    try:
        return Options().but(**outcome.options)
    except IllegalError as error:
        raise UserError(
            f"{outcome.cell}: {error}; another version of ftmatrix measured this cell: run it again"
        ) from None


def requirements(recipe: Recipe) -> list[str]:
    """The pins of the packages that the file imports, or that change its result, at the versions of the lock."""
    o = recipe.options
    wanted = ["torch", "transformers"]
    wanted += ["peft"] if o.method != "full" else []
    wanted += ["bitsandbytes"] if o.quant != "none" or o.optim.endswith("8bit") else []
    wanted += ["accelerate"]  # PEFT needs it, and transformers to place a model
    wanted += ["trl"] if o.front_end == "sft" else []
    wanted += [*COMPANIONS, *(OF_TRL if o.front_end == "sft" else ())]
    held = (f'"{name}=={recipe.versions[name]}"' for name in wanted if name in recipe.versions)
    return list(python_text.rows(held))


def rendered(recipe: Recipe, shown: ShownSymptom, device: str) -> str:
    """The body of the file, after its imports."""
    o = recipe.options
    wraps = o.strategy != "single" and shown.reaches("wrap")
    text = (
        environment()
        .get_template("repro/script.py.j2")
        .render(
            recipe=recipe,
            symptom=shown,
            o=o,
            torch=TORCH,
            device=device,
            other="cuda" if device == "cpu" else "cpu",
            other_backend=other_backend(device, o.world_size),
            ranks=o.world_size,
            vocabulary=architectures.vocabulary(o),
            adapts=o.method != "full" and shown.reaches("adapt"),
            wraps=wraps,
            starts=shown.kind in COMPARED and o.method in NOTHING,
            moves=shown.kind in (SymptomKind.MERGED, SymptomKind.RELOADED) and o.method == "dora",
            bound=f"{shown.check.bound:.3g}" if shown.check and isinstance(shown.check.bound, float) else "",
            wanted_dtype=DTYPES.get(str(shown.check.bound), "") if shown.check else "",
        )
    )
    return tidy(text)


def other_backend(device: str, ranks: int) -> str:
    if device == "cuda":
        return "gloo" if ranks > 1 else "the CPU"
    return f"NCCL and {ranks} GPUs" if ranks > 1 else "a GPU"


def tidy(text: str) -> str:
    """Two blank lines between functions, none elsewhere."""
    lines = [line.rstrip() for line in text.splitlines()]
    nonempty = [line for line in lines if line]
    spaced: list[str] = []
    for number, line in enumerate(nonempty):
        top = not line.startswith((" ", ")", "}"))
        if number and top and (line.startswith(("class ", "def ", "if ")) or nonempty[number - 1].startswith(" ")):
            spaced += ["", ""]
        spaced.append(line)
    return "\n".join(spaced) + "\n"


@cache
def environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - Python, no HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
