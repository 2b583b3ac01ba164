"""Draws ``matrix.md``, ``devices.md``, and the excerpt of the matrix in the README."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from matrix.keys import CellKey
from reports.answers.known_problems import ran
from reports.render.text.devices_text import (
    CAUTION,
    NOTHING,
    PAIR,
    causes,
    counts,
    distance,
    hardware,
    headlines,
    left_out,
    shown,
)
from reports.render.text.devices_text import notes as notes_of
from reports.render.text.devices_text import summary as summed
from reports.render.text.devices_text import versions as near
from reports.render.text.recommend_text import how, none_of
from reports.render.text.support_text import short
from reports.results.comparison import DifferenceKind
from reports.results.grid import NOT_RUN
from reports.results.known_results import address
from reports.results.verdict_style import LOOKS, UNKNOWN, look
from reports.results.wording import again, device, machine, plain, rates, torch_builds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from cases.space.verdict import Verdict
    from matrix.run.outcome import RunRecord
    from reports.answers.diagnosis.signatures import Signature
    from reports.answers.known_problems import ReproducedProblem
    from reports.answers.overview import Overview
    from reports.answers.support.recommend import Recommendation, UsualJob
    from reports.results.comparison import ComparedSets, Comparison, DeviceResult, Difference
    from reports.results.grid import CaseFailure, Grid

SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~&])")
VERDICTS: Final = (*LOOKS, None)
DIFFERENCE: Final = ("case", "on the CPU", "on GPUs", "sets", "nearness", "notes")
CPU_WARNING: Final = "> **These are CPU results** (gloo instead of NCCL, no CUDA kernels). GPU results may differ."
SHARED_WARNING: Final = (
    "> **All ranks of a cell shared one GPU** (gloo instead of NCCL). Results with a GPU for each rank may differ."
)


def markdown(record: RunRecord, matrix: Grid, known: Overview, *, generated: datetime) -> str:
    sections = [
        heading(record, generated),
        summary(matrix),
        *recommended(known),
        "## Version sets",
        versions(matrix),
        *notes(matrix),
        "## Matrix",
        legend(),
        *(f"### {text(group.name)}\n\n{signs(matrix, group.cases, keys(matrix))}" for group in matrix.groups),
        *red(known),
        *flaky(matrix),
        *differing(known.devices),
        *supported(known),
        *problems(known.problems),
        *skipped(matrix),
        rerun(matrix),
    ]
    return "\n\n".join(sections) + "\n"


def excerpt(matrix: Grid, *, cases: Sequence[str], sets: Sequence[str]) -> str:
    """Return a compact table of chosen cases and sets, with a legend of its verdicts."""
    cells = [(case, key) for case in cases for key in sets if matrix.belongs(case, key)]
    seen = [verdict for verdict in VERDICTS if any(matrix.verdict(*cell) is verdict for cell in cells)]
    return f"{signs(matrix, cases, sets)}\n\n{legend(seen)}\n"


def heading(record: RunRecord, generated: datetime) -> str:
    facts = table(
        ("", ""),
        [
            ("device", text(device(record))),
            ("hardware", text(machine(record))),
            ("run", f"{record.started:%Y-%m-%d %H:%M}"),
            ("harness", f"ftmatrix {text(record.harness)}"),
        ],
    )
    title = f"# Compatibility matrix, {generated:%Y-%m-%d}, {text(device(record))}"
    return "\n\n".join([title, *warnings(record.device), facts])


def warnings(device: str) -> tuple[str, ...]:
    """Return what a reader must know about results of a device, if anything."""
    return {"cpu": (CPU_WARNING,), "cuda-gloo": (SHARED_WARNING,)}.get(device, ())


def summary(matrix: Grid) -> str:
    counts = matrix.counts()
    verdicts = ", ".join(f"{counts[verdict]} {look(verdict).word}" for verdict in VERDICTS)
    cases, sets = counted(len(matrix.cases), "case"), counted(len(matrix.sets), "set")
    return f"{cases} x {sets} = {counted(counts.total(), 'cell')}: {verdicts}."


def versions(matrix: Grid) -> str:
    builds = torch_builds(matrix.outcomes)
    versions_by_set = {column.key: {**column.pins, **builds.get(column.key, {})} for column in matrix.sets}
    packages = list(dict.fromkeys(name for each in versions_by_set.values() for name in each))
    return table(
        ("set", "python", *packages, "why"),
        [
            (
                code(s.key),
                text(s.python),
                *(text(versions_by_set[s.key].get(name, "")) for name in packages),
                text(s.why),
            )
            for s in matrix.sets
        ],
    )


def recommended(known: Overview) -> Iterator[str]:
    """Yield the set to pin for each usual job, according to this run."""
    if known.recommended:
        yield "## Recommended sets"
        yield table(("job", "set", "how", "shown by", "next best"), [pin(*each) for each in known.recommended])


def pin(usual: UsualJob, recommendation: Recommendation) -> tuple[str, ...]:
    if recommendation.best is None:
        return text(usual.job), text(none_of(recommendation)), "", "", ""
    others = ", ".join(f"{code(each.key)} {text(how(each))}" for each in recommendation.others)
    shown = ", ".join(code(outcome.case) for outcome in recommendation.best.outcomes)
    return text(usual.job), code(recommendation.best.key), text(how(recommendation.best)), shown, others


def supported(known: Overview) -> Iterator[str]:
    """Yield the versions with which usual jobs work."""
    if known.support:
        yield "## Support"
        packages = list(known.support[0].packages)
        rows = [(text(each.job), *(text(short(each.packages[name])) for name in packages)) for each in known.support]
        yield table(("job", *packages), rows)
        yield (
            "From all published results of this kind of device; `ftmatrix can-i-use` prints the details. Versions "
            "between two measured ones with the same result are assumed to have that result."
        )


def notes(matrix: Grid) -> Iterator[str]:
    """Yield the notes on sets: why a set is blocked, and how its run differs."""
    lines = [
        *(f"- {code(key)} is blocked: {code(why)}" for key, why in matrix.blocked.items()),
        *(f"- {code(column.key)}: {text(note)}" for column in matrix.sets for note in column.notes),
    ]
    if lines:
        yield "\n".join(lines)


def legend(verdicts: Iterable[Verdict | None] = VERDICTS) -> str:
    looks = [look(verdict) for verdict in verdicts]
    return " · ".join(f"{code(one.sign)} {one.word}" for one in looks if one is not UNKNOWN) + (
        f" · {code(UNKNOWN.sign)} {NOT_RUN}" if UNKNOWN in looks else ""
    )


def signs(matrix: Grid, cases: Sequence[str], sets: Sequence[str]) -> str:
    return table(
        ("case", *(code(key) for key in sets)),
        [(code(case), *(sign(matrix, case, key) for key in sets)) for case in cases],
        centred=len(sets),
    )


def sign(matrix: Grid, case: str, version_set: str) -> str:
    return look(matrix.verdict(case, version_set)).sign if matrix.belongs(case, version_set) else ""


def red(known: Overview) -> Iterator[str]:
    """Yield the red cells by cause, each with its fix."""
    if known.causes:
        yield "## Red cells: causes and fixes"
        kinds = counted(len(known.causes), "kind")
        yield f"{counted(known.red, 'red cell')} of {kinds}; unexplained: {known.unexplained}."
    for cause in known.causes:
        yield f"### {text(cause.title)} ({len(cause.cells)})"
        if cause.signature is not None:
            yield why(cause.signature)
        shown: set[str] = set()
        yield "\n".join(line for finding in known.findings(cause) for line in failure_lines(finding, known, shown))


def why(signature: Signature) -> str:
    """Return a cause with its threads, and its advice marked as unverified."""
    threads = ", ".join(f"[{text(link)}]({address(link)})" for link in signature.links)
    parts = [
        text(signature.cause),
        f"({signature.kind.words})",
        *([f"Threads: {threads}."] if threads else []),
        *([f"Unverified advice: {text(signature.fix)}"] if signature.fix else []),
    ]
    return " ".join(parts)


def failure_lines(finding: CaseFailure, known: Overview, shown: set[str]) -> Iterator[str]:
    """Yield a failure and its fixes; ``shown`` has the edits that were printed before."""
    phase = f" in {finding.phase.value}" if finding.phase else ""
    shape = look(finding.verdict)
    where = codes(finding.sets)
    yield f"- {shape.sign} {code(finding.case)} on {where}: **{shape.word}**{phase}, {code(finding.headline)}"
    if finding.location:
        yield f"  - {plain(finding.location)}"
    for fix in known.ways(finding):
        on = f" on {codes(fix.sets)}" if fix.sets != finding.sets else ""
        proof = f" ({text(fix.remedy.proof)})" if fix.remedy.proof else ""
        yield f"  - fix{on}: {text(fix.remedy.words)}{proof}"
        edit = known.edits.get(str(CellKey(fix.sets[0], finding.case)), "")
        if edit and edit not in shown:
            shown.add(edit)
            yield from ("", *(f"    {line}".rstrip() for line in ("```diff", *plain(edit).splitlines(), "```")), "")


def codes(keys: Iterable[str]) -> str:
    return ", ".join(code(key) for key in keys)


def flaky(matrix: Grid) -> Iterator[str]:
    """Yield the cells whose repeats disagree, with their rates; the matrix shows the worst verdict of each."""
    if matrix.flaky:
        yield "## Flaky cells"
        yield "\n".join(f"- {code(case)} on {code(key)}: {rates(each)}" for (case, key), each in matrix.flaky.items())


def differences(comparison: Comparison) -> str:
    """Return ``devices.md``: the comparison of all results."""
    return "\n\n".join(["# Where CPU and GPU differ", *(list(differing(comparison))[1:] or [NOTHING])]) + "\n"


def differing(comparison: Comparison) -> Iterator[str]:
    """Yield the differences between a CPU and GPUs, by kind."""
    if not comparison.pairs:
        return
    yield "## CPU and GPU"
    yield f"{text(summed(comparison))} {text(left_out(comparison))}"
    yield f"{text(CAUTION)} Measured: {text(hardware(comparison))}."
    yield table(PAIR, map(pair, comparison.pairs))
    for kind in (kind for kind in DifferenceKind if comparison.of(kind)):
        yield f"### {kind.heading} ({comparison.cells(kind)})"
        yield table(DIFFERENCE, map(difference, comparison.of(kind)))
    if why := causes(comparison):
        yield "### Causes"
        yield "\n".join(f"- {code(name)}: {text(sentence)}" for name, sentence in why.items())


def pair(of: ComparedSets) -> tuple[str, ...]:
    return code(of.gpu), code(of.cpu), text(near(of)), *map(str, counts(of))


def difference(of: Difference) -> tuple[str, ...]:
    sides = zip((of.cpu, of.gpu), headlines(of), strict=True)
    pairs = ", ".join(f"{code(on.gpu)} compared with {code(on.cpu)}" for on in of.sets)
    return code(of.case), *(side(*each) for each in sides), pairs, text(distance(of)), text(notes_of(of))


def side(of: DeviceResult, words: str) -> str:
    headline = f": {code(words)}" if words else ""
    return f"{text(f'{look(of.verdict).sign} {shown(of)}')}{headline}"


def problems(rows: Sequence[ReproducedProblem]) -> Iterator[str]:
    """Yield the known problems that published runs reproduced on the same sets."""
    if rows:
        silent = sum(each.problem.silent for each in rows)
        yield "## Known problems of these sets"
        yield (
            f"{counted(len(rows), 'known problem')} {'was' if len(rows) == 1 else 'were'} reproduced on these sets "
            f"by published runs ({text(ran(rows))}); {silent} raise nothing."
        )
        yield table(("problem", "red", "similar and green"), [problem(each) for each in rows])


def problem(row: ReproducedProblem) -> tuple[str, ...]:
    threads = "".join(f" [{text(link)}]({address(link)})" for link in row.problem.references)
    silent = " **(silent)**" if row.problem.silent else ""
    no_bug = f" ({text(row.problem.no_bug)})" if row.problem.no_bug else ""
    return f"{text(row.problem.title)}{silent}{no_bug}{threads}", where(row.red), where(row.green)


def where(cells: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{code(case)} on {codes(sets)}" for case, sets in cells.items())


def skipped(matrix: Grid) -> Iterator[str]:
    if matrix.skips:
        yield "## Skipped"
        yield table(("cells", "reason"), [(str(count), text(reason)) for reason, count in matrix.skips.items()])


def rerun(matrix: Grid) -> str:
    """Return the command that runs a cell again, for the first red cell if there is one."""
    pairs = [(finding.sets[0], finding.case) for finding in matrix.findings] or [
        (o.set, o.case) for o in matrix.outcomes
    ]
    version_set, case = pairs[0] if pairs else ("SET", "CASE")
    backend = next((column.torch_backend for column in matrix.sets if column.key == version_set), "")
    return (
        f"## Run a cell again\n\n```console\n{again(version_set, case, backend=backend)}\n```\n\n"
        "`--sets` takes a key, or several with commas; `--where` takes options (`quant=nf4`) or `case=`."
    )


def keys(matrix: Grid) -> tuple[str, ...]:
    return tuple(column.key for column in matrix.sets)


def table(head: Sequence[str], body: Iterable[Sequence[str]], *, centred: int = 0) -> str:
    """Return a Markdown table whose last ``centred`` columns are centred."""
    rule = ["---"] * (len(head) - centred) + [":-:"] * centred
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *body))


def one_line(words: str) -> str:
    return " ".join(plain(words).split())


def text(words: str) -> str:
    """Escape words for Markdown, also inside a table."""
    return SPECIAL.sub(r"\\\1", one_line(words))


def code(words: str) -> str:
    """Return a code span: its fence is longer than any run of backticks inside. It is safe in a table."""
    inside = one_line(words).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", inside)), default=0) + 1)
    pad = " " if inside.startswith("`") or inside.endswith("`") else ""
    return f"{fence}{pad}{inside}{pad}{fence}"
