"""The site of run directories: of whole, torn and damaged ones, and of several machines."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from matrix.errors import UserError
from matrix.run.outcome import SCHEMA, ErrorRecord
from matrix.run.store import OUTCOMES, RUN, SETS, TORN
from reports.render.write import publish
from reports.results.loading import load
from reports.results.log_ends import FILE, LONGEST, LONGEST_PUBLISHED, end_of
from reports.site.build import build

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from matrix.run.outcome import Outcome

    WriteRun = Callable[..., Path]


@pytest.fixture
def cell(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Return what the page of a case knows of its only cell."""

    def read(case: str) -> dict[str, Any]:
        text = (tmp_path / "site" / "data" / "cases" / f"{case}.js").read_text(encoding="utf-8")
        cells: dict[str, dict[str, Any]] = json.loads(text[text.index("{") : text.rindex(")")])
        (found,) = cells.values()
        return found

    return read


def test_a_run_that_was_never_rendered_is_shown(
    write_run: WriteRun, build_outcome: Callable[..., Outcome], tmp_path: Path
) -> None:
    site = build(write_run(build_outcome("a"), build_outcome("b", verdict="fail")), tmp_path / "site")
    assert (site.cells, site.problems) == (2, ())
    assert {path.stem for path in (tmp_path / "site" / "case").iterdir()} == {"a", "b"}


def test_one_bad_line_among_thousands_is_reported_and_all_others_are_shown(
    write_run: WriteRun, build_outcome: Callable[..., Outcome], tmp_path: Path
) -> None:
    run = write_run(build_outcome("case 0"))
    line = (run / OUTCOMES).read_bytes()
    lines = [line.replace(b"case 0", b"case %d" % (number % 20)) for number in range(3000)]
    lines[1234] = b"\xff\xfe" + lines[1234]
    (run / OUTCOMES).write_bytes(b"".join(lines))
    site = build(run, tmp_path / "site")
    assert site.cells == 20
    assert site.problems == (
        f"1 damaged line was dropped from {OUTCOMES} (line 1235); run the cells again with --resume",
    )
    assert "line 1235" in (tmp_path / "site" / "data.html").read_text(encoding="utf-8")


def test_a_half_written_last_line_is_reported_and_all_others_are_shown(
    write_run: WriteRun, build_outcome: Callable[..., Outcome], tmp_path: Path
) -> None:
    run = write_run(build_outcome("a"), build_outcome("b"))
    content = (run / OUTCOMES).read_bytes()
    (run / OUTCOMES).write_bytes(content[:-10])
    site = build(run, tmp_path / "site")
    assert site.cells == 1
    (problem,) = site.problems
    assert "ends in an incomplete line, whose cell counts as not run" in problem


@pytest.mark.parametrize(
    "kept", [b"", b'{"schema": 5, "why": "\xc3', b'{"schema": 5}'], ids=["none", "half a letter", "JSON"]
)
def test_a_half_written_line_of_one_run_of_several_is_reported_with_its_run(
    write_run: WriteRun, build_outcome: Callable[..., Outcome], tmp_path: Path, kept: bytes
) -> None:
    write_run(build_outcome("a"), name="whole")
    torn = write_run(build_outcome("b", verdict="fail"), name="torn")
    with (torn / OUTCOMES).open("ab") as file:
        file.write(kept)
    site = build(tmp_path / "runs", tmp_path / "site")
    page = (tmp_path / "site" / "data.html").read_text(encoding="utf-8")
    assert site.cells == 2
    assert list(site.problems) == ([f"torn: {OUTCOMES} {TORN}"] if kept else [])
    assert (TORN in page) == bool(kept)
    assert str(tmp_path) not in page


@pytest.mark.parametrize("file", [RUN, SETS])
def test_a_run_of_a_newer_version_is_refused_by_its_name(
    write_run: WriteRun, build_outcome: Callable[..., Outcome], tmp_path: Path, file: str
) -> None:
    write_run(build_outcome("a"), name="old")
    new = write_run(build_outcome("a"), name="new")
    (new / file).write_text((new / file).read_text().replace(f'"schema": {SCHEMA}', '"schema": 99'))
    with pytest.raises(UserError, match=f"runs/new: {file}: schema 99 is newer than {SCHEMA}, .*; update ftmatrix"):
        build(tmp_path / "runs", tmp_path / "site")


