"""Draws ``published_errors.md``: silent errors that papers collected, and the faults that repeat them here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.space.plural import counted
from matrix.known.published_errors import KnownBy
from reports.render.known_page import linked
from reports.render.markdown import code, table, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.known.published_errors import Publication, PublishedError, PublishedErrors

INTRODUCTION = (
    "Each error that can occur in this stack is a [fault](../../cases/injection/published_faults.py) that `ftmatrix "
    "selfcheck` injects into cells which are green without it. It is caught if all of them become wrong: nothing is "
    "raised, and a check fails. The cells were chosen together with the faults. A fault has the effect of the "
    "published error, not its cause."
)
Faults = dict[str, dict[str, Any]]  # of a set's results, by name
KNOWN = {KnownBy.LISTED: "", KnownBy.OPENED: " (opened by the authors)", KnownBy.MATCHED: " (our match)"}


def markdown(errors: PublishedErrors, document: Mapping[str, Any]) -> str:
    """Return the page for the results of a selfcheck, a document of ``selfcheck --json``."""
    sections = [
        "# Silent errors that papers collected",
        INTRODUCTION,
        measured(document),
        *(part for each in errors.source for part in section(each, errors.of(each), document)),
    ]
    return "\n\n".join(sections) + "\n"


def measured(document: Mapping[str, Any]) -> str:
    sets = ", ".join(code(each["set"]) for each in document["sets"])
    return f"Measured on {sets}: {text(document['hardware'])}, {document['started'][:10]}."


def section(source: Publication, errors: Sequence[PublishedError], document: Mapping[str, Any]) -> Iterator[str]:
    inside = [each for each in errors if each.faults]
    yield f"## {text(source.name)}"
    yield (
        f"[{text(source.name)}]({source.link}): {text(source.about)}. Read on {source.on}: {text(source.read)} "
        + (f"Not read: {text(source.unread)} " if source.unread else "")
        + f"{counted(len(errors), 'row')}: {len(inside)} can occur in this stack, {len(errors) - len(inside)} cannot."
    )
    for each in document["sets"]:
        results = {fault["name"]: fault for fault in each["faults"]}
        caught = sum(is_caught(error, results) for error in inside)
        yield f"On {code(each['set'])}, the checks catch {caught} of {counted(len(inside), 'error')}."
        yield table(("error", "what goes wrong", "fault here", "result"), [row(error, results) for error in inside])
    if len(inside) < len(errors):
        yield "Outside this stack:"
        rest = [each for each in errors if each.outside]
        yield table(("error", "what goes wrong", "why not here"), [(*named(e), text(e.outside)) for e in rest])


def named(error: PublishedError) -> tuple[str, str]:
    return f"{text(error.id)}: {linked(error.link)}{KNOWN[error.known]}", text(error.does)


def row(error: PublishedError, results: Faults) -> tuple[str, ...]:
    return (*named(error), "<br>".join(map(code, error.faults)), "<br>".join(result(f, results) for f in error.faults))


def is_caught(error: PublishedError, results: Faults) -> bool:
    return all(name in results and results[name]["caught"] for name in error.faults)


def result(name: str, results: Faults) -> str:
    """The cells that caught a fault, with the first check that each missed."""
    if name not in results:
        return "not injected"
    cells = results[name]["cells"]
    by = ", ".join(dict.fromkeys(text(cell["caught_by"][0]) for cell in cells if cell["caught"] and cell["caught_by"]))
    count = f"{sum(cell['caught'] for cell in cells)} of {counted(len(cells), 'cell')}"
    return f"**{'caught' if results[name]['caught'] else 'MISSED'}** in {count}" + (f", by {by}" if by else "")
