"""Tests reading the user's scripts from files: tables, inline metadata, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.flows.script_metrics import Bound
from cases.flows.scripts import AdapterRules, Script
from matrix.errors import UserError
from matrix.run.execute import Suite
from matrix.run.scripts.user_scripts import load, load_all

if TYPE_CHECKING:
    from pathlib import Path

GOOD = '[scripts.mine]\ncommand = ["torchrun", "train.py", "{out}"]\nranks = 2\nwrites = ["x"]\n'
BLOCK = (
    '# /// script\n# dependencies = ["tabulate", "peft>=0.15"]\n#\n# [tool.ftmatrix]\n# ranks = 2\n# ///\nprint(1)\n'
)


def written(folder: Path, text: str, name: str = "scripts.toml") -> Path:
    (folder / "train.py").touch()
    path = folder / name
    path.write_text(text)
    return path


def with_table(lines: str) -> str:
    """A Python script with these lines in its ``[tool.ftmatrix]``."""
    inside = "\n".join(f"# {line}" for line in ("[tool.ftmatrix]", *lines.splitlines()))
    return f"# /// script\n{inside}\n# ///\n"


def test_a_script_becomes_a_case_that_starts_in_the_folder_of_its_file(tmp_path: Path) -> None:
    (script,) = load(written(tmp_path, GOOD))
    suite = Suite(scripts=(script,))
    assert (suite.cases["script-mine"].ranks, script.folder) == (2, str(tmp_path))
    assert b"train.py" in suite.files["scripts.json"]


def test_a_python_file_becomes_a_case_with_its_metadata(tmp_path: Path) -> None:
    (script,) = load(written(tmp_path, BLOCK, "My-Train.py"))
    assert (script.name, script.ranks) == ("my_train", 2)
    assert script.dependencies == ("tabulate", "peft>=0.15")
    assert script.command[-2:] == ("2", "{script}")


def test_a_python_file_without_metadata_runs_with_python(tmp_path: Path) -> None:
    assert load(written(tmp_path, "print(1)\n", "train.py"))[0].command == ("{python}", "{script}")


def test_a_table_extends_and_overrides_the_metadata_of_its_script(tmp_path: Path) -> None:
    written(tmp_path, BLOCK, "train.py")
    (script,) = load(written(tmp_path, '[scripts.one]\nscript = "train.py"\nranks = 1\ndependencies = ["a"]\n'))
    assert (script.name, script.ranks, script.dependencies) == ("one", 1, ("tabulate", "peft>=0.15", "a"))


def test_bounds_and_the_adapter_are_read(tmp_path: Path) -> None:
    lines = 'adapter = "lora"\ntimeout_s = 7\nmetrics = { loss = { max = 2, decreases = true }, "eval/f1" = {} }'
    (script,) = load(written(tmp_path, with_table(lines), "train.py"))
    assert script.metrics == {"loss": Bound(max=2.0, decreases=True), "eval/f1": Bound()}
    assert (script.adapter, script.timeout_s) == (AdapterRules(folder="lora"), 7.0)


def test_a_declaration_survives_the_way_into_an_environment(tmp_path: Path) -> None:
    lines = 'adapter = { unchanged = ["*.experts.*"] }\nmetrics = { loss = { max = 2 } }\nwrites = ["x"]'
    (script,) = load(written(tmp_path, with_table(lines), "train.py"))
    assert Script.of(script.plain) == script


def test_an_edit_of_the_script_changes_the_code_of_its_cell(tmp_path: Path) -> None:
    digests = set()
    for text in ("print(1)\n", "print(2)\n"):
        written(tmp_path, text, "train.py")
        digests.add(Suite(scripts=load(tmp_path / "train.py")).code.digest)
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file has no table; add [scripts.NAME]"),
        ("scripts = 3", "the file has no table; add [scripts.NAME]"),
        ("scripts = { a = 3 }", "scripts.a: expected a table, got 3"),
        ("[scripts.mine]\n", "scripts.mine.command: expected a list of words"),
        ('[scripts.mine]\ncommand = "torchrun train.py"', "expected a list of words, got 'torchrun train.py'"),
        ("[scripts.mine]\ncommand = []", "the first of which is a program"),
        (GOOD.replace("ranks = 2", "ranks = 3"), "scripts.mine.ranks: expected one of 1, 2, 4, got 3"),
        (GOOD + 'comand = "x"\n', "scripts.mine.comand: unknown key; did you mean command?"),
        (GOOD + "xyz = 1\n", "scripts.mine.xyz: unknown key; expected command, ranks"),
        (GOOD + "why = 3\n", "scripts.mine.why: expected text in quotes, got 3"),
        (GOOD + 'writes = ["a"]\n', "--scripts"),  # twice: no TOML
        (GOOD.replace('"x"', '"/etc/x"'), "scripts.mine.writes: '/etc/x': expected a path below {out}"),
        (GOOD.replace("mine", '"My Script"'), "use lower-case letters"),
        ("[scripts", "--scripts"),
        (GOOD.replace("train.py", "gone.py"), "gone.py: there is no such script"),
        (GOOD.replace("train.py", "{script}"), '{script} stands for no file; add script = "FILE"'),
        (GOOD.replace('"torchrun", "train.py"', '"bash", "gone.sh"'), "gone.sh: there is no such script"),
        (GOOD.replace("torchrun", "./launch.sh"), "./launch.sh: there is no such program"),
        (GOOD.replace("torchrun", "./train.py"), "you may not execute it; run `chmod +x ./train.py`"),
        ('[scripts.mine]\nscript = "gone.py"\n', "gone.py: there is no such script"),
        (GOOD + 'dependencies = ["a b"]\n', "scripts.mine.dependencies: 'a b' is no requirement"),
        (GOOD + 'requires-python = "three"\n', "scripts.mine.requires-python: expected a specifier"),
    ],
)
def test_a_malformed_script_raises_a_user_error(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        load(written(tmp_path, text))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("metrics = 3", "tool.ftmatrix.metrics: expected a table, got 3"),
        ("metrics = { loss = { most = 3 } }", "metrics.loss.most: unknown key; expected min, max"),
        ("metrics = { loss = { decrease = true } }", "metrics.loss.decrease: unknown key; did you mean decreases?"),
        ('metrics = { loss = { max = "2" } }', "metrics.loss.max: expected a number, got '2'"),
        ("metrics = { loss = { max = nan } }", "metrics.loss.max: expected a number, got nan"),
        ("metrics = { loss = { decreases = 1 } }", "metrics.loss.decreases: expected true or false, got 1"),
        ("metrics = { loss = { min = 2, max = 1 } }", "metrics.loss: min 2 is above max 1"),
        ("metrics = { loss = { decreases = true, increases = true } }", "it cannot both decrease and increase"),
        ("adapter = 3", "tool.ftmatrix.adapter: expected a table, got 3"),
        ('adapter = { path = "x" }', "tool.ftmatrix.adapter.path: unknown key"),
        ('adapter = "../x"', "expected a path below {out}"),
        ("timeout_s = 0", "timeout_s: expected seconds above 0"),
        ("timeout_s = true", "timeout_s: expected a number, got True"),
        ('dependencies = ["a"]', "tool.ftmatrix.dependencies: unknown key"),
    ],
)
def test_a_malformed_declaration_raises_a_user_error(tmp_path: Path, lines: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        load(written(tmp_path, with_table(lines), "train.py"))
    assert sentence in str(refused.value)


def test_two_scripts_of_one_name_are_refused(tmp_path: Path) -> None:
    files = [written(tmp_path, "print(1)\n", name) for name in ("a-b.py", "a_b.py")]
    with pytest.raises(UserError, match="has the same name, a_b; name one otherwise"):
        load_all(files)


def test_a_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        load(tmp_path / "nowhere.toml")


def test_a_missing_python_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.py: there is no such script; correct its path"):
        load(tmp_path / "nowhere.py")
