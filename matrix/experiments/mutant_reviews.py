"""Reviews of mutants that no cell noticed: what a reader of the code says about each.

A mutant that changes no compared number may be harmless, or be one that the cells miss. Only reading tells. A review of
a random part of them gives an estimate of the share that is missed.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from matrix.errors import UserError
from matrix.experiments.mutant_sample import HAND_WRITTEN
from matrix.experiments.mutation_score import SAME_NUMBERS, SAME_VALUES, SURVIVED, UNSEEN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MISSED: Final = "missed"  # an ordinary job gives other numbers, files or an error, and no cell that ran shows it
CLASSES: Final = (
    MISSED,
    "equivalent",  # no input makes it behave differently
    "no numbers",  # it changes speed, memory, messages, or the refusal of bad input
    "unreachable",  # no job of fine-tuning reaches it on this kind of machine
)
KEYS: Final = ("id", "class", "why")
UNNOTICED: Final = (SURVIVED, UNSEEN, SAME_NUMBERS, SAME_VALUES)


def read(path: Path) -> list[dict[str, Any]]:
    """The reviews of a file: a JSON list of objects with ``id``, ``class`` and ``why``.

    Raises:
        UserError: the file is no such list.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--reviews {path}: {error}") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) and set(KEYS) <= each.keys() for each in found):
        raise UserError(f"--reviews {path}: expected a JSON list of objects with {', '.join(KEYS)}")
    for each in found:
        if each["class"] not in CLASSES:
            raise UserError(f"--reviews {path}: {each['id']}: class {each['class']!r} is none of {', '.join(CLASSES)}")
    return found


def add(document: dict[str, Any], reviews: Sequence[Mapping[str, Any]]) -> None:
    """Add reviews to the mutants of a document, and to each of its sets what they estimate.

    Raises:
        UserError: no set of the document has one of the mutants, or a cell killed it.
    """
    known = {mutant["id"]: mutant for each in document["sets"] for mutant in each["mutants"]}
    for review in reviews:
        mutant = known.get(str(review["id"]))
        if mutant is None or mutant["status"] not in UNNOTICED:
            raise UserError(f"--reviews: {review['id']} is not among the mutants that no cell noticed")
        mutant["review"] = {"class": review["class"], "why": review["why"]}
    for each in document["sets"]:
        if any("review" in mutant for mutant in each["mutants"]):
            each["reviewed"] = summary(each)


def summary(of_set: Mapping[str, Any]) -> dict[str, Any]:
    """The number of reviews by class, and the share of killed mutants if the other mutants are like those reviewed.

    A survivor without a review counts as missed: it changed numbers.
    """
    reviewed = {status: Counter[str]() for status in UNNOTICED}
    for mutant in of_set["mutants"]:
        if "review" in mutant:
            reviewed[mutant["status"]][mutant["review"]["class"]] += 1
    total = of_set["total"]
    missed = total["survived"] - reviewed[SURVIVED].total() + reviewed[SURVIVED][MISSED]
    for status in (UNSEEN, SAME_NUMBERS, SAME_VALUES):
        if (classes := reviewed[status]).total():
            missed += total.get(status.replace(" ", "_"), 0) * classes[MISSED] / classes.total()
    counts = sum(reviewed.values(), Counter[str]())
    return {
        "mutants": counts.total(),
        **{name.replace(" ", "_"): counts[name] for name in CLASSES},
        "estimated_score": round(total["killed"] / (total["killed"] + missed), 4) if total["killed"] else 0.0,
    }


def results(path: Path, option: str) -> dict[str, Any]:
    """The document of a mutation run, which is compressed where it is published.

    Raises:
        UserError: the file cannot be read, or is no such document; the text names the option.
    """
    try:
        content = path.read_bytes()
        document: dict[str, Any] = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
        if all("id" in mutant and "status" in mutant for of_set in document["sets"] for mutant in of_set["mutants"]):
            return document
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{option} {path} is no mutation.json: {error}") from None
    raise UserError(f"{option} {path} is no mutation.json: a mutant lacks its id or status")


def drawn_results(path: Path, option: str) -> dict[str, Any]:
    """The document of a run of drawn mutants, which their ids identify.

    Raises:
        UserError: it is no such document, or its mutants are hand-written: their diffs lack the lines around them.
    """
    document = results(path, option)
    kinds = {mutant.get("kind") for of_set in document["sets"] for mutant in of_set["mutants"]}
    if HAND_WRITTEN in kinds:
        raise UserError(f"{option} {path} has hand-written mutants; run those that no cell noticed with --mutants")
    return document


def to_run_again(document: Mapping[str, Any], key: str) -> set[str]:
    """The ids of the mutants of a set that no cell noticed, without those that a review calls harmless."""
    mutants = [each for of_set in document["sets"] if of_set["set"] == key for each in of_set["mutants"]]
    return {
        each["id"]
        for each in mutants
        if each["status"] in UNNOTICED and each.get("review", {}).get("class", MISSED) == MISSED
    }
