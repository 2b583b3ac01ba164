"""Draws a bug report: the failure, the versions, the results with other versions, and the reproducing script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cases.space.verdict import RED, Phase, Verdict, shown
from matrix.versions.sets import PACKAGES
from reports.answers.scripts.known_cause import known_cause
from reports.render.markdown import code, one_line, table, text
from reports.results.verdict_style import look
from reports.results.wording import gist, headline, missed, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.run.outcome import Outcome
    from reports.answers.scripts.known_cause import KnownCause
    from reports.answers.scripts.repro_script import Reproducer
    from reports.results.grid import Grid

# The names that people search for; other options keep their own name.
NAMES: Final[Mapping[str, str]] = {
    "full": "full fine-tuning",
    "lora": "LoRA",
    "rslora": "rsLoRA",
    "dora": "DoRA",
    "pissa": "PiSSA",
    "olora": "OLoRA",
    "loftq": "LoftQ",
    "loha": "LoHa",
    "lokr": "LoKr",
    "ia3": "IA3",
    "adalora": "AdaLoRA",
    "vera": "VeRA",
    "prompt": "prompt tuning",
    "prefix": "prefix tuning",
    "nf4": "NF4",
    "fp4": "FP4",
    "ddp": "DDP",
    "fsdp1": "FSDP",
    "fsdp2": "FSDP2",
}
DOING: Final[Mapping[Phase, str]] = {
    Phase.IMPORT: "when the packages are imported",
    Phase.LOAD: "when the base model is loaded",
    Phase.ADAPT: "when the adapter is added",
    Phase.WRAP: "when the model is wrapped",
    Phase.FORWARD: "in the forward pass",
    Phase.BACKWARD: "in the backward pass",
    Phase.OPTIMIZER: "in the optimiser's step",
    Phase.SAVE: "when it is saved",
    Phase.RELOAD: "when it is loaded again",
    Phase.RESUME: "when training is resumed",
    Phase.MERGE: "when the adapter is merged",
    Phase.INFER: "when the model generates",
}
OF_RANK: Final = re.compile(r"-- Process \d+ terminated with the following error:\n")
OURS: Final = re.compile(r'  File "<suite>/.*\n(?:    .*\n)*')  # frames of the harness, which lead to the call
# Frames that only pass a call on: decorators and hooks of the libraries.
PASSING: Final = (
    r"torch/utils/_contextlib\.py",
    r"torch/distributed/_composable/contract\.py",
    r"torch/nn/modules/module\.py",
    r"torch/_dynamo/(?:eval_frame|external_utils)\.py",
    r"torch/_compile\.py",
    r"torch/amp/autocast_mode\.py",
    r"accelerate/utils/operations\.py",
    r"accelerate/hooks\.py",
    r"transformers/utils/(?:generic|deprecation|output_capturing)\.py",
    r"transformers/modeling_layers\.py",
)
WRAPPERS: Final = re.compile(
    rf'  File "[^"\n]*/(?:{"|".join(PASSING)})", line \d+, in '
    r"(?:\w*wrap\w*|inner|_fn|decorate_\w+|new_forward|forward|__call__|_(?:wrapped_)?call_impl)\n(?:    .*\n)*"
)
LONGEST_TITLE: Final = 120


def issue(reproducer: Reproducer, outcome: Outcome, matrix: Grid, *, log: str = "") -> str:
    """Return a bug report. ``log`` is the output of the script; without it, the report has the cell's traceback."""
    parts = [
        f"# {title(reproducer, outcome)}",
        "## What happens",
        *happens(reproducer, outcome),
        "## What is expected",
        expected(outcome, matrix),
        "## To reproduce",
        f"`uv run {reproducer.name}` installs these versions in a new environment and runs the script.",
        fenced(reproducer.text.rstrip(), "python"),
        *traceback(outcome, log),
        "## Versions",
        versions(reproducer, outcome),
        *others(reproducer, outcome, matrix),
        *cause(known_cause(outcome, reproducer.pins.six)),
    ]
    return "\n\n".join(parts) + "\n"


def title(reproducer: Reproducer, outcome: Outcome) -> str:
    o = outcome.options
    values = [str(o.get(name, "")) for name in ("method", "quant", "strategy")]
    setup = " + ".join(NAMES.get(word, word) for word in values if word not in {"", "none", "single"})
    what = reproducer.symptom.meaning.removeprefix("Nothing is raised, but ").rstrip(".")
    return one_line(f"{setup or 'one process'}: {what or headline(outcome, LONGEST_TITLE)}")


