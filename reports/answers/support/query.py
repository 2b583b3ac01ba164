"""Parses a user's query, such as ``qlora fsdp2 dora`` or ``method=dora quant=nf4 loop!=eval``.

A query names some options and leaves the others free. A free option has an expected (*plain*) value; any other value
is a *setting*, which an answer mentions. Goals (flow, method, quantisation, strategy, model and their like) are never
free: they are as the query names them, or plain (``train``, ``lora``, no quantisation, one process, a Llama).
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from itertools import islice, product
from typing import TYPE_CHECKING, Final

from cases.space import options
from cases.space.options import IllegalError, Options, Value
from cases.space.written_values import parsed
from matrix.errors import UserError
from matrix.run.plan import FREE, TERM, Term, current_term, renaming
from reports.answers.support.spelling import did_you_mean
from reports.answers.support.vocabulary import FILLER_WORDS, WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Values = tuple[Value, ...]

# Another value of one of these is another goal; another value of any other option is a setting.
GOALS: Final = (
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
ALWAYS_STATED: Final = (
    "flow",
    "method",
    "quant",
    "strategy",
)  # terms that a query states in full, whether the user named them or not
PLAIN: Final[Mapping[str, Values]] = {
    **{name: (value,) for name, value in asdict(Options()).items()},
    "torch_dtype": ("bf16", "fp32"),  # as published, and as for full fine-tuning
    "optim": ("adamw", "sgd"),  # the usual one, and one that does not normalise gradients
    "world_size": (2, 1),
}
PRECISION: Final = ("torch_dtype", "bnb_4bit_compute_dtype", "autocast", "mixed_precision")

MAX_COMBINATIONS: Final = 4096  # of named values, to search for a legal one


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A parsed query. ``named`` holds the accepted values of each named option; ``patterns`` match cases and groups.

    If an option has several values, a set on which only some are green fulfils the query with a setting. ``renamings``
    has a sentence for each term that the user wrote with a former option name; ``text`` has the present name.
    """

    text: str
    named: Mapping[str, Values]
    patterns: tuple[tuple[str, tuple[str, ...], bool], ...] = ()
    renamings: tuple[str, ...] = ()

    def plain(self, name: str) -> Values:
        """The values of an option that need no mention."""
        if name in self.named:
            return self.named[name]
        if name == "method" and self.named.get("flow") == ("load",):
            return ("full",)
        return PLAIN[name]

    @property
    def terms(self) -> str:
        """The query in full, as terms: the named options and the implied goals."""
        first = () if self.patterns else ALWAYS_STATED
        names = [*first, *(name for name in options.names() if name in self.named and name not in first)]
        patterns = (f"{name}{'!=' if negated else '='}{','.join(wanted)}" for name, wanted, negated in self.patterns)
        return " ".join([*map(self.term, names), *patterns])

    def term(self, name: str) -> str:
        return f"{name}={','.join(map(str, self.plain(name)))}"

    def without(self, name: str) -> Query:
        named = {other: values for other, values in self.named.items() if other != name}
        return Query(text=self.text, named=named, patterns=self.patterns, renamings=self.renamings)


def parse(text: str) -> Query:
    """Read words and terms, e.g. ``qlora fsdp2 loop!=eval``.

    Raises:
        UserError: a word or a term is unknown, or two contradict each other.
    """
    named: dict[str, Values] = {}
    words_by_option: dict[str, str] = {}
    patterns: list[tuple[str, tuple[str, ...], bool]] = []
    words = [word for word in re.split(r"[\s;]+", text.strip()) if word.lower().strip(",") not in FILLER_WORDS | {""}]
    if not words:
        raise UserError("empty query; give words such as 'qlora fsdp2' or terms such as 'quant=nf4'")
    terms = [(word, parsed_term(word)) for word in words]
    present_words = [word if each is None else str(each) for word, each in terms]
    for word in present_words:
        if (match := TERM.fullmatch(word)) and match["name"] in FREE:
            patterns.append((match["name"], tuple(match["value"].split(",")), match["op"] == "!="))
            continue
        for name, wanted in meaning(word).items():
            both = tuple(value for value in wanted if value in named.get(name, wanted))
            if not both:
                raise UserError(
                    f"{words_by_option[name]!r} and {word!r} contradict each other: both set {name}; give one of them"
                )
            named[name] = both
            words_by_option[name] = word
    return Query(
        text=" ".join(present_words),
        named=named,
        patterns=tuple(patterns),
        renamings=tuple(renaming(word, each) for word, each in terms if each is not None and str(each) != word),
    )


def parsed_term(word: str) -> Term | None:
    """The term in a word, under its present name; None for a word that is no term.

    Raises:
        UserError: the values belong to different options now.
    """
    match = TERM.fullmatch(word)
    if match is None:
        return None
    name, values = current_term(match["name"], match["value"].split(","))
    return Term(name=name, values=values, negated=match["op"] == "!=")


def meaning(word: str) -> Mapping[str, Values]:
    """Return the options that a word or a term names.

    Raises:
        UserError: it is unknown.
    """
    match = TERM.fullmatch(word)
    if match is not None:
        return {match["name"]: term(match["name"], match["value"].split(","), negated=match["op"] == "!=")}
    plain = word.lower().strip(",").replace("_", "-")
    if plain not in WORDS:
        hint = did_you_mean(plain, WORDS) or "; use words such as qlora, fsdp2, int8 or merge"
        raise UserError(f"{word!r} is neither a known word nor a term such as quant=nf4{hint}")
    return WORDS[plain]


def term(name: str, texts: Iterable[str], *, negated: bool) -> Values:
    try:
        wanted = tuple(parsed(name, text) for text in texts)
        left = tuple(value for value in options.values(name) if value not in wanted) if negated else wanted
    except IllegalError as error:
        hint = "" if name in (*options.names(), *FREE) else did_you_mean(name, (*options.names(), *FREE))
        raise UserError(f"{error}{hint}") from None
    if not left:
        raise UserError(f"{name}!= excludes every value of {name} ({options.listed(options.values(name))}); keep one")
    return left


def possible(query: Query) -> bool:
    """Tell if any legal case can match a query."""
    try:
        check(query)
    except UserError:
        return False
    return True


def check(query: Query) -> None:
    """Check that a query without measured cases is possible at all.

    Raises:
        UserError: no legal case can match it.
    """
    meant = {name: query.plain(name) for name in (*ALWAYS_STATED, *query.named)}
    combinations = (dict(zip(meant, each, strict=True)) for each in product(*meant.values()))
    looked_at = list(islice(map(why_not, combinations), MAX_COMBINATIONS))
    if all(looked_at) and len(looked_at) < MAX_COMBINATIONS:
        raise UserError(f"{query.terms}: {looked_at[0]}")


def why_not(named: Mapping[str, Value]) -> str:
    """Return why no case can have these options; empty if one can."""
    try:
        point = Options().but(**named)
    except IllegalError as error:
        return str(error)
    idle = [name for name in named if name not in point.stated]
    return f"{idle[0]} has no effect with the other options" if idle else ""