@pytest.mark.parametrize("line", ['{"schema": 99}', '{"schema": 4, "set": 1}', "[]"])
def test_a_line_of_another_program_or_a_newer_version_is_refused_in_a_sentence(
    write_run: WriteRun, build_outcome: Callable[..., Outcome], tmp_path: Path, line: str
) -> None:
    run = write_run(build_outcome("a"))
    with (run / OUTCOMES).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    with pytest.raises(UserError, match=f"{OUTCOMES} line 2: .*(update ftmatrix|was not written by ftmatrix)"):
        build(run, tmp_path / "site")


def test_runs_of_different_machines_and_devices_are_shown_together(
    write_run: WriteRun, build_outcome: Callable[..., Outcome], tmp_path: Path
) -> None:
    write_run(build_outcome("a", verdict="fail", hardware="cpu: old"), name="old", hardware="cpu: old")
    write_run(build_outcome("a", hardware="cpu: new"), name="new", hardware="cpu: new")
    write_run(build_outcome("a", hardware="cuda: H200"), name="gpu", hardware="cuda: H200", device="cuda")
    site = build(tmp_path / "runs", tmp_path / "site")
    page = (tmp_path / "site" / "case" / "a.html").read_text(encoding="utf-8")
    assert site.cells == 2
    assert all(hardware in page for hardware in ("cpu: old", "cpu: new", "cuda: H200"))


def test_results_of_older_schemas_are_shown_beside_new_ones(
    write_run: WriteRun, build_outcome: Callable[..., Outcome], tmp_path: Path
) -> None:
    series = {"loss": (5.0, 4.0), "twin loss": (5.0, 4.0)}
    build(write_run(build_outcome("a", schema=2), build_outcome("b", series=series)), tmp_path / "site")
    old, new = ((tmp_path / "site" / "case" / f"{case}.html").read_text(encoding="utf-8") for case in "ab")
    assert ("<svg" in old, "Loss and gradient norm" in old) == (False, False)
    assert 'aria-label="loss: 5, 4; the twin&#39;s: 5, 4"' in new


