"""The browser explains a log as `ftmatrix explain` does: the same diagnoses, fixes, and dangers of fixes."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tomllib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from playwright.sync_api import expect

from matrix.versions.sets import PACKAGES
from reports.answers import knowledge
from reports.answers.diagnosis import logs, outside, signatures
from reports.answers.diagnosis.diagnose import diagnose
from reports.answers.diagnosis.explain import PublishedEvidence, explain, explain_diagnosis, load_evidence
from reports.answers.diagnosis.symptoms import Symptom
from tests.browser.conftest import visiting
from tests.growing_text import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from matrix.run.outcome import Outcome
    from reports.answers.diagnosis.explain import AdviceVerdict
    from reports.answers.diagnosis.signatures import Signature
    from tests.browser.conftest import Visit

LOGS: Final = Path(__file__).parents[1] / "reports" / "answers" / "diagnosis"
FOLDERS: Final = ("logs", "unrelated", "unrelated_b", "unrelated_c", "unrelated_d")
CHANGED_LOGS: Final = 600
FIXES_PLACE: Final = 6  # in the answer of a diagnosis
LONGEST: Final = 200  # lines of a log before it is changed
EXPLAIN: Final = """async (texts) => {
  const fix = (each) => [each.kind, each.change, each.because, each.device, each.red, each.green, each.measured,
    each.typed, each.options, each.dangers];
  const claim = (each) => [each.says, each.holding, each.holds_on, each.fails_on, each.device];
  const diagnosis = (each) => [each.row.id, each.line, each.confirmed, each.open, each.phase,
    each.narrower.map((other) => [other.row.id, other.assumed]), each.fixes.map(fix), each.claims.map(claim),
    each.needs, each.links, each.dangers];
  const answers = [];
  for (const text of texts) {
    const { diagnoses, versions, outside } = await ftm.diagnosis.explain(text);
    answers.push([diagnoses.map(diagnosis), versions, outside && [outside.id, outside.says, outside.line]]);
  }
  return answers;
}"""


PASTE: Final = """text => {
  const data = new DataTransfer();
  data.setData("text", text);
  document.querySelector(".box").dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, cancelable: true }));
}"""


class RememberedEvidence(PublishedEvidence):
    """Evidence for many logs, which derives the red cells and the claims of a signature once."""

    @cached_property
    def remembered(self) -> dict[tuple[str, str], Any]:
        return {}

    def red(self, row: Signature) -> dict[str, tuple[Outcome, ...]]:
        key = "red", row.id
        if key not in self.remembered:
            self.remembered[key] = super().red(row)
        return self.remembered[key]  # type: ignore[no-any-return]

    def claims(self, row: Signature) -> Iterator[AdviceVerdict]:
        key = "claims", row.id
        if key not in self.remembered:
            self.remembered[key] = tuple(super().claims(row))
        yield from self.remembered[key]


@pytest.fixture(scope="module")
def evidence() -> PublishedEvidence:
    every = load_evidence(signatures.load(), knowledge.PUBLISHED)
    return RememberedEvidence(problems=every.problems, grids=every.grids, remedies=every.remedies, folder=every.folder)


def texts() -> Iterator[tuple[str, str]]:
    """Yield the name of each log, and its text as a user pastes it."""
    for folder in FOLDERS:
        for path in sorted((LOGS / folder).glob("*.txt")):
            yield f"{folder}/{path.name}", path.read_text(encoding="utf-8", errors="replace")
    for name in ("reported.toml", "reported_b.toml"):
        for row in tomllib.loads((LOGS / name).read_text(encoding="utf-8"))["reported"]:
            yield row["id"], row["symptom"]


def as_read(text: str) -> str:
    """Return a text as the command reads it from a file."""
    return logs.distinct_text(io.BytesIO(text.encode("utf-8", "replace")), "pasted")


def answer(text: str, evidence: PublishedEvidence) -> list[Any]:
    """Return what the command finds in a text."""
    read = as_read(text)
    failure = Symptom(text=read, versions=logs.versions(Symptom(text=read).clean))
    found = [explain_diagnosis(each, evidence, failure) for each in diagnose(failure)]
    ended = None if found else outside.end(failure) or outside.foreign_code(failure)
    return [
        [
            [
                each.signature.id,
                each.diagnosis.line,
                list(each.diagnosis.confirmed),
                list(each.diagnosis.open),
                each.phase,
                [[other.signature.id, list(other.assumed)] for other in each.narrower],
                [
                    [
                        *(fix.kind.value, fix.change, fix.because, fix.device, fix.red, list(fix.green), fix.measured),
                        *(list(fix.typed), list(fix.options), list(fix.dangers)),
                    ]
                    for fix in each.fixes
                ],
                [
                    [claim.says, claim.holding.value, list(claim.holds_on), list(claim.fails_on), claim.device]
                    for claim in each.claims
                ],
                list(each.needs),
                list(each.links),
                list(each.dangers),
            ]
            for each in found
        ],
        failure.versions,
        [ended.id, ended.says, ended.line] if ended else None,
    ]


def changed(rows: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield logs that lost lines, or got ranks, versions or lines of other logs: every step of the diagnosis counts."""
    chance = random.Random(0)  # noqa: S311 - the same logs in every run
    for number in range(CHANGED_LOGS):
        (name, text), (_, other) = chance.sample(rows, 2)
        lines, others = text.splitlines()[:LONGEST], other.splitlines()[:LONGEST]
        change = CHANGES[number % len(CHANGES)]
        yield f"{number}: {change.__name__} of {name}", "\n".join(change(lines, others, chance))


