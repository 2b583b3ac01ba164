"""Answers for a keyword that a class rejects because a function passed it on, or that a user's class inherited."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from matrix.api_map.columns import LINE_BREAK
from matrix.api_map.lookup import classes_with, paths_of
from reports.answers.api.name_description import described, differs
from reports.answers.api.user_classes import usual_bases

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.api_map.query import Having
    from reports.answers.api.name_answer import NameAnswer, NameQuestion

WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
LIKENESS: Final = 2  # words that the names of a user's class and of its base share at least


def of_passed_on(question: NameQuestion) -> NameAnswer | None:
    """Answer for a keyword of a constructor, given that no release of its class has it."""
    owner, _, method = question.missing.owner.rpartition(".")
    if method != "__init__" or not owner:
        return None
    paths = list(paths_of(question.api, owner, question.user_packages))
    bases = () if paths else usual_bases(owner)
    inherited = (question.api.having(f"{base}({question.missing.name})", question.versions) for base in bases)
    candidates = (*inherited, *loading(paths or bases, question), *passing(paths, question))
    for each in (*candidates, *(() if paths else alike(owner, question))):
        if differs(each, question):
            return described(each.path, each, question)
    return None


def loading(paths: Sequence[str], question: NameQuestion) -> Iterator[Having]:
    """Yield the ``from_pretrained`` that takes the keyword in some releases, and in others passes it on."""
    for path in paths:
        yield question.api.having(f"{path}.from_pretrained({question.missing.name})", question.versions)


def passing(paths: list[str], question: NameQuestion) -> Iterator[Having]:
    """Yield the exported functions of the class's package that state the keyword in some releases only.

    The newest release must take any keyword and pass it on, as ``datasets.load_dataset_builder`` does
    ``trust_remote_code``.
    Models are built by ``from_pretrained``.
    """
    api = question.api
    name = re.escape(question.missing.name)
    pattern = rf"(?:^|{LINE_BREAK}){name}(?:=|{LINE_BREAK}|$)"
    classes = (path for path in paths if path.count(".") == 1 and not api.having(f"{path}.forward").known)
    for package in dict.fromkeys(path.partition(".")[0] for path in classes):
        rows = api.tables[package].name_table.matching("detail", pattern, ("function",))
        exported = dict.fromkeys(row[1] for row in rows if api.tables[package].names(package).get(row[1]))
        for function in sorted(exported, key=len):
            path, newest = f"{package}.{function}", api.versions(package)[-1]
            found = api.having(f"{path}({question.missing.name})", question.versions)
            if newest in found.unknown and newest in api.having(path).versions:
                yield found


def alike(owner: str, question: NameQuestion) -> Iterator[Having]:
    """Yield the fields of the exported classes whose names share the most words with that of a user's class."""
    api = question.api
    words = set(WORDS.findall(owner))
    classes = {
        path.rpartition(".")[0] for path in classes_with(api, question.missing.name, ("trl", "peft", "accelerate"))
    }
    likeness = {path: len(words & set(WORDS.findall(path.rpartition(".")[2]))) for path in classes}
    best = max(likeness.values(), default=0)
    if best >= LIKENESS:
        for path in sorted(path for path, shared in likeness.items() if shared == best):
            yield api.having(f"{path}({question.missing.name})", question.versions)
