"""Tests reading inline metadata of scripts (PEP 723)."""

from __future__ import annotations

import pytest

from matrix.errors import UserError
from matrix.run.scripts.script_metadata import ScriptMetadata, parse


def block(*lines: str) -> str:
    return "\n".join(["# /// script", *(f"# {line}" if line else "#" for line in lines), "# ///", "import os", ""])


def test_dependencies_python_and_the_table_are_read() -> None:
    text = block('requires-python = ">=3.11"', 'dependencies = ["a>=1"]', "", "[tool.ftmatrix]", "ranks = 2")
    expected = ScriptMetadata(dependencies=("a>=1",), requires_python=">=3.11", table={"ranks": 2})
    assert parse(text, "train.py") == expected


def test_a_script_without_metadata_has_none() -> None:
    assert parse("import os\n", "train.py") == ScriptMetadata()


def test_tables_of_other_tools_and_other_blocks_are_ignored() -> None:
    other = "# /// pyproject\n# [x]\n# ///\n\n"
    assert parse(other + block("[tool.uv]", "x = 1"), "train.py") == ScriptMetadata()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# /// script\n# dependencies = []\nimport os\n", "the block `# /// script` does not end"),
        (block("") + block(""), "there is more than one block"),
        (block("dependencies = ["), "the block `# /// script` is not valid TOML"),
        (block('dependancies = ["a"]'), "train.py: dependancies: expected dependencies, requires-python or"),
        (block('dependencies = "a"'), "train.py: dependencies: expected a list of requirements"),
        (block('dependencies = ["a @ https://example.org/a.whl"]'), "names an address; name a package of the index"),
        (block("requires-python = 3.11"), "train.py: requires-python: expected a specifier"),
        (block("[tool]", "ftmatrix = 3"), "train.py: tool.ftmatrix: expected a table"),
        (block("tool = 3"), "train.py: tool.ftmatrix: expected a table"),
    ],
)
def test_malformed_metadata_raises_a_user_error(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        parse(text, "train.py")
    assert sentence in str(refused.value)
