"""Renders the results of ``mutate`` as text and as Markdown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cases.space.plural import counted
from matrix.experiments import mutant_reviews
from matrix.experiments.located_mutants import CHILD, DEEPER, ELSEWHERE, FUNCTION, MADE, OUTSIDE, PLACES, SAME, UNNAMED
from matrix.experiments.mutation_score import (
    KILLED,
    LOST,
    NOT_COVERED,
    NOT_RUN,
    SAME_NUMBERS,
    SAME_VALUES,
    STATUSES,
    SURVIVED,
    UNSEEN,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.experiments.mutation_score import MutantResult, SetScore, Share

WHERE = {
    SAME: "the one with the mutated code",
    MADE: "a part that the mutated constructor makes",
    CHILD: "a module that it calls",
    DEEPER: "inside such a module",
    ELSEWHERE: "elsewhere",
    UNNAMED: "none, as no module is off",
    FUNCTION: "none, but the mutated function is named, which ran outside of modules there",
    OUTSIDE: "any, as the mutated code ran outside of modules",
}
WORDS = {
    UNSEEN: "changed a value that no cell compares",
    SAME_NUMBERS: "changed no number",
    SAME_VALUES: "changed no value",
}
REVIEWS = "## Reviews"


def lines(scores: Sequence[SetScore]) -> Iterator[str]:
    for each in scores:
        yield from of_set(each)


def of_set(each: SetScore) -> Iterator[str]:
    yield each.set
    for title, shares in tables(each):
        yield f"  {title}"
        yield from (f"    {share.name}: {share_words(share)}" for share in shares)
    for survivor in each.of_status(SURVIVED):
        yield from survivor_lines(survivor)
    for unseen in each.of_status(UNSEEN):
        yield f"  unseen: {place(unseen)} changes {', '.join(changed_functions(unseen))}"
    for lost in each.of_status(LOST):
        yield f"  lost: {place(lost)}: {'; '.join(lost.cells[0].noticed)}"
    yield from (f"  not mutable: {name}: {reason}" for name, reason in each.rejected.items())
    yield from (f"  not covered: {place(mutant)}" for mutant in each.of_status(NOT_COVERED))
    yield from generated_lines(each)
    yield from (f"  {line}" for line in (*share_lines(each), *place_lines(each)))
    yield f"  {share_words(each.total)}"


def share_lines(each: SetScore) -> Iterator[str]:
    """How many lines of each part of the stack green cells execute."""
    if each.lines:
        parts = (f"{one.part} {one.executed} of {one.lines} ({one.executed / one.lines:.0%})" for one in each.lines)
        yield f"Lines inside functions that green cells execute: {', '.join(parts)}."


def place_lines(each: SetScore) -> Iterator[str]:
    """How often the first module that was named is one with mutated code, and the mutants for which it is not."""
    total = each.places.total()
    if not total:
        return
    yield f"The module named first, of {counted(total, 'located mutant')}: {place_counts(each.places)}."
    for against in sorted({mutant.located.against for mutant in each.mutants if mutant.located is not None}):
        places = Counter(
            one.located.place for one in each.mutants if one.located is not None and one.located.against == against
        )
        yield f"Of the {places.total()} compared with {against or 'the reference'}: {place_counts(places)}."
    yield from function_lines(each)
    rest = Counter(one.noticed_by for one in each.of_status(KILLED) if one.located is None)
    if rest:
        verdicts = ", ".join(f"{number} with the verdict {verdict}" for verdict, number in sorted(rest.items()))
        yield f"Noticed, and not located: {verdicts}."
    for mutant in each.mutants:
        if mutant.located is not None and mutant.located.place == ELSEWHERE:
            ran_in = ", ".join(mutant.located.ran_in)
            named = f"{mutant.located.kind} {mutant.located.named}".strip()
            yield f"elsewhere: {place(mutant)}: named {named}, the code ran in {ran_in}"


def function_lines(each: SetScore) -> Iterator[str]:
    """How often the function that a location names is the one with the mutated code."""
    named = [one.located for one in each.mutants if one.located is not None and one.located.function]
    if named:
        changed = sum(one.is_changed for one in named)
        yield f"The function named first, of {counted(len(named), 'mutant')} with one: {changed} the mutated one."


def place_counts(places: Counter[str]) -> str:
    return ", ".join(f"{places[name]} {WHERE[name]}" for name in PLACES if places[name])


def generated_lines(each: SetScore) -> Iterator[str]:
    for row in each.generated:
        share = f"{row['covered']} of {row['generated']} possible mutants are in code that a green cell executes"
        yield f"  {row['package']}: {share}; {row['import_time_statements']} statements run at import, not mutable"


def tables(each: SetScore) -> list[tuple[str, list[Share]]]:
    return [
        ("by package", each.shares(lambda mutant: mutant.package)),
        ("by file", each.shares(lambda mutant: mutant.file)),
        ("by kind", each.shares(lambda mutant: mutant.kind)),
    ]


def share_words(share: Share) -> str:
    others = [
        f"{share.counts[status]} {WORDS.get(status, status)}"
        for status in (UNSEEN, SAME_NUMBERS, SAME_VALUES, NOT_COVERED, LOST, NOT_RUN)
        if share.counts[status]
    ]
    percent = "" if share.score is None else f" ({share.score:.0%})"
    killed = f"{share.counts[KILLED]} of {counted(share.judged, 'mutant')} killed{percent}"
    return ", ".join([killed, *others])


def survivor_lines(survivor: MutantResult) -> Iterator[str]:
    yield f"  survived: {place(survivor)} ({survivor.mutant.kind})"
    yield from (f"      {line}" for line in survivor.diff.splitlines())
    yield f"      in {', '.join(cell.case for cell in survivor.cells)}"


def changed_functions(unseen: MutantResult) -> dict[str, None]:
    """The functions that first have another value in its cells."""
    return dict.fromkeys(cell.changes for cell in unseen.cells if cell.changes)


def place(result: MutantResult) -> str:
    mutant = result.mutant
    return f"{mutant.name or mutant.id} {mutant.file}:{mutant.line} {mutant.where}"


def markdown(scores: Sequence[SetScore]) -> str:
    return "\n".join(line for each in scores for line in markdown_of_set(each)) + "\n"


def markdown_of_set(each: SetScore) -> Iterator[str]:
    yield from (f"# Mutation score: {each.set}", "", f"{share_words(each.total)}.", "")
    for title, shares in tables(each):
        yield f"| {title.removeprefix('by ')} | {' | '.join(STATUSES)} | score |"
        yield "| --- |" + " ---: |" * (len(STATUSES) + 1)
        for share in [*shares, each.total]:
            cells = (str(share.counts[status]) for status in STATUSES)
            yield f"| {share.name} | {' | '.join(cells)} | {'' if share.score is None else f'{share.score:.0%}'} |"
        yield ""
    for line in (*share_lines(each), *place_lines(each)):
        yield from (line, "")
    survivors = each.of_status(SURVIVED)
    if survivors:
        yield from ("## Survivors", "")
    for survivor in survivors:
        yield f"`{survivor.mutant.file}:{survivor.mutant.line}` {survivor.mutant.where} ({survivor.mutant.kind})"
        cases = ", ".join(f"`{cell.case}`" for cell in survivor.cells)
        yield from ("", "```diff", survivor.diff, "```", "", f"Green: {cases}", "")
    yield from unseen_lines(each)


def unseen_lines(each: SetScore) -> Iterator[str]:
    unseen = each.of_status(UNSEEN)
    if unseen:
        yield from ("## Values that no cell compares", "")
    for one in unseen:
        functions = ", ".join(f"`{name}`" for name in changed_functions(one))
        yield f"* `{one.mutant.file}:{one.mutant.line}` {one.mutant.where} ({one.mutant.kind}) changes {functions}"
    if unseen:
        yield ""


def with_reviews(page: str, document: Mapping[str, Any]) -> str:
    """The page with what the reviews say, in place of what an earlier version of it said."""
    before = page.partition(f"\n{REVIEWS}")[0].rstrip("\n")
    return "\n".join([before, "", REVIEWS, "", *review_lines(document)]) + "\n"


def review_lines(document: Mapping[str, Any]) -> Iterator[str]:
    for each in document["sets"]:
        if "reviewed" in each:
            yield from review_of_set(each)


def review_of_set(each: Mapping[str, Any]) -> Iterator[str]:
    """What a reader said about mutants that no cell noticed; every one that the cells should have noticed."""
    counts = each["reviewed"]
    classes = ", ".join(f"{counts[name.replace(' ', '_')]} {name}" for name in mutant_reviews.CLASSES)
    yield f"{each['set']}: {counts['mutants']} mutants that no cell noticed were read: {classes}."
    share = f"{counts['estimated_score']:.0%} of the mutants that matter are killed"
    yield f"If the others are like these, {share}. A survivor that nobody read counts as missed."
    yield ""
    for mutant in each["mutants"]:
        if mutant.get("review", {}).get("class") == mutant_reviews.MISSED:
            yield f"* `{mutant['file']}:{mutant['line']}` {mutant['function']}: {mutant['review']['why']}"
    yield ""
