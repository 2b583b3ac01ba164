"""Reads a question in a user's words, such as ``can I use 4-bit LoRA with two GPUs on torch 2.8?``.

A text of words and terms alone is a query. In any other text, words that carry no feature are ignored; hardware,
versions, models and subjects without results are recognised, and nothing else is dropped without a note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from matrix.errors import UserError
from matrix.run.plan import TERM
from reports.answers.support.fillers import FILLERS
from reports.answers.support.hardware import found_hardware, hardware_notes, number, unsupported
from reports.answers.support.mentioned_versions import BARE, found_versions
from reports.answers.support.model_names import found_models
from reports.answers.support.phrases import MULTI, PHRASES
from reports.answers.support.query import Query, check, meaning, parse
from reports.answers.support.requirements import reading, requirement
from reports.answers.support.subjects import found_subjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from packaging.requirements import Requirement

    from reports.answers.support.hardware import FoundHardware
    from reports.answers.support.mentioned_versions import FoundVersions
    from reports.answers.support.model_names import FoundModels
    from reports.answers.support.query import Values
    from reports.answers.support.subjects import Subject
    from reports.results.grid import Grid

RANKS: Final = (1, 2, 4)  # that cases run with
ALTERNATIVES: Final = frozenset({"or", "vs", "vs.", "versus", "/"})
NEGATIONS: Final = frozenset({"without", "no"})  # not "not", which prose has for much else
VARIANTS: Final = frozenset({"dora", "rslora", "pissa", "olora", "loftq", "adalora", "qdora"})
GPU_COUNT: Final = re.compile(
    r"(?<![\w.])(?P<count>\d{1,2}|two|dual|four|eight)(?: ?[x*\u00d7] ?|[ -])(?:gpus?|cards?|devices?)\b"
)
MEMORY: Final = re.compile(r"(?<![\w.])\d+ ?(?:gb?|gib|gigs?|gigabytes?)(?: (?:of )?(?:v?ram|memory))?\b")
LENGTH: Final = re.compile(r"(?<![\w.])\d+k?(?: |-)?(?:tokens?|context|seq\w*)(?: (?:length|window))?|(?<![\w.])\d+k\b")
TUNING: Final = re.compile(
    r"(?<!\w)(?:(?:lora_)?r|lora_alpha|alpha|rank|lr|learning[ _]rate|batch[ _]size|per_device_train_batch_size"
    r"|epochs?|max_seq_length|max_length|lora_dropout|dropout)(?: ?[=:] ?| (?:of )?)[\d.e-]+"
)
SIZES: Final = "sizes are not measured: cases use tiny models"
VERSIONS_ALONE: Final = "these versions"
NO_FEATURE: Final = "no feature named: the answer is for LoRA in one process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question as queries, with the versions to respect and the device that its hardware implies (empty: any).

    ``apart`` are subjects with cases of their own. ``not_measured`` are those without any result; an answer with such
    is incomplete. ``notes`` are sentences for the user.
    """

    queries: tuple[Query, ...]
    have: tuple[Requirement, ...] = ()
    device: str = ""
    apart: tuple[Subject, ...] = ()
    not_measured: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def renamings(self) -> tuple[str, ...]:
        return tuple(each for query in self.queries for each in query.renamings)

    def with_results(self, grids: Mapping[str, Grid]) -> Question:
        """Return the question with a query for each subject that has cases; other subjects are not measured."""
        cases = {case for grid in grids.values() for case in grid.cases}
        measured = [each for each in self.apart if any(matches(case, each.cases) for case in cases)]
        missing = [each.name for each in self.apart if each not in measured]
        joined = [*(each.name for each in measured), *(query.text for query in self.queries)]
        together = [" together with ".join(joined)] if measured and len(joined) > 1 else []
        alone = tuple(parse(f"case={each.cases}") for each in measured)
        not_measured = (*self.not_measured, *missing, *together)
        rest = self.queries if not not_measured else tuple(each for each in self.queries if is_possible(each))
        return replace(self, queries=(*alone, *rest), apart=(), not_measured=not_measured)


def matches(case: str, pattern: str) -> bool:
    return case == pattern or (pattern.endswith("*") and case.startswith(pattern[:-1]))


