"""Says in a sentence what moving a package changes in its API, for bisections, comparisons and checkups."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from matrix.api_map.changes import of_package
from matrix.versions.moved_packages import moved_packages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from matrix.api_map.changes import ChangedDefault
    from matrix.api_map.query import ApiMap
    from matrix.versions.moved_packages import MovedPackage
    from reports.answers.checkup.doctor import Checkup
    from reports.answers.diff.changes import SetPair

EXAMPLES: Final = 3
WORD: Final = re.compile(r"\w+")
MOST_DEFAULTS: Final = 6
# What a job's configuration fills in, whatever its trainer.
OF_ANY_JOB: Final = frozenset(
    {"TrainingArguments", "LoraConfig", "BitsAndBytesConfig", "Accelerator", "get_peft_model"}
)


def sentence(api: ApiMap, moved: MovedPackage, *, failure: str = "") -> str:
    """Return what is gone and which defaults changed, with examples; empty if nothing, or for unknown releases.

    The examples begin with those that the text of a failure mentions.
    """
    if api.place(moved.name, moved.old) is None or api.place(moved.name, moved.new) is None:
        return ""
    found = of_package(api, moved.name, moved.old, moved.new)
    parts = []
    if found.removed:
        gone = counted(len(found.removed), "name or parameter", "names or parameters")
        parts.append(f"{gone} gone, e.g. {', '.join(mentioned_first(found.removed, failure)[:EXAMPLES])}")
    if found.defaults:
        changed = ", ".join(map(default_words, found.defaults[:EXAMPLES]))
        parts.append(f"{counted(len(found.defaults), 'changed default')}, e.g. {changed}")
    every = f"; all: `ftmatrix map changes {moved.name} {moved.old} {moved.new}`"
    return f"API of {moved.name} {moved.old} -> {moved.new}: {'; '.join(parts)}{every}" if parts else ""


def mentioned_first(paths: Iterable[str], text: str) -> list[str]:
    """Return paths such as ``trl.GRPOTrainer(tokenizer)``; those whose last name a text has come first."""
    words = {*WORD.findall(text)}
    return sorted(paths, key=lambda path: WORD.findall(path)[-1] not in words)


def default_words(changed: ChangedDefault) -> str:
    return f"{changed.path.rpartition('.')[2]}({changed.parameter}): {changed.old} -> {changed.new}"


def defaults_of_job(api: ApiMap, moved: MovedPackage, *, trainer: str, stated: Collection[str]) -> Iterator[str]:
    """Yield the changed defaults that a job relies on: of the classes it fills in, without fields that it states.

    ``trainer`` is the name of its trainer, such as ``SFTTrainer``; empty if it is not known.
    """
    if api.place(moved.name, moved.old) is None or api.place(moved.name, moved.new) is None:
        return
    stem = trainer.removesuffix("Trainer")
    classes = OF_ANY_JOB | ({f"{stem}Config", trainer} if stem else set())
    found = of_package(api, moved.name, moved.old, moved.new)
    relevant = [
        each for each in found.defaults if each.path.rpartition(".")[2] in classes and each.parameter not in stated
    ]
    for each in relevant[:MOST_DEFAULTS]:
        yield default_words(each)


def with_changed_defaults(checkup: Checkup, api: ApiMap) -> Checkup:
    """Return a checkup with the defaults that its move to other versions changes for the job."""
    if checkup.pins is None or checkup.job is None:
        return checkup
    versions = checkup.installed.versions
    old = {name: versions[name] for name in checkup.pins.moves if name in versions}
    new = {name: version for name, version in checkup.pins.moves.items() if name in versions}
    stated = {*checkup.job.arguments, *(key for each in checkup.job.configs for key in each.values)}
    found = (
        words
        for moved in moved_packages(old, new)
        for words in defaults_of_job(api, moved, trainer=checkup.job.trainer, stated=stated)
    )
    return replace(checkup, changed_defaults=tuple(found))


def with_sentences(pairs: Iterable[SetPair], api: ApiMap) -> tuple[SetPair, ...]:
    """Return pairs of sets with what the moves of the stack change in its API."""
    return tuple(
        replace(pair, api=tuple(filter(None, (sentence(api, each) for each in pair.moves if each.is_of_stack))))
        for pair in pairs
    )