def some_lines(lines: list[str], _: list[str], chance: random.Random) -> list[str]:
    return [line for line in lines if chance.randrange(10) < 7]


def ranks(lines: list[str], _: list[str], chance: random.Random) -> list[str]:
    return [f"[rank{chance.randrange(2)}]: {line}" for line in lines]


def inserted(lines: list[str], others: list[str], chance: random.Random) -> list[str]:
    at = chance.randrange(len(lines) + 1)
    return [*lines[:at], *others, *lines[at:]]


def mixed(lines: list[str], others: list[str], _: random.Random) -> list[str]:
    return [each for pair in zip(lines, others, strict=False) for each in pair]


def versions(lines: list[str], _: list[str], chance: random.Random) -> list[str]:
    stated = [f"{each}=={chance.randrange(6)}.{chance.randrange(60)}.{chance.randrange(3)}" for each in PACKAGES]
    return inserted(lines, stated, chance)


def warnings(lines: list[str], others: list[str], chance: random.Random) -> list[str]:
    return inserted(lines, [f"2026-01-02 03:04:05 WARNING {line}" for line in others], chance)


CHANGES: Final = (some_lines, ranks, inserted, mixed, versions, warnings)


def differences(visit: Visit, rows: list[tuple[str, str]], expected: list[Any]) -> dict[str, Any]:
    page = visit.open("error.html")
    found = page.evaluate(EXPLAIN, [text for _, text in rows])
    triples = ((name, got, wanted) for (name, _), got, wanted in zip(rows, found, expected, strict=True))
    return {name: (got, wanted) for name, got, wanted in triples if got != wanted}


def test_all_logs_get_the_answers_of_the_command(visit: Visit, evidence: PublishedEvidence) -> None:
    """Fixes with and without dangers are among the answers, else the comparison would show little."""
    rows = list(texts())
    expected = [answer(text, evidence) for _, text in rows]
    assert len(rows) > 700
    assert differences(visit, rows, expected) == {}
    fixes = [fix for each in expected for explained in each[0] for fix in explained[FIXES_PLACE]]
    assert len([fix for fix in fixes if fix[-1]]) > 20
    assert len([fix for fix in fixes if not fix[-1]]) > 200


def test_changed_logs_get_the_answers_of_the_command(visit: Visit, evidence: PublishedEvidence) -> None:
    rows = list(changed(list(texts())))
    assert differences(visit, rows, [answer(text, evidence) for _, text in rows]) == {}


@pytest.mark.parametrize("name", ["fsdp1-uniform-dtype", "fsdp-integers-require-grad", "peft-needs-hybrid-cache"])
def test_the_evidence_of_one_log_and_of_all_give_the_same_answer(name: str, evidence: PublishedEvidence) -> None:
    """The command loads the evidence of the signatures that it finds, and the tests above that of all."""
    text = as_read((LOGS / "logs" / f"{name}.txt").read_text(encoding="utf-8"))
    failure = Symptom(text=text, versions=logs.versions(Symptom(text=text).clean))
    every = [explain_diagnosis(each, evidence, failure).as_json() for each in diagnose(failure)]
    assert json.dumps([each.as_json() for each in explain(failure)]) == json.dumps(every)


def long_logs() -> Iterator[str]:
    """Yield logs of which the command reads a part: before, between and after lines without errors."""
    end = (LOGS / "logs" / "fsdp1-uniform-dtype.txt").read_text(encoding="utf-8")
    noise = text_of("steps", 7_000_000)
    yield f"{noise}\n{end}"
    yield f"{noise}\n{end}\n{noise.replace('word', 'ümlaut')}"
    yield f"{end}\n{noise}"
    yield text_of("tracebacks", 14_000_000)
    yield f"{'x' * 10_000_000}\n{end}"
    yield f"{'ü' * 5_000_000} {end}"
    yield f"{noise}\n".replace("\n", "\r") + end


def test_very_long_logs_are_read_as_the_command_reads_them(visit: Visit) -> None:
    """So they get its answers: the tests above compare what both find in the same text."""
    page = visit.open("error.html")
    page.evaluate("ftm.diagnosis.ready()")
    for text in long_logs():
        read, expected = page.evaluate("text => ftm.diagnosis.logs.distinct(text).text", text), as_read(text)
        assert (len(read), digest(read)) == (len(expected), digest(expected))


def digest(text: str) -> str:
    """Return a digest, because pytest takes minutes to compare long texts that differ."""
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(("size", "sentences"), [(5_000_000, 0), (9_000_000, 1)])
def test_the_page_says_if_it_left_out_the_middle_of_a_log(visit: Visit, size: int, sentences: int) -> None:
    page = visit.open("error.html")
    expect(page.get_by_text("Both read the first 4 MB of different lines")).to_be_visible()
    page.evaluate("text => { document.getElementById('log').value = text; }", text_of("steps", size))
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#answer h2")).to_be_visible(timeout=60_000)
    expect(page.get_by_text("of its middle, only lines about errors were read")).to_have_count(sentences)


def test_a_log_that_the_search_box_cannot_carry_is_asked_for_again(chromium: Browser, site: Path) -> None:
    with visiting(chromium, site) as visit:
        page = visit.open("index.html")
        page.evaluate(PASTE, "Traceback (most recent call last):\n" + "x" * 20_000_000)
        expect(page.locator("#answer")).to_contain_text("paste it here")