def happens(reproducer: Reproducer, outcome: Outcome) -> Iterator[str]:
    error = outcome.error
    if error is None:
        yield f"{reproducer.symptom.meaning} Measured values, and the bounds that rounding error stays within:"
        yield table(
            ("", "measured", "bound"),
            [(text(c.name), code(shown(c.value)), code(f"{c.op} {shown(c.bound)}")) for c in missed(outcome)],
        )
        return
    yield f"An error {DOING.get(outcome.phase, '') if outcome.phase else ''}".rstrip() + ":"
    yield fenced(f"{error.type}: {plain(error.message)}".rstrip(": \n"), "")


def expected(outcome: Outcome, matrix: Grid) -> str:
    """Return the expected behaviour, with a reference to versions that show it."""
    green = any(matrix.verdict(outcome.case, each.key) is Verdict.PASS for each in matrix.sets)
    wish = "No error" if outcome.error else "Every value within its bound"
    return f"{wish}, as with the versions marked *pass* below." if green else f"{wish}."


def traceback(outcome: Outcome, log: str) -> Iterator[str]:
    """Yield the traceback of the script if it was run, else that of the cell."""
    if log:
        yield "## Traceback"
        yield fenced(without_wrappers(of_script(plain(log))).strip(), "")
    elif outcome.error is not None and outcome.error.traceback:
        yield "## Traceback"
        yield "From the same calls in a test harness; its own frames and those of decorators are removed."
        yield fenced(without_wrappers(OURS.sub("", plain(outcome.error.traceback))).strip(), "")


def without_wrappers(text: str) -> str:
    """Drop frames that only pass a call on, but never the last one, which raised."""
    frames = list(WRAPPERS.finditer(text))
    for frame in reversed(frames):
        if text[frame.end() :].startswith("  File "):
            text = text[: frame.start()] + text[frame.end() :]
    return text


def of_script(log: str) -> str:
    """Return a log from its traceback on; the rank's traceback if ranks were spawned."""
    match = OF_RANK.search(log)
    return log[match.end() if match else max(log.find("Traceback (most recent call last)"), 0) :]


def versions(reproducer: Reproducer, outcome: Outcome) -> str:
    facts = outcome.facts
    rows = [("Python", str(facts.get("python") or reproducer.pins.python))]
    rows += [(name, reproducer.pins.versions[name]) for name in packages(reproducer)]
    rows += [("torch's build", str(facts["torch_build"]))] if facts.get("torch_build") else []
    rows += [("device", "CPU, gloo; not tested on GPUs" if facts.get("device") == "cpu" else outcome.hardware)]
    return table(("", ""), [(text(name), text(value)) for name, value in rows])


def packages(reproducer: Reproducer) -> list[str]:
    """Return the packages of the stack that the script pins."""
    return [name for name in PACKAGES if f'"{name}==' in reproducer.text]


def others(reproducer: Reproducer, outcome: Outcome, matrix: Grid) -> Iterator[str]:
    """Yield the results of the same calls with other versions."""
    alike = gist(outcome)
    rows = []
    for each in matrix.sets:
        other = matrix.lookup(outcome.case, each.key)
        if other is None or other.verdict not in RED | {Verdict.PASS}:
            continue
        word = look(other.verdict).word
        same = word if other.verdict is Verdict.PASS else "the same" if gist(other) == alike else headline(other, 100)
        rows.append((*(text(each.pins.get(name, "")) for name in packages(reproducer)), text(same)))
    if len(rows) > 1:
        yield "## Other versions"
        yield table((*packages(reproducer), "result"), dict.fromkeys(rows))


def cause(known: KnownCause) -> Iterator[str]:
    """Yield the known cause, and links to threads about such a failure, so that a report is no unnoticed duplicate."""
    if known.cause:
        yield "## Cause, as far as known"
        yield text(known.cause)
    if known.links:
        yield "## Threads that may be about the same"
        yield "\n".join(f"- {link}" for link in known.links)


def fenced(inside: str, language: str) -> str:
    return f"````{language}\n{inside}\n````" if "```" in inside else f"```{language}\n{inside}\n```"
