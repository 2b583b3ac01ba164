"""Tests ``ftmatrix run --with`` on the fake ecosystem, with real builds, environments and processes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

SCALED, PLAIN = "train-lora-single-fp32", "train-dora-single-fp32"
TWICE = "SCALE = 2.0\n"


@pytest.fixture
def run(mini: Any) -> Callable[..., dict[tuple[str, str], str]]:
    """Runs two cases with packages laid over the good set; returns the verdicts by set and case."""

    def measured(*words: str) -> dict[tuple[str, str], str]:
        options = [option for word in words for option in ("--with", word)]
        done = mini.command(
            "run", "--profile", "quick", "--sets", "good", "--where", f"case={SCALED},{PLAIN}", "--cold-sample", "0",
            "--out", str(mini.out), *options,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return {(line["set"], line["case"]): line["verdict"] for line in mini.lines()}

    return measured


@pytest.fixture
def refused(mini: Any, command: Callable[..., str]) -> Callable[..., str]:
    """Runs a request that must be refused with one sentence; returns it."""

    def sentence(*words: str) -> str:
        options = [option for word in words for option in ("--with", word)]
        found = command("run", "--profile", "quick", "--sets", "good", *mini.options, *options)
        assert list((mini.folder / "here").iterdir()) == []
        return found

    return sentence


def record(mini: Any) -> dict[str, Any]:
    (found,) = json.loads((mini.out / "sets.json").read_text())
    return dict(found)


def test_uncommitted_changes_of_a_checkout_are_measured(
    mini: Any, run: Callable[..., Any], checkout: Callable[..., Any]
) -> None:
    peft = checkout("peft", version="0.0.2")
    peft.change(TWICE)
    commit = peft.git("rev-parse", "HEAD")
    verdicts = run(str(peft.folder))
    (key,) = {key for key, _ in verdicts}
    assert re.fullmatch(rf"good\+peft@{commit[:7]}\.d[0-9a-f]{{7}}", key)
    assert verdicts == {(key, SCALED): "wrong", (key, PLAIN): "pass"}
    facts = record(mini)["facts"]
    assert (facts["peft_commit"], facts["peft_source"], len(facts["peft_tree_sha256"])) == (commit, "checkout peft", 64)
    assert f"peft==0.0.2+g{commit[:12]}.d" in (mini.out / "locks" / f"{key}.txt").read_text()
    assert peft.git("status", "--porcelain") == "M peft.py"  # the build leaves nothing in the checkout


def test_a_branch_of_a_repository_is_measured(mini: Any, run: Callable[..., Any], checkout: Callable[..., Any]) -> None:
    peft = checkout("peft")
    peft.git("switch", "--quiet", "--create", "twice")
    peft.change(TWICE)
    commit = peft.commit()
    peft.git("switch", "--quiet", "main")
    key = f"good+peft@{commit[:7]}"
    assert run(f"peft=git+{peft.folder.as_uri()}@twice") == {(key, SCALED): "wrong", (key, PLAIN): "pass"}
    assert record(mini)["facts"]["peft_commit"] == commit


def test_a_clean_checkout_has_the_name_of_its_commit(run: Callable[..., Any], checkout: Callable[..., Any]) -> None:
    peft = checkout("peft")
    (key,) = {key for key, _ in run(str(peft.folder))}
    assert key == f"good+peft@{peft.git('rev-parse', 'HEAD')[:7]}"


def test_a_wheel_and_a_release_are_laid_over_one_set(mini: Any, run: Callable[..., Any]) -> None:
    wheel = Path(mini.index.removeprefix("file://")) / "peft" / "peft-0.0.1-py3-none-any.whl"
    (key,) = {key for key, _ in run(str(wheel), "trl==0.0.2")}
    assert re.fullmatch(r"good\+peft@wheel\.[0-9a-f]{7}\+trl@0\.0\.2", key)
    assert record(mini)["pins"]["trl"] == "0.0.2"


def test_a_run_with_a_replaced_package_resumes(
    mini: Any, run: Callable[..., Any], checkout: Callable[..., Any]
) -> None:
    peft = checkout("peft")
    run(str(peft.folder))
    done = mini.command("run", "--resume", "--out", str(mini.out))
    assert (done.returncode, len(mini.lines())) == (0, 2), done.stderr
    peft.change(TWICE)
    done = mini.command("run", "--resume", "--out", str(mini.out))
    assert "what --with names has changed since, so start a new run" in done.stderr


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("./nowhere", "no such file or folder; name peft=git+https://"),
        ("peft=git+file:///nowhere/peft@main", "git cannot fetch it ("),
        ("peft=git+http://127.0.0.1:9/o/peft@main", "; check the network"),
        ("peft=git+ext::sh@main", "no address of a git repository"),
        ("peft=git+https://host/peft@--upload-pack=x", "--upload-pack=x is no branch, tag or commit"),
        ("peft==9.9", "there is no version of peft==9.9"),
        ("peft==0.0.2", "peft 0.0.2 requires torch>=0.0.9, but good has torch 0.0.1"),
        ("peft==0.0.1", "good has this release already"),
        ("tinymetrics==0.0.1", "tinymetrics is not part of good; --with replaces packages of a set"),
    ],
)
def test_a_word_that_cannot_be_used_is_refused(refused: Callable[..., str], word: str, sentence: str) -> None:
    assert sentence in refused(word)


@pytest.mark.parametrize(
    ("path", "text", "sentence"),
    [
        ("pyproject.toml", '[build-system]\nrequires = ["setuptools", "ninja"]\n', "it needs compilation (ninja)"),
        ("pyproject.toml", "[build-system\n", "its pyproject.toml is invalid"),
        ("requires.txt", "Requires-Dist: torch>=0.0.9\n", "requires torch>=0.0.9, but good has torch 0.0.1"),
        ("requires.txt", "Requires-Dist: nothing\n", "requires nothing, but good does not have it"),
        ("backend.py", "raise RuntimeError('this does not build')\n", "cannot be installed: "),
    ],
)
def test_a_checkout_that_does_not_fit_is_refused(
    refused: Callable[..., str], checkout: Callable[..., Any], path: str, text: str, sentence: str
) -> None:
    peft = checkout("peft")
    peft.write(path, text)
    assert sentence in refused(str(peft.folder))


def test_a_branch_that_does_not_exist_is_refused(refused: Callable[..., str], checkout: Callable[..., Any]) -> None:
    sentence = refused(f"peft=git+{checkout('peft').folder.as_uri()}@nosuch")
    assert "couldn't find remote ref nosuch" in sentence


def test_two_words_for_one_package_are_refused(refused: Callable[..., str], checkout: Callable[..., Any]) -> None:
    assert "--with names peft twice" in refused(str(checkout("peft").folder), "peft==0.0.2")


def test_a_name_that_the_checkout_does_not_have_is_refused(
    refused: Callable[..., str], checkout: Callable[..., Any]
) -> None:
    assert "this is peft, not trl; correct the name" in refused(f"trl={checkout('peft').folder}")


def test_a_checkout_with_compiled_code_takes_its_libraries_from_the_nearest_wheel(
    mini: Any, run: Callable[..., dict[tuple[str, str], str]], checkout: Callable[..., Any]
) -> None:
    folder = checkout("bitsandbytes").folder
    project = '[build-system]\nrequires = ["scikit-build-core"]\n[project]\nname = "bitsandbytes"\n'
    (folder / "pyproject.toml").write_text(project)
    (folder / "bitsandbytes").mkdir()
    (folder / "bitsandbytes" / "__init__.py").write_text('__version__ = "0.0.2.dev0"\n')
    (key,) = {key for key, _ in run(str(folder))}
    assert key.startswith("good+bitsandbytes@")
    assert record(mini)["facts"]["bitsandbytes_compiled_part"] == "of the wheel of 0.0.1"
    lock = (mini.out / "locks" / f"{key}.txt").read_text()
    assert re.search(r"^bitsandbytes==0\.0\.2\.dev0\+g[0-9a-f]{12}\.d[0-9a-f]{12}\.lib0\.0\.1$", lock, re.MULTILINE)
