"""Every known failure is a row with a real log, and exactly that row explains it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cases.verdict import Phase
from matrix import known
from matrix.errors import UserError
from reports.answers import signatures
from reports.answers.diagnose import Symptom, diagnose

LOGS = Path(__file__).with_name("logs")
EXAMPLES = sorted(path for path in LOGS.iterdir() if path.suffix in {".txt", ".json"})
SHORTEST_CAUSE = 40


def signature_of(example: Path) -> str:
    """The name before ``.txt``, ``.2.txt`` or ``.json``."""
    stem = example.stem
    return stem.rpartition(".")[0] if stem.rpartition(".")[2].isdigit() and "." in stem else stem


def shown(example: Path) -> Symptom:
    text = example.read_text(encoding="utf-8")
    if example.suffix == ".txt":
        return Symptom(text="\n".join(line for line in text.splitlines() if not line.startswith("# ")))
    told = json.loads(text)
    return Symptom(
        missed=tuple(told["missed"]),
        options=told["options"],
        versions=told["versions"],
        case=told.get("case", ""),
        text=told.get("text", ""),
        phase=Phase(told["phase"]) if told.get("phase") else None,
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_exactly_one_row_explains_a_log(example: Path) -> None:
    assert [each.signature.id for each in diagnose(shown(example))] == [signature_of(example)]


def test_every_row_has_a_log() -> None:
    ids = {row.id for row in signatures.load()}
    assert ids ^ {signature_of(example) for example in EXAMPLES} == set()


def test_a_log_says_where_it_is_from() -> None:
    texts = [path for path in EXAMPLES if path.suffix == ".txt"]
    assert [path.name for path in texts if not path.read_text().startswith("# from: ")] == []


def test_every_row_says_why_in_a_sentence() -> None:
    short = [row.id for row in signatures.load() if len(row.cause) < SHORTEST_CAUSE or not row.cause.endswith(".")]
    assert short == []


def test_the_problems_that_rows_name_are_there() -> None:
    there = {row.id for table in (known.PACKAGED, known.FINDINGS) for row in known.load(table)}
    assert {name for row in signatures.load() for name in row.problems} - there == set()


def test_every_anchor_is_in_a_log() -> None:
    """What is looked for before a pattern must not hide a match."""
    logs = {signature_of(path): shown(path).bare for path in EXAMPLES if path.suffix == ".txt"}
    assert [row.id for row in signatures.load() if row.id in logs and row.anchor not in logs[row.id]] == []


@pytest.mark.parametrize(
    ("pattern", "anchor"),
    [
        (r"Must flatten tensors with uniform `requires_grad`", "Must flatten tensors with uniform requires_grad"),
        (r"\[rank\d+\]: no such key", "]: no such key"),
        (r"optional words? only", "optional word"),
        (r"this|that", ""),
        (r"(?i)no matter how it is written", ""),
        (r"either (one|the other) of them", " of them"),
    ],
)
def test_an_anchor_is_text_that_every_match_has(pattern: str, anchor: str) -> None:
    row = signatures.Signature(id="a", pattern=pattern, cause="because", kind=signatures.Kind.BUG)
    assert row.anchor == anchor


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('pattern = "("', "no regular expression"),
        ('pattern = "a*"', "any text would do"),
        ('when = "quant=nf5"\npattern = "a"', "has no value 'nf5'"),
        ('versions = { peft = "new" }\npattern = "a"', "Invalid specifier"),
        ('links = ["see the forum"]\npattern = "a"', "is no thread"),
        ("", "nothing to know it by"),
    ],
)
def test_a_malformed_row_is_refused(tmp_path: Path, row: str, problem: str) -> None:
    text = f'[[signature]]\nid = "a"\ncause = "because"\nkind = "bug"\n{row}\n'
    (tmp_path / "rows.toml").write_text(text)
    with pytest.raises(UserError, match=problem):
        signatures.load(tmp_path)


def test_two_rows_of_one_name_are_refused(tmp_path: Path) -> None:
    row = '[[signature]]\nid = "a"\npattern = "a"\ncause = "because"\nkind = "bug"\n'
    (tmp_path / "rows.toml").write_text(row + row)
    with pytest.raises(UserError, match="two signatures are called 'a'"):
        signatures.load(tmp_path)
