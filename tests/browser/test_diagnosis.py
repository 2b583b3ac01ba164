"""Signatures, versions and query words mean the same in the browser, and jobs get no set that Python refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from matrix.known import findings
from reports.answers import knowledge
from reports.answers.diagnosis import signatures
from reports.answers.judgement.known_errors import MeasuredErrors
from reports.answers.support.candidates import candidates
from reports.answers.support.query import parse
from reports.answers.support.question import read
from reports.answers.support.status import SupportIndex

if TYPE_CHECKING:
    from tests.browser.conftest import Visit

LOGS: Final = Path(__file__).parents[1] / "reports" / "answers" / "diagnosis"
QUERIES: Final = (
    *("qlora fsdp2", "8 bit dora", "8-bit DoRA", "4bit lora ddp", "QLoRA + FSDP", "full fine-tuning fsdp2"),
    *("lora merge", "int8 resume", "dora fsdp1 bf16", "use_orig_params=false fsdp1", "gradient checkpointing lora"),
    *("nf4 double quant", "rslora single gpu", "quant=nf4 loop!=eval", "sfttrainer qlora", "torch.compile lora"),
    *("flash attention 2 lora", "prompt tuning", "ia3 8 bit", "paged adamw 8bit qlora"),
)
IDS: Final = """async (texts) => {
  const answers = [];
  for (const text of texts) answers.push((await ftm.diagnosis.explain(text)).diagnoses.map((each) => each.row.id));
  return answers;
}"""
VERSIONS: Final = (
    *("0.45", "0.45.0", "0.45.0.dev0", "0.45.0rc1", "0.45.0.post1", "1.0", "1.0.1", "1.10.0", "2.8.0+cu128", "2.8.0a0"),
    *("2.8.0.dev20250601", "2.9", "2.9.1", "5.0.0rc0", "5.0.0rc3", "5.0.0", "5.1.0.dev0", "v0.17.1", "0.9.0b2", "0.9"),
)


def written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_every_signature_with_a_pattern_has_a_log_that_the_browser_explains(visit: Visit) -> None:
    page = visit.open("error.html")
    rows = [row for row in signatures.load() if row.pattern and (LOGS / "logs" / f"{row.id}.txt").exists()]
    assert len(rows) > 180
    found = page.evaluate(IDS, [(LOGS / "logs" / f"{row.id}.txt").read_text(encoding="utf-8") for row in rows])
    assert {row.id: ids for row, ids in zip(rows, found, strict=True) if row.id not in ids} == {}


def test_versions_mean_what_pep_440_says(visit: Visit) -> None:
    """All specifiers of signatures and findings, and the normal form and the order of versions."""
    texts = {str(each) for row in signatures.load() for each in row.specifiers.values()}
    texts |= {row.versions for row in findings.load() if row.versions} | {
        "~=2.8",
        "~=2.8.0",
        "==2.8.*",
        "!=2.9.*,>1.0",
        "<5.0.0",
    }
    page = visit.open("index.html")
    browser = page.evaluate(
        "([texts, versions]) => [texts.map((text) => versions.map((each) => ftm.versions.contains(text, each))),"
        " versions.map((each) => ftm.versions.normal(each)),"
        " versions.map((one) => versions.map((other) => ftm.versions.compare(one, other)))]",
        [sorted(texts), VERSIONS],
    )
    public = [Version(Version(each).public) for each in VERSIONS]
    assert browser == [
        [[SpecifierSet(text).contains(each, prereleases=True) for each in VERSIONS] for text in sorted(texts)],
        [str(Version(each)) for each in VERSIONS],
        [[(one > other) - (one < other) for other in public] for one in public],
    ]


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