def test_the_end_of_a_log_is_a_file_of_its_own(
    write_run: WriteRun, build_outcome: Callable[..., Outcome], cell: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    run = write_run(build_outcome("a", verdict="fail", evidence={"rank 0 log": "logs/a/rank-0.log"}))
    (run / "logs" / "a").mkdir(parents=True)
    (run / "logs" / "a" / "rank-0.log").write_text("CUDA driver version is \x1b[31minsufficient")
    build(run, tmp_path / "site")
    text = (tmp_path / "site" / "data" / f"{cell('a')['logs']}.js").read_text(encoding="utf-8")
    assert "CUDA driver version is \N{REPLACEMENT CHARACTER}[31minsufficient" in text


def test_published_results_show_the_ends_of_the_logs_of_red_cells(
    write_run: WriteRun, build_outcome: Callable[..., Outcome], cell: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    red = build_outcome("a", verdict="fail", evidence={"rank 0 log": "logs/a/rank-0.log", "empty": "logs/a/empty.log"})
    lost = build_outcome("b", verdict="lost", evidence={"rank 0 log": "logs/a/rank-0.log"})
    run = write_run(red, lost)
    (run / "logs" / "a").mkdir(parents=True)
    (run / "logs" / "a" / "rank-0.log").write_text("".join(f"line {number}\n" for number in range(10_000)))
    (run / "logs" / "a" / "empty.log").write_text(" \n")
    publish(load(run), tmp_path / "published", evidence=run)
    build(tmp_path / "published", tmp_path / "site")
    text = (tmp_path / "site" / "data" / f"{cell('a')['logs']}.js").read_text(encoding="utf-8")
    assert ("line 9999" in text, "line 1000\\n" in text, "empty" in text) == (True, False, False)
    assert len(text.replace("\\n", "\n")) < LONGEST_PUBLISHED + 200  # a script escapes each end of a line
    assert "logs" not in cell("b")
    again = publish(load(tmp_path / "published"), tmp_path / "again", evidence=tmp_path / "published")
    assert (again.parent / FILE).read_bytes() == (tmp_path / "published" / FILE).read_bytes()


def test_a_cell_without_logs_shows_those_of_an_older_run_that_failed_alike(
    write_run: WriteRun,
    build_outcome: Callable[..., Outcome],
    cell: Callable[[str], dict[str, Any]],
    later: datetime,
    tmp_path: Path,
) -> None:
    """Only the newest published results count, and those of a rerun may have no logs."""
    alike, other = (
        ErrorRecord(type="ValueError", message=words) for words in ("no uniform dtype", "no shard of this rank")
    )
    old_a = build_outcome("a", verdict="fail", error=alike, evidence={"rank 0 log": "rank-0.log"})
    old_b = build_outcome("b", verdict="fail", error=alike, evidence={"rank 0 log": "rank-0.log"})
    run = write_run(old_a, old_b)
    (run / "rank-0.log").write_text("the end of the log\n")
    publish(load(run), tmp_path / "published" / "old", evidence=run)
    run = write_run(
        build_outcome("a", verdict="fail", error=alike, hardware="cpu: new", started=later),
        build_outcome("b", verdict="fail", error=other, hardware="cpu: new", started=later),
        name="new",
        hardware="cpu: new",
    )
    publish(load(run), tmp_path / "published" / "new")
    build(tmp_path / "published", tmp_path / "site")
    text = (tmp_path / "site" / "data" / f"{cell('a')['logs']}.js").read_text(encoding="utf-8")
    assert f"rank 0 log, of a run of {old_a.started:%Y-%m-%d} that failed alike" in text
    assert "the end of the log" in text
    assert "logs" not in cell("b")


def test_logs_of_an_earlier_run_do_not_stay_beside_published_results(
    write_run: WriteRun, build_outcome: Callable[..., Outcome], tmp_path: Path
) -> None:
    run = write_run(build_outcome("a", verdict="fail"))
    (tmp_path / FILE).write_bytes(b"of an earlier run")
    publish(load(run), tmp_path, evidence=run)
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"{}", "cannot be read"), (gzip.compress(b'{"schema_version": 9}'), "newer than 1; update ftmatrix")],
    ids=["damaged", "newer"],
)
def test_published_logs_that_cannot_be_read_are_refused_in_a_sentence(
    write_run: WriteRun, build_outcome: Callable[..., Outcome], tmp_path: Path, content: bytes, words: str
) -> None:
    run = write_run(build_outcome("a", verdict="fail"))
    publish(load(run), tmp_path / "published", evidence=run)
    (tmp_path / "published" / FILE).write_bytes(content)
    with pytest.raises(UserError, match=f"{FILE}: .*{words}"):
        build(tmp_path / "published", tmp_path / "site")


@pytest.mark.parametrize("name", ["../../secret", "/etc/hostname", "logs", "javascript:alert(1)", "logs/gone"])
def test_a_log_outside_of_its_run_is_not_shown(
    write_run: WriteRun,
    build_outcome: Callable[..., Outcome],
    cell: Callable[[str], dict[str, Any]],
    tmp_path: Path,
    name: str,
) -> None:
    run = write_run(build_outcome("a", verdict="fail", evidence={"rank 0 log": name}))
    (run / "logs").mkdir()
    (tmp_path / "secret").write_text("secret")
    build(run, tmp_path / "site")
    assert "logs" not in cell("a")


def test_a_long_log_is_shown_from_a_whole_line_near_its_end(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    path.write_text("".join(f"line {number} ü\n" for number in range(100_000)), encoding="utf-8")
    head, first, *_, last = end_of(path).splitlines()
    assert head == "… rank-0.log begins earlier …"
    assert first.startswith("line 9")
    assert last == "line 99999 ü"
    assert len(end_of(path)) < LONGEST + 100


def test_a_short_log_is_shown_whole(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntwo\n")
    assert end_of(tmp_path / "log") == "one\ntwo\n"