def is_possible(query: Query) -> bool:
    try:
        check(query)
    except UserError:
        return False
    return True


def combined(questions: Sequence[Question]) -> Question:
    """Return several questions as one: all of their queries, on the first device that one implies."""
    return Question(
        queries=tuple(query for each in questions for query in each.queries),
        have=tuple(wanted for each in questions for wanted in each.have),
        device=next((each.device for each in questions if each.device), ""),
        apart=tuple(dict.fromkeys(subject for each in questions for subject in each.apart)),
        not_measured=tuple(dict.fromkeys(name for each in questions for name in each.not_measured)),
        notes=tuple(dict.fromkeys(note for each in questions for note in each.notes)),
    )


def asked(texts: Sequence[str], have: Sequence[str], device: str) -> Question:
    """Return the question of a command line: its texts, the versions of ``--have``, and ``--device``.

    Raises:
        UserError: a text or a version cannot be read, or words contradict each other.
    """
    given = Question(
        queries=(), have=tuple(map(requirement, have)), notes=tuple(note for each in have if (note := reading(each)))
    )
    question = combined([*map(read, texts), given])
    if question.device and device not in (question.device, "auto"):
        note = f"--device {device}: the question implies {question.device}"
        return replace(question, notes=(*question.notes, note))
    return question


def read(text: str) -> Question:
    """Read a question, or a query of words and terms.

    Raises:
        UserError: a word is unknown, or two contradict each other.
    """
    try:
        return Question(queries=(parse(text),))
    except UserError:
        if not text.strip():
            raise
    return read_prose(text)


def read_prose(text: str) -> Question:
    """Read a question that is not a query of words and terms.

    Raises:
        UserError: a word is unknown, or two contradict each other.
    """
    versions = found_versions(plain(text))
    subjects = found_subjects(versions.rest)
    models = found_models(subjects.rest)
    rest, memory = MEMORY.subn(" ", models.rest)
    rest, lengths = LENGTH.subn(" ", rest)
    tuning = [match[0] for match in TUNING.finditer(rest)]
    bare = [f"version {match[0]} (of no package of the sets)" for match in BARE.finditer(TUNING.sub(" ", rest))]
    hardware = found_hardware(" ".join(BARE.sub(" ", TUNING.sub(" ", rest)).split()))
    words, ranks = words_of(hardware, models)
    if not words and versions.asked and not versions.have and subjects.not_measured + subjects.apart:
        versions = replace(versions, asked=False)
    notes = [*other_notes(versions, tuning), *([SIZES] if models.has_size or memory or lengths else [])]
    not_measured = [*subjects.not_measured, *hardware.not_measured, *models.not_measured, *bare]
    not_measured += [f"{ranks} GPUs" for _ in range(ranks not in (0, *RANKS))]
    if not words and not subjects.apart and not not_measured:
        if not (versions.asked or versions.have or hardware.device):
            raise UserError(f"{text!r} names no feature; give words such as 'qlora fsdp2' or terms such as 'quant=nf4'")
        words = ["lora"]
        notes.append(NO_FEATURE)
    queries = queries_of(words)
    bf16, flash = names_value(queries, "bf16"), names_value(queries, "flash_attention_2")
    notes[:0] = [note for each in hardware.gpus for note in hardware_notes(each, bf16=bf16)]
    not_measured += [what for each in hardware.gpus for what in unsupported(each, bf16=bf16, flash=flash)]
    return Question(
        queries=queries,
        have=tuple(map(requirement, versions.have)),
        device=device_of(hardware, plain(text)),
        apart=subjects.apart,
        not_measured=tuple(dict.fromkeys(not_measured)),
        notes=tuple(dict.fromkeys(notes)),
    )


def plain(text: str) -> str:
    """Return a text in lower case, with plain hyphens and quotes and single blanks."""
    text = re.sub(r"[\u2010-\u2015]", "-", text.lower()).replace("\u2019", "'")
    return re.sub(r"\s+", " ", re.sub(r"[?;]|(?<!\w)[\"'(]|[\"')](?!\w)|[,.:!](?= |$)", " ", text)).strip()


