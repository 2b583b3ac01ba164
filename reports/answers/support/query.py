"""What a user asks for, in words and terms: ``qlora fsdp2 dora``, ``method=dora quant=nf4 loop!=eval``.

A need names some options; the others are free. A free option is *plain* at the value one would expect, and a *setting*
at any other, which an answer has to mention. What is wished for is never free: the flow, the method, the quantisation,
the strategy and the model are as named, or as one would expect (``train``, ``lora``, none, one process, a llama).
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import islice, product
from typing import TYPE_CHECKING, Final

from cases.space import options
from cases.space.options import IllegalError, Options, Value
from matrix.errors import UserError
from matrix.run.plan import FREE, TERM, near

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from reports.results.grid import Grid

Values = tuple[Value, ...]

# What a need is about. Another value of these is another wish; another value of the rest is a setting.
WISHED: Final = (
    *(
        "flow",
        "call",
        "method",
        "modules_to_save",
        "target_embeddings",
        "model",
        "embeddings",
        "quant",
        "prequantised",
        "strategy",
        "loop",
    ),
)
SAID: Final = ("flow", "method", "quant", "strategy")  # of these, what is meant is said, named or not
PLAIN: Final[Mapping[str, Values]] = {
    **{name: (value,) for name, value in asdict(Options()).items()},
    "torch_dtype": ("bf16", "fp32"),  # as models are published, and as they are trained in full
    "optim": ("adamw", "sgd"),  # what everyone trains with, and what hides no scale of a gradient
    "world_size": (2, 1),
}
PRECISION: Final = ("torch_dtype", "bnb_4bit_compute_dtype", "autocast", "mixed_precision")

# Options whose values are words by themselves.
SPOKEN: Final = ("method", "quant", "strategy", "flow", "model", "front_end")
UNSPOKEN: Final = ("none", "loop", "api", "script")  # values that say nothing without their option
WORDS: Final[Mapping[str, Mapping[str, Values]]] = {
    **{
        str(value).replace("_", "-"): {name: (value,)}
        for name in SPOKEN
        for value in options.values(name)
        if value not in UNSPOKEN
    },
    **{each.name.replace("_", "-"): {each.name: (True,)} for each in fields(Options) if each.default is False},
    **{dtype: {"torch_dtype": (dtype,)} for dtype in ("bf16", "fp16", "fp32")},
    **{name: {"optim": (name.replace("-", "_"),)} for name in ("sgd", "adamw", "adamw-8bit", "paged-adamw-8bit")},
    "qlora": {"quant": ("nf4",)},
    "qdora": {"method": ("dora",), "quant": ("nf4",)},
    "4-bit": {"quant": ("nf4",)},
    "4bit": {"quant": ("nf4",)},
    "8-bit": {"quant": ("int8",)},
    "8bit": {"quant": ("int8",)},
    "llm.int8": {"quant": ("int8",)},
    "full-fine-tuning": {"method": ("full",)},
    "fft": {"method": ("full",)},
    "fsdp": {"strategy": ("fsdp2", "fsdp1")},
    "hsdp": {"device_mesh": ("hsdp",)},
    "offload": {"cpu_offload": (True,)},
    "double": {"bnb_4bit_use_double_quant": (True,)},
    "amp": {"autocast": ("bf16", "fp16")},
    "autocast": {"autocast": ("bf16", "fp16")},
    "gradient_checkpointing": {"gradient_checkpointing": ("non_reentrant", "reentrant")},
    "gradient-checkpointing": {"gradient_checkpointing": ("non_reentrant", "reentrant")},
    "reentrant": {"gradient_checkpointing": ("reentrant",)},
    "non-reentrant": {"gradient_checkpointing": ("non_reentrant",)},
    "save": {"flow": ("save_reload",)},
    "reload": {"flow": ("save_reload",)},
    "serving": {"flow": ("merge_reload",)},
    "generation": {"flow": ("generate",)},
    "inference": {"flow": ("generate",)},
    "sfttrainer": {"front_end": ("sft",)},
    "trl": {"front_end": ("sft",)},
    "moe": {"model": ("mixtral",)},
    "tied": {"embeddings": ("tied",)},
    "eval": {"loop": ("eval",)},
    "head": {"modules_to_save": ("lm_head",)},
    "embeddings": {"target_embeddings": (True,)},
}
FILLING: Final = frozenset({"and", "with", "on", "under", "in", "using", "fine-tuning", "+", "&", "|"})
MOST: Final = 4096  # combinations of named values that are looked at for one that is legal


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The options that are named, each with the values of which any would do; ``patterns`` are of cases and groups.

    Where several values are named, a set on which only some of them are green fulfils the need with a choice.
    """

    text: str
    named: Mapping[str, Values]
    patterns: tuple[tuple[str, tuple[str, ...], bool], ...] = ()

    def plain(self, name: str) -> Values:
        """The values of an option that need no mention."""
        if name in self.named:
            return self.named[name]
        if name == "method" and self.named.get("flow") == ("load",):
            return ("full",)
        return PLAIN[name]

    @property
    def terms(self) -> str:
        """The need in full, as terms: what was named, and what goes without saying."""
        first = () if self.patterns else SAID
        said = [*first, *(name for name in options.names() if name in self.named and name not in first)]
        patterns = (f"{name}{'!=' if negated else '='}{','.join(wanted)}" for name, wanted, negated in self.patterns)
        return " ".join([*map(self.term, said), *patterns])

    def term(self, name: str) -> str:
        return f"{name}={','.join(map(str, self.plain(name)))}"

    def without(self, name: str) -> Need:
        named = {other: values for other, values in self.named.items() if other != name}
        return Need(text=self.text, named=named, patterns=self.patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A measured case: where it is in the option space."""

    case: str
    group: str
    stated: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A case in which a need can be met: ``settings`` go beyond what was named, ``chosen`` are of several plain values.

    A way without settings is the need as it is.
    """

    case: str
    settings: Mapping[str, Value] = field(default_factory=dict)
    chosen: Mapping[str, Value] = field(default_factory=dict)


def parse(text: str) -> Need:
    """Read words and terms, e.g. ``qlora fsdp2 loop!=eval``.

    Raises:
        UserError: a word or a term is unknown, or two contradict each other.
    """
    named: dict[str, Values] = {}
    said: dict[str, str] = {}
    patterns: list[tuple[str, tuple[str, ...], bool]] = []
    words = [word for word in re.split(r"[\s;]+", text.strip()) if word.lower().strip(",") not in FILLING | {""}]
    if not words:
        raise UserError("no need was named; words such as 'qlora fsdp2', or terms such as 'quant=nf4', would do")
    for word in words:
        if (found := TERM.fullmatch(word)) and found["name"] in FREE:
            patterns.append((found["name"], tuple(found["value"].split(",")), found["op"] == "!="))
            continue
        for name, wanted in meaning(word).items():
            both = tuple(value for value in wanted if value in named.get(name, wanted))
            if not both:
                raise UserError(
                    f"{said[name]!r} and {word!r} contradict each other: both are about {name}; ask for one of them"
                )
            named[name] = both
            said[name] = word
    return Need(text=" ".join(words), named=named, patterns=tuple(patterns))


def meaning(word: str) -> Mapping[str, Values]:
    """The options that a word or a term names.

    Raises:
        UserError: it is unknown.
    """
    found = TERM.fullmatch(word)
    if found is not None:
        return {found["name"]: term(found["name"], found["value"].split(","), negated=found["op"] == "!=")}
    plain = word.lower().strip(",").replace("_", "-")
    if plain not in WORDS:
        close = get_close_matches(plain, WORDS, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "words such as qlora, fsdp2, int8 or merge would do"
        raise UserError(f"{word!r} is neither a known word nor a term such as quant=nf4; {hint}")
    return WORDS[plain]


def term(name: str, texts: Iterable[str], *, negated: bool) -> Values:
    try:
        wanted = tuple(options.parsed(name, text) for text in texts)
        left = tuple(value for value in options.values(name) if value not in wanted) if negated else wanted
    except IllegalError as error:
        raise UserError(f"{error}{near(name)}") from None
    if not left:
        raise UserError(f"{name}!= leaves no value of {name}: it has {options.listed(options.values(name))}")
    return left


def points(matrix: Grid) -> tuple[Point, ...]:
    """Every case that was measured. One with options that this version does not know is left out."""
    first = {outcome.case: outcome for outcome in matrix.outcomes}
    known = frozenset(options.names())
    return tuple(
        Point(case=case, group=outcome.group, stated=stated(outcome.options))
        for case, outcome in first.items()
        if known.issuperset(outcome.options)
    )


def stated(stored: Mapping[str, object]) -> Mapping[str, Value]:
    """The options that apply; those that an older harness did not have are as they were for it."""
    ranks = 1 if stored.get("strategy", "single") == "single" else 2
    made = Options(**{"world_size": ranks, **stored})  # type: ignore[arg-type]
    return made.stated


def ways(need: Need, measured: Iterable[Point]) -> tuple[Way, ...]:
    """The cases in which the need can be met, the plainest first."""
    return tuple(sorted(found(need, measured), key=lambda way: len(way.settings)))


def found(need: Need, measured: Iterable[Point]) -> Iterator[Way]:
    for point in measured:
        if need.patterns:
            if all(matches(point, *pattern) for pattern in need.patterns) and agrees(need, point, need.named):
                yield Way(case=point.case, chosen={"case": point.case})
        elif agrees(need, point, {*need.named, *WISHED}):
            free = {name: value for name, value in point.stated.items() if name not in need.named}
            yield Way(
                case=point.case,
                settings={name: value for name, value in free.items() if value not in need.plain(name)},
                chosen={name: value for name, value in point.stated.items() if value in need.plain(name) != (value,)},
            )


def agrees(need: Need, point: Point, names: Iterable[str]) -> bool:
    """Whether the options are plain: a named one has to apply, another one must not differ where it does."""
    return all(
        point.stated[name] in need.plain(name) if name in point.stated else name not in need.named for name in names
    )


def matches(point: Point, name: str, wanted: tuple[str, ...], negated: bool) -> bool:  # noqa: FBT001 - of a pattern
    shown = point.case if name == "case" else point.group.lower()
    return negated != any(fnmatchcase(shown, value if name == "case" else value.lower()) for value in wanted)


def check(need: Need) -> None:
    """Of a need for which no case was measured.

    Raises:
        UserError: there can be none, and why.
    """
    meant = {name: need.plain(name) for name in (*SAID, *need.named)}
    combinations = (dict(zip(meant, each, strict=True)) for each in product(*meant.values()))
    looked_at = list(islice(map(why_not, combinations), MOST))
    if all(looked_at) and len(looked_at) < MOST:
        raise UserError(f"{need.terms}: {looked_at[0]}")


def why_not(named: Mapping[str, Value]) -> str:
    """Why no case can have these options; empty if one can."""
    try:
        point = Options().but(**named)
    except IllegalError as error:
        return str(error)
    idle = [name for name in named if name not in point.stated]
    return f"{idle[0]} means nothing with the rest of it" if idle else ""
