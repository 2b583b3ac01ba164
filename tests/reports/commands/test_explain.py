"""``ftmatrix explain``: its text, its JSON and its exit codes."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reports import cli
from reports.render.text import explain_text

if TYPE_CHECKING:
    from collections.abc import Callable

LOGS = Path(__file__).parents[1] / "answers" / "diagnosis" / "logs"
ERROR = LOGS / "fsdp1-uniform-dtype.txt"
KEYS = {"id", "cause", "phase", "fixes", "links", "line", "kind"}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Return a function that runs the command with a text on its standard input."""

    def ran(*arguments: str, pasted: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["ftmatrix", "explain", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pasted)))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return Done(code=int(ended.value.code or 0), out=captured.out, err=captured.err)

    return ran


def test_a_file_is_explained(run: Callable[..., Done]) -> None:
    done = run(str(ERROR))
    assert (done.code, done.err) == (0, "")
    assert "fsdp1-uniform-dtype (not supported, by design, in wrap)" in done.out


def test_the_first_answer_is_short_and_all_shows_the_rest(run: Callable[..., Done]) -> None:
    first, rest = run(str(ERROR)).out, run("--all", str(ERROR)).out
    fixes = [line for line in first.splitlines() if line.startswith("  fix:")]
    assert any("get_peft_model(..., autocast_adapter_dtype=False)" in line for line in fixes)
    assert len(fixes) <= explain_text.FIRST_FIXES
    assert len(first.splitlines()) <= explain_text.LONGEST
    assert "empty-adapter-from-fsdp1" in first
    assert "adapter-dtype-changes-on-resume" in rest
    assert "red without it" in rest


def test_a_log_that_ended_outside_the_stack_says_so_in_one_line(run: Callable[..., Done]) -> None:
    done = run(pasted=b"OSError: [Errno 28] No space left on device\n")
    assert (done.code, done.out.count("\n")) == (1, 1)
    assert done.out.startswith("no known failure of the stack: the log ends in a full disk")


def test_json_has_versions_and_diagnoses(run: Callable[..., Done]) -> None:
    (found,) = run("--json", pasted=ERROR.read_bytes()).document["diagnoses"]
    assert set(found) >= KEYS
    assert (found["id"], found["phase"]) == ("fsdp1-uniform-dtype", "wrap")
    assert {fix["proven"] for fix in found["fixes"]} == {True, False}
    assert all(link.startswith("https://") for link in found["links"])
    assert (
        found["line"] == "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"
    )


def test_a_log_of_several_ranks_has_one_cause(run: Callable[..., Done]) -> None:
    lines = ERROR.read_text().splitlines()
    both = "\n".join(f"\x1b[31m[rank{rank}]:\x1b[0m {line}" for line in lines for rank in range(2))
    found = run("--json", "-", pasted=both.encode()).document["diagnoses"]
    assert [each["id"] for each in found] == ["fsdp1-uniform-dtype"]


def test_versions_are_the_logs_unless_they_are_given(run: Callable[..., Done]) -> None:
    log = b"peft==0.12.0\ntorch==2.3.1\n" + ERROR.read_bytes()
    assert run("--json", pasted=log).document["versions"] == {"peft": "0.12.0", "torch": "2.3.1"}
    given = run("--json", "--versions", "transformers==5.1, peft==0.17", pasted=log).document["versions"]
    assert given == {"peft": "0.17", "torch": "2.3.1", "transformers": "5.1"}


def test_versions_of_libraries_below_the_stack_are_listed(run: Callable[..., Done]) -> None:
    log = b"huggingface-hub==0.26.0\nImportError: cannot import name 'cached_download' from 'huggingface_hub'\n"
    assert run("-", pasted=log).out.startswith("Versions: huggingface_hub 0.26.0\n")


def test_an_unknown_failure_exits_with_1(run: Callable[..., Done]) -> None:
    done = run("--json", pasted=b"SyntaxError: invalid syntax\n")
    assert done.code == 1
    assert done.document == {"versions": {}, "diagnoses": [], "standing": "unexplained"}


@pytest.mark.parametrize(
    ("arguments", "pasted", "problem"),
    [
        ((), b"", "standard input: is empty"),
        (("none.log",), b"", "none.log: cannot be read (No such file or directory)"),
        (("/",), b"", "/: cannot be read (Is a directory)"),
        (("-",), bytes(range(256)) * 9, "standard input: is binary, not a log"),
        (("--versions", "peft"), b"x", "'peft': expected an exact pin such as peft==0.13.0"),
        (("--versions", "numpy==2.0"), b"x", "--versions: unknown package 'numpy'; choose from torch, transformers"),
        (("--versions", "peft==new"), b"x", "expected an exact version"),
    ],
)
def test_bad_input_is_one_sentence(
    run: Callable[..., Done], arguments: tuple[str, ...], pasted: bytes, problem: str
) -> None:
    done = run(*arguments, pasted=pasted)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("ftmatrix: ")
    assert problem in done.err
    assert done.err.count("\n") == 1
