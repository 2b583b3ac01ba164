"""Tests bad input: one sentence on stderr, exit code 2, and no files left behind."""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def run(mini: Any, command: Callable[..., str]) -> Callable[..., str]:
    """Runs ``ftmatrix run`` on the fake sets, and checks that it leaves no run directory."""

    def refused(*arguments: str, versions: Path = mini.versions) -> str:
        given = {"--versions": str(versions), "--torch-backend": "pypi", "--device": "cpu"}
        rest = [word for name, value in given.items() if name not in arguments for word in (name, value)]
        sentence = command("run", *rest, *arguments)
        assert list((mini.folder / "here").iterdir()) == []
        return sentence

    return refused


@pytest.fixture
def spoilt(mini: Any) -> Callable[..., Path]:
    """A copy of the sets with one passage changed."""

    def made(old: str, new: str) -> Path:
        path: Path = mini.folder / "own" / "versions.toml"
        shutil.copytree(mini.folder / "locks", path.parent / "locks")
        path.write_text(mini.versions.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
        return path

    return made


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--sets", "god"), "unknown version set 'god'; did you mean good?"),
        (("--sets", ","), "no version set named"),
        (("--where", "quant=nf5"), "--where: option 'quant' has no value 'nf5'; choose from none, nf4, fp4, int8"),
        (("--where", "qant=nf4"), "unknown option 'qant'"),
        (("--where", "qant=nf4"), "did you mean 'quant'?"),
        (("--where", "nf4"), "--where: 'nf4' is not of the form option=value"),
        (("--where", "quant=nf4 method=full strategy=ddp"), "matches none of"),
        (("--device", "tpu"), "--device tpu: expected auto, cpu, cuda or cuda-gloo; run also takes both"),
        (("--device", "cuda", "--torch-backend", "cpu"), "a build without CUDA; choose another one for --device cuda"),
        (("--workers", "0"), "--workers 0: expected a whole number above 0"),
        (("--keep-free", "-1"), "--keep-free -1.0: expected a number of gigabytes"),
        (
            ("--torch-backend", "rocm"),
            "--torch-backend rocm: expected auto, cpu, pypi, or a CUDA",
        ),
        (("--resume",), "has no run; start one with `ftmatrix run`"),
        (("--resume", "--out", "nowhere"), "nowhere has no run to resume; leave --resume out"),
        (("--out", "/proc/nowhere"), "/proc/nowhere cannot be written"),
        (("--offline", "."), "--offline .: there is no pack.toml in it"),
        (("--system-torch",), "--system-torch needs wheels"),
        (("--offline", ".", "--torch-backend", "cpu"), "--offline has one packed build"),
        (("--offline", "/proc", "--system-torch"), "--offline /proc: there is no pack.toml in it"),
    ],
)
def test_the_error_names_a_bad_argument_and_the_remedy(
    run: Callable[..., str], arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in run(*arguments)


def test_a_missing_program_of_a_script_is_refused(run: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[scripts.mine]\ncommand = ["no-such-launcher", "x"]\n')
    expected = "scripts.mine.command: good has no program no-such-launcher, and PATH has none; correct the name"
    assert expected in run("--sets", "good", "--scripts", str(tmp_path / "mine.toml"))


def test_a_malformed_script_is_refused_before_anything_is_installed(
    run: Callable[..., str], mini: Any, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("# /// script\n# [tool.ftmatrix]\n# rank = 2\n# ///\n")
    assert "tool.ftmatrix.rank: unknown key; did you mean ranks?" in run("--scripts", str(tmp_path / "train.py"))
    assert not (mini.folder / "cache" / "envs").exists()


def test_hidden_gpus_are_refused(run: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes with and without a driver, because both leave no GPU to use."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert re.search("--device cuda: .*; use --device cpu$", run("--device", "cuda"))


def test_the_error_names_a_missing_file_of_sets(run: Callable[..., str], tmp_path: Path) -> None:
    assert "none.toml: the version sets cannot be read" in run(versions=tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[sets.good]", "[sets.good", "versions.toml: not valid TOML"),
        ('torch = "0.0.1"', 'torch = "newest"', 'sets.good.pins.torch: expected an exact version such as "2.8.0"'),
        ('torch = "0.0.1"\n', "", "sets.good.pins.torch: expected an exact version"),
        ("as-of = 2026-01-01", 'as-of = "soon"', "sets.good.as-of: expected a date such as"),
        ("why =", "reason =", "sets.good.reason: unknown; expected one of"),
    ],
)
def test_the_error_names_the_place_of_a_mistake_in_the_file_of_sets(
    run: Callable[..., str], spoilt: Callable[..., Path], old: str, new: str, sentence: str
) -> None:
    assert sentence in run(versions=spoilt(old, new))


def test_the_error_for_a_missing_interpreter_lists_the_installed_ones(
    run: Callable[..., str], spoilt: Callable[..., Path]
) -> None:
    sentence = run(versions=spoilt(f'python = "{sys.version_info.major}.{sys.version_info.minor}"', 'python = "3.99"'))
    assert "no working Python 3.99 found; install it and put python3.99 on PATH" in sentence


def test_the_error_names_a_version_that_does_not_exist(mini: Any, command: Callable[..., str]) -> None:
    before = mini.versions.read_bytes()
    words = ("sets", "add", "good+peft9", "peft==9.9", "--from", "good", "--versions", str(mini.versions))
    assert "the configured index has no peft 9.9" in command(*words)
    assert mini.versions.read_bytes() == before


@pytest.mark.parametrize(
    ("pin", "sentence"),
    [
        ("peft", "'peft': expected an exact pin such as peft==0.13.0"),
        ("peft==latest", "expected an exact version"),
        ("numpy==2.0", "numpy: not one of the pinned packages (torch"),
    ],
)
def test_a_malformed_pin_is_refused(mini: Any, command: Callable[..., str], pin: str, sentence: str) -> None:
    before = mini.versions.read_bytes()
    assert sentence in command("sets", "add", "new", pin, "--from", "good", "--versions", str(mini.versions))
    assert mini.versions.read_bytes() == before


def test_an_unreachable_index_is_no_result_of_the_set(run: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    assert "the package index cannot be reached" in run()


def test_a_second_run_in_the_same_directory_is_refused(
    mini: Any, command: Callable[..., str], until: Callable[..., None]
) -> None:
    first = mini.start(sets="good", where="case=hang-stopped", limits={"silence_s": 300.0})
    until(mini.started_cells)
    refused = command("run", "--resume", "--out", str(mini.out), "--versions", str(mini.versions), "--device", "cpu")
    first.kill()
    first.communicate()
    assert f"run is in use by a run (pid {first.pid})" in refused


def test_a_directory_with_a_run_is_refused(run_mini: Callable[..., Any], command: Callable[..., str]) -> None:
    mini = run_mini(sets="good", where="case=pass-plain")
    before = {path: path.read_bytes() for path in mini.out.glob("[!.]*.*")}
    words = ("run", "--out", str(mini.out), "--versions", str(mini.versions), "--device", "cpu")
    assert "has a run already; continue it with --resume" in command(*words, "--torch-backend", "pypi")
    assert before == {path: path.read_bytes() for path in mini.out.glob("[!.]*.*")}


@pytest.mark.parametrize("file", ["run.json", "outcomes.jsonl"])
@pytest.mark.parametrize("words", [("run", "--resume", "--out"), ("report",)])
def test_a_newer_schema_is_refused(
    finished: Path, command: Callable[..., str], file: str, words: tuple[str, ...]
) -> None:
    text = (finished / file).read_text(encoding="utf-8")
    assert json.loads(text if file != "outcomes.jsonl" else text.splitlines()[0])
    (finished / file).write_text(re.sub(r'"schema": ?\d+', '"schema": 99', text), "utf-8")
    assert "is newer than" in command(*words, str(finished))


@pytest.mark.parametrize(("file", "text"), [("run.json", "{\n"), ("outcomes.jsonl", "{}\n")])
def test_the_error_names_a_damaged_file(finished: Path, command: Callable[..., str], file: str, text: str) -> None:
    (finished / file).write_text(text, encoding="utf-8")
    assert f"{file}" in command("report", str(finished))
