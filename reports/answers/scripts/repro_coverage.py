"""The options that the generator of reproducers does not cover, as data, so that messages can name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cases import api
from cases.space.verdict import RED
from matrix.errors import UserError
from matrix.keys import CellKey
from reports.answers.scripts.symptom import ShownSymptom, SymptomKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cases.space.options import Options
    from matrix.run.outcome import Outcome

# Flows whose cells no script of calls can show, and the reason.
ELSEWHERE: Final[Mapping[str, str]] = {
    "api": "its few lines are code already, not options",
    "script": "it runs a command of yours: that is the reproducer",
    "portability": "it takes two version sets, one that saves and one that loads, and a script has one",
}


@dataclass(frozen=True, kw_only=True)
class Uncovered:
    """An option that the generator cannot write for some symptoms."""

    option: str
    when: Callable[[Options, ShownSymptom], bool]


def saves(options: Options, shown: ShownSymptom) -> bool:
    return shown.phase == "save" and options.flow == "resume" and options.state_dict_type == "sharded"


TRAINS: Final = frozenset({SymptomKind.GRADIENT, SymptomKind.RESUMED})
FRONT_ENDS: Final = {SymptomKind.DTYPE: "sft", SymptomKind.TRAINER: "trainer"}  # others need a plain loop
UNCOVERED: Final = (
    Uncovered(option="prequantised", when=lambda o, _: o.prequantised),
    Uncovered(option="data", when=lambda o, _: o.data != "plain"),
    Uncovered(option="rope_scaling", when=lambda o, _: o.rope_scaling != "none"),
    Uncovered(option="autocast", when=lambda o, _: o.autocast == "fp16"),
    Uncovered(option="cpu_ram_efficient_loading", when=lambda o, _: o.cpu_ram_efficient_loading),
    Uncovered(
        option="gradient_accumulation_steps",
        when=lambda o, s: o.gradient_accumulation_steps > 1 and s.kind is not SymptomKind.TRAINER,
    ),
    Uncovered(option="clip_grad_norm", when=lambda o, s: o.clip_grad_norm and s.reaches("optimizer")),
    Uncovered(
        option="attn_implementation", when=lambda o, _: o.attn_implementation in ("math", "flash", "efficient", "cudnn")
    ),
    Uncovered(option="summon_full_params", when=lambda o, _: o.summon_full_params),
    Uncovered(option="torch_compile", when=lambda o, s: o.torch_compile and s.reaches("forward")),
    Uncovered(option="front_end", when=lambda o, s: o.front_end != FRONT_ENDS.get(s.kind, "loop")),
    Uncovered(option="flow", when=lambda o, _: o.front_end != "loop" and o.flow != "train"),
    Uncovered(option="autocast", when=lambda o, s: s.kind is SymptomKind.TRAINER and o.autocast != "off"),
    Uncovered(option="strategy", when=lambda o, s: s.kind is SymptomKind.TRAINER and o.strategy != "single"),
    Uncovered(option="loop", when=lambda o, s: o.loop == "generate" and s.kind is SymptomKind.ERROR and s.again),
    Uncovered(option="strategy", when=lambda o, s: o.strategy == "single" and s.kind in TRAINS),
    Uncovered(
        option="strategy",
        when=lambda o, s: (
            o.strategy != "single" and s.kind in (SymptomKind.MERGED, SymptomKind.RELOADED, SymptomKind.FROZEN)
        ),
    ),
    Uncovered(
        option="use_orig_params",
        when=lambda o, s: o.strategy == "fsdp1" and not o.use_orig_params and s.kind in TRAINS,
    ),
    Uncovered(
        option="strategy", when=lambda o, s: o.strategy == "ddp" and s.kind in (SymptomKind.RESUMED, SymptomKind.DISK)
    ),
    Uncovered(
        option="flow",
        when=lambda o, s: s.kind is SymptomKind.ERROR and s.phase in ("save", "reload", "resume") and not saves(o, s),
    ),
    Uncovered(option="flow", when=lambda _, s: s.resumed),
    Uncovered(option="flow", when=lambda o, s: s.phase == "infer" and o.flow != "generate"),
    Uncovered(
        option="state_dict_type", when=lambda o, s: o.state_dict_type == "sharded" and s.kind is SymptomKind.DISK
    ),
    Uncovered(
        option="embeddings",
        when=lambda o, s: o.embeddings == "resized" and s.kind in (SymptomKind.RELOADED, SymptomKind.DISK),
    ),
)


def check_flow(outcome: Outcome) -> None:
    """Check that a script of calls can show the flow of a red cell.

    Raises:
        UserError: the cell runs its own code or needs two version sets.
    """
    flow = str(outcome.options.get("flow"))
    if outcome.verdict in RED and flow in ELSEWHERE:
        raise UserError(f"{outcome.cell}: no script for flow={flow}: {ELSEWHERE[flow]}{own_code(outcome)}")


def own_code(outcome: Outcome) -> str:
    """The name and the file of the function of an ``api`` cell."""
    call = api.load().get(str(outcome.options.get("call")))
    return f": {call.name} in {call.body.__module__.replace('.', '/')}.py" if call is not None else ""


def check_options(cell: str, options: Options, shown: ShownSymptom) -> None:
    """Check that the generator can write every option of a cell.

    Raises:
        UserError: it cannot write one, which the message names.
    """
    for each in UNCOVERED:
        if each.when(options, shown):
            raise UserError(
                f"{cell}: {each.option}={getattr(options, each.option)} is not covered by the generator for"
                f" {shown_words(shown)}; to see it, run the cell: ftmatrix run --where case={CellKey.parse(cell).case}"
            )


def shown_words(shown: ShownSymptom) -> str:
    if shown.check is not None:
        return f"the check {shown.check.name!r}"
    return f"an error in the phase {shown.phase.value if shown.phase else '?'}"