def words_of(hardware: FoundHardware, models: FoundModels) -> tuple[list[str], int]:
    """Return the words of the vocabulary in the rest of a text, and the number of GPUs (0: none named).

    Raises:
        UserError: words are unknown.
    """
    counts = [number(match["count"]) for match in GPU_COUNT.finditer(hardware.rest)]
    ranks = max([*counts, hardware.count])
    rest = GPU_COUNT.sub(" gpu ", hardware.rest) if ranks > 1 else hardware.rest
    for expression, replacement in PHRASES:
        rest = expression.sub(f" {replacement} ", rest)
    words = spoken(rest.split())
    words += [f"model={','.join(models.models)}"] if models.models else []
    if ranks > 1:
        words += [f"world_size={ranks}"] if ranks in RANKS else []
        words += [] if any("strategy" in meaning(word) for word in words) else [MULTI]
    return words, ranks


def spoken(tokens: Sequence[str]) -> list[str]:
    """Return the words that name a feature, with ``or`` and ``without`` applied.

    Raises:
        UserError: words are unknown.
    """
    words: list[str] = []
    unknown: list[str] = []
    joins = negates = False
    for token in tokens:
        word = token.strip(",.:!+&|/()'\"")
        if token in ALTERNATIVES or token in NEGATIONS:
            joins, negates = token in ALTERNATIVES, token in NEGATIONS
            continue
        for part in [word] if "=" in word else [each for each in re.split(r"[/+&]", word) if each]:
            if part.replace("_", "-") in FILLERS or re.fullmatch(r"-*", part):
                continue
            try:
                named = meaning(part)
            except UserError as error:
                if TERM.fullmatch(part):
                    raise
                unknown.append(f"{error}")
                continue
            if negates:
                words.append(" ".join(negated(named)))
            elif joins and words and (either := united(words[-1], named)):
                words[-1] = either
            else:
                words.append(part)
            joins = negates = False
    if unknown:
        raise UserError(unknown[0])
    return without_general(list(dict.fromkeys(word for word in words if word)))


def negated(named: Mapping[str, Values]) -> Iterable[str]:
    """Return the terms that exclude a feature."""
    for name, values in named.items():
        yield f"{name}!={','.join(map(str, values))}"


def united(before: str, named: Mapping[str, Values]) -> str:
    """Return a term for ``A or B``; empty if they name different options."""
    earlier = meaning(before)
    if len(earlier) != 1 or earlier.keys() != named.keys():
        return ""
    ((name, values),) = named.items()
    return f"{name}={','.join(dict.fromkeys(map(str, (*earlier[name], *values))))}"


def without_general(words: list[str]) -> list[str]:
    """Drop what another word says more precisely: LoRA beside a variant, and loading or training beside a feature."""
    if VARIANTS & set(words):
        words = [word for word in words if word != "lora"]
    features = [word for word in words if word not in ("train", "load")]
    return features or [word for word in words if word == "load"]


def queries_of(words: Sequence[str]) -> tuple[Query, ...]:
    """Return one query, or one for each flow if the words name several.

    Raises:
        UserError: two words contradict each other.
    """
    flows = [word for word in words if "=" not in word and set(meaning(word)) == {"flow"}]
    if len({str(meaning(word)) for word in flows}) <= 1:
        return (parse(" ".join(words)),) if words else ()
    rest = [word for word in words if word not in flows]
    return tuple(parse(" ".join([*rest, flow])) for flow in flows)


def device_of(hardware: FoundHardware, text: str) -> str:
    """Return the device that a text implies; a GPU if it names both."""
    if hardware.device:
        return hardware.device
    if re.search(r"\b(?:gpus?|cuda|nccl)\b", text):
        return "cuda"
    return "cpu" if re.search(r"\bcpus?\b(?![ _-]?(?:off|ram))", text) and "offload" not in text else ""


def names_value(queries: Iterable[Query], value: str) -> bool:
    return any(value in values for each in queries for values in each.named.values())


def other_notes(versions: FoundVersions, tuning: Sequence[str]) -> list[str]:
    read = [str(requirement(each)) for each in versions.have]
    return [
        *([f"versions respected: {', '.join(read)}"] if read else []),
        *(f"{each}: not compared; every set states its Python and its build of torch" for each in versions.others),
        *(f"{each}: the results do not vary it" for each in tuning),
    ]
