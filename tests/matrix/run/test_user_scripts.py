"""Tests reading the user's scripts from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from matrix.run.execute import Suite
from matrix.run.user_scripts import load

if TYPE_CHECKING:
    from pathlib import Path

GOOD = '[scripts.mine]\ncommand = ["torchrun", "train.py", "{out}"]\nranks = 2\nwrites = ["x"]\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "scripts.toml"
    path.write_text(text)
    return path


def test_a_script_becomes_a_case_that_starts_in_the_folder_of_its_file(tmp_path: Path) -> None:
    (script,) = load(written(tmp_path, GOOD))
    suite = Suite(scripts=(script,))
    assert (suite.cases["script-mine"].ranks, script.folder) == (2, str(tmp_path))
    assert b"train.py" in suite.files["scripts.json"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file has no table; add [scripts.NAME]"),
        ("scripts = 3", "the file has no table; add [scripts.NAME]"),
        ("[scripts.mine]\n", "scripts.mine.command: expected a list of words"),
        ('[scripts.mine]\ncommand = "torchrun train.py"', "expected a list of words, got 'torchrun train.py'"),
        ("[scripts.mine]\ncommand = []", "the first of which is a program"),
        (GOOD.replace("ranks = 2", "ranks = 3"), "scripts.mine.ranks: expected one of 1, 2, 4, got 3"),
        (GOOD + 'comand = "x"\n', "expected command, ranks, writes, why"),
        (GOOD.replace("mine", '"My Script"'), "use lower-case letters"),
        ("[scripts", "--scripts"),
    ],
)
def test_a_malformed_script_raises_a_user_error(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        load(written(tmp_path, text))
    assert sentence in str(refused.value)


def test_a_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        load(tmp_path / "nowhere.toml")
