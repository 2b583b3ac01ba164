"""The browser answers as `ftmatrix explain`, query words mean the same, and jobs get no set that Python refuses."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from reports.answers import knowledge
from reports.answers.diagnosis import logs, outside, signatures
from reports.answers.diagnosis.diagnose import diagnose
from reports.answers.diagnosis.symptoms import Symptom
from reports.answers.judgement.known_errors import MeasuredErrors
from reports.answers.support.candidates import candidates
from reports.answers.support.query import parse
from reports.answers.support.question import read
from reports.answers.support.status import SupportIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.browser.conftest import Visit

LOGS: Final = Path(__file__).parents[1] / "reports" / "answers" / "diagnosis"
FOLDERS: Final = ("logs", "unrelated", "unrelated_b", "unrelated_c", "unrelated_d")
QUERIES: Final = (
    *("qlora fsdp2", "8 bit dora", "8-bit DoRA", "4bit lora ddp", "QLoRA + FSDP", "full fine-tuning fsdp2"),
    *("lora merge", "int8 resume", "dora fsdp1 bf16", "use_orig_params=false fsdp1", "gradient checkpointing lora"),
    *("nf4 double quant", "rslora single gpu", "quant=nf4 loop!=eval", "sfttrainer qlora", "torch.compile lora"),
    *("flash attention 2 lora", "prompt tuning", "ia3 8 bit", "paged adamw 8bit qlora"),
)
EXPLAIN: Final = """async (texts) => {
  const answers = [];
  for (const text of texts) {
    const { diagnoses, versions, outside } = await ftm.diagnosis.explain(text);
    const found = diagnoses.map((each) => [each.row.id, each.line, each.confirmed, each.open]);
    answers.push([found, versions, outside?.id ?? null]);
  }
  return answers;
}"""


def texts() -> Iterator[tuple[str, str, str]]:
    """Yield the name of each log, its text as a user pastes it, and as the command reads it."""
    for folder in FOLDERS:
        for path in sorted((LOGS / folder).glob("*.txt")):
            yield f"{folder}/{path.name}", path.read_text(encoding="utf-8", errors="replace"), logs.read(path)
    for name in ("reported.toml", "reported_b.toml"):
        for row in tomllib.loads((LOGS / name).read_text(encoding="utf-8"))["reported"]:
            yield row["id"], row["symptom"], row["symptom"]


def written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def answer(text: str) -> list[Any]:
    """Return what the command finds in a text."""
    failure = Symptom(text=text, versions=logs.versions(Symptom(text=text).clean))
    found = diagnose(failure)
    ended = None if found else outside.end(failure) or outside.foreign_code(failure)
    return [
        [[each.signature.id, each.line, list(each.confirmed), list(each.open)] for each in found],
        failure.versions,
        ended.id if ended else None,
    ]


def test_all_logs_get_the_answers_of_the_command(visit: Visit) -> None:
    rows = list(texts())
    page = visit.open("error.html")
    browser = page.evaluate(EXPLAIN, [pasted for _, pasted, _ in rows])
    different = {name: got for (name, _, text), got in zip(rows, browser, strict=True) if got != answer(text)}
    assert len(rows) > 700
    assert different == {}


def test_every_signature_with_a_pattern_has_a_log_that_the_browser_explains(visit: Visit) -> None:
    page = visit.open("error.html")
    rows = [row for row in signatures.load() if row.pattern and (LOGS / "logs" / f"{row.id}.txt").exists()]
    assert len(rows) > 180
    found = page.evaluate(EXPLAIN, [(LOGS / "logs" / f"{row.id}.txt").read_text(encoding="utf-8") for row in rows])
    first = {row.id: [each[0] for each in answers[0]] for row, answers in zip(rows, found, strict=True)}
    assert {name: ids for name, ids in first.items() if name not in ids} == {}


def test_a_long_log_is_explained_in_a_second(visit: Visit) -> None:
    page = visit.open("error.html")
    noise = "\n".join(f"{{'loss': {step / 7:.4f}, 'epoch': {step}}} word{step:x}" for step in range(100_000))
    end = "Traceback (most recent call last):\nValueError: Must flatten tensors with uniform dtype but got a and b"
    took = page.evaluate(
        "async (text) => { await ftm.diagnosis.ready(); const start = performance.now();"
        " await ftm.diagnosis.explain(text); return performance.now() - start; }",
        f"{noise}\n{end}",
    )
    assert took < 5000


@pytest.mark.parametrize("text", QUERIES)
def test_words_mean_what_can_i_use_reads(visit: Visit, text: str) -> None:
    page = visit.open("index.html")
    got = page.evaluate("async (text) => { await ftm.query.ready(); return ftm.query.parse(text).options; }", text)
    queries = read(text).queries
    named = {name: sorted(map(written, values)) for name, values in queries[0].named.items()}
    assert {name: sorted(values) for name, values in got.items()} == named


def test_no_job_gets_a_set_that_the_command_refuses(visit: Visit) -> None:
    """The page combines the statuses of tasks; `recommend` judges the same tasks together."""
    grids = knowledge.by_device()
    known = MeasuredErrors(grids["cpu"])
    page = visit.open("stack.html")
    page.wait_for_selector("#recommended h3")
    wrong: list[tuple[str, str, list[str]]] = []
    for device in ("cpu", "cuda"):
        index = SupportIndex(grids[device], known=known, device=device)
        for method, quant, strategy in (
            *(
                ("lora", "none", "single"),
                ("lora", "nf4", "fsdp2"),
                ("lora", "none", "fsdp1"),
                ("dora", "none", "fsdp2"),
            ),
            *(("lora", "int8", "ddp"), ("full", "none", "fsdp2"), ("full", "none", "fsdp1"), ("lora", "nf4", "single")),
        ):
            for tasks in (["train"], ["train", "save_reload"], ["train", "save_reload", "resume"], ["train", "merge"]):
                state = f"method={method}&quant={quant}&strategy={strategy}&device={device}&tasks={'+'.join(tasks)}"
                visit.open(f"stack.html?{len(wrong)}{state}#{state}")
                page.wait_for_selector("#recommended h3")
                answer = page.locator("#recommended")
                key, complete = answer.get_attribute("data-set"), answer.get_attribute("data-complete")
                if not key or complete != "true":
                    continue
                queries = [parse(f"flow={task} method={method} quant={quant} strategy={strategy}") for task in tasks]
                judged = {each.key: each for each in candidates(index, queries)}
                newer = [each.key for each in candidates(index, queries) if each.fulfils][:1]
                if not judged[key].fulfils or newer != [key]:
                    wrong.append((state, key, newer))
    assert wrong == []
