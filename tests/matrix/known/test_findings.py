"""A finding states how a user meets it, and the threads that report it or the search that found none."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from matrix.known import findings, known_problems

if TYPE_CHECKING:
    from pathlib import Path

TABLE = findings.load()
THREADS = 'threads = [{ link = "huggingface/peft#1", status = "open" }]\n'
ROW = """
[[finding]]
id = "one"
title = "something breaks"
kind = "bug"
meet = "Train."
package = "peft"
when = [{ method = ["lora"] }]
red = [{ case = "train-lora-single-fp32", sets = ["2024-06"], shows = "x" }]
searched = { on = 2026-11-22, threads_to = "2026-09", words = ["it breaks"] }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "findings.toml"
    path.write_text(text)
    return path


def without(name: str) -> str:
    """The row without one of its keys."""
    return "".join(line for line in ROW.splitlines(keepends=True) if not line.startswith(name))


def test_a_row_is_reported_if_a_thread_is_more_than_related(tmp_path: Path) -> None:
    related = THREADS.replace('"open"', '"related", about = "another error"')
    loaded = [findings.load(written(tmp_path, ROW + threads))[0] for threads in ("", THREADS, related)]
    assert [each.is_reported for each in loaded] == [False, True, False]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no findings; the file needs [[finding]] tables"),
        (without("meet"), "(one): meet: Field required"),
        (ROW.replace('"Train."', '""'), "meet: String should have at least 1 character"),
        (ROW.replace('"bug"', '"typo"'), "kind: Input should be 'bug', 'by design', 'documented' or 'deprecated'"),
        (without("searched"), "(one): no thread reports it; state the search that found none"),
        (ROW.replace("2026-11-22", '"once"'), "searched.on: "),
        (ROW.replace('"2026-09"', '"lately"'), "searched.threads_to: "),
        (ROW.replace('["it breaks"]', "[]"), "searched.words: "),
        (ROW + THREADS.replace("huggingface/peft#1", "somewhere"), "'somewhere' is no thread"),
        (ROW + THREADS.replace('"open"', '"fixed"'), "threads.0: huggingface/peft#1: a thread needs release="),
        (ROW + THREADS.replace('"open"', '"related"'), "a related thread needs about="),
        (ROW + 'links = ["huggingface/peft#1"]\n', "a finding has threads= with a status each"),
        (ROW + 'documented = "https://a.b/c"\n', "documented= is the address that shows why a row is no bug"),
        (ROW.replace('"bug"', '"by design"'), "documented= is the address that shows why a row is no bug"),
        (without("package"), "(one): package: Field required"),
        (ROW.replace('"peft"', '"deepspeed"'), "package: 'deepspeed' is none of torch, transformers"),
        (ROW + 'versions = "five"\n', "versions: Invalid specifier: 'five'"),
        (ROW.replace("[{ method", "[] #"), "when: Tuple should have at least 1 item"),
        (ROW.replace("method", "colour"), "when.0: 'colour' is no option"),
        (ROW + "stock_api = false\n", "stock_api = false needs a note"),
    ],
)
def test_a_malformed_row_raises_a_user_error_of_one_line(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        findings.load(written(tmp_path, text))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_former_id_selects_the_rows_that_replace_it() -> None:
    chosen = known_problems.select(TABLE, "4-bit-training-after-evaluation,dora-merged-in-shards")
    assert [each.id for each in chosen] == [
        "merge-not-written-back-by-fsdp1",
        "dora-merge-lost-in-fsdp2-shards",
        "4-bit-weights-packed-on-cpu",
    ]


def test_no_former_id_is_still_an_id() -> None:
    assert {name for each in TABLE for name in each.former}.isdisjoint(each.id for each in TABLE)


def test_no_two_findings_share_a_red_cell_with_the_same_check() -> None:
    shown = Counter((key, cells.case, cells.shows) for each in TABLE for cells in each.red for key in cells.sets)
    assert [cell for cell, rows in shown.items() if rows > 1] == []
