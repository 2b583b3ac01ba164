"""A script of the site that repeats steps of Python names its functions and their digest, so that both change together.

The scripts say ``// Follows FILE (NAMES) as of DIGEST.``, with names of functions, classes and methods.
"""

from __future__ import annotations

import ast
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from reports.site.build import DIAGNOSIS_SCRIPTS
from reports.site.writer import STATIC

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[4]
FOLLOWS: Final = re.compile(r"^// Follows (\S+) \(([^)]+)\) as of (\w+)\.$", re.MULTILINE)
OWN_STEPS: Final = {"rules"}  # which only compiles what Python exports
LENGTH: Final = 8


class Followed(NamedTuple):
    script: str
    module: str
    names: str
    digest: str


def followed() -> list[Followed]:
    paths = sorted(STATIC.rglob("*.js"))
    return [
        Followed(path.relative_to(STATIC).as_posix(), *found)
        for path in paths
        for found in FOLLOWS.findall(path.read_text(encoding="utf-8"))
    ]


def definitions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, ast.FunctionDef))


def digest(text: str, names: str) -> str:
    """Return the digest of some definitions, without comments, docstrings and the layout of their lines."""
    known = dict(definitions(ast.parse(text)))
    code = "\n".join(code_of(known[name.strip()], text.splitlines()) for name in names.split(","))
    return hashlib.sha256(code.encode()).hexdigest()[:LENGTH]


def code_of(node: ast.FunctionDef | ast.ClassDef, lines: list[str]) -> str:
    kept = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for each in ast.walk(node):
        if isinstance(each, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(each) is not None:
            docstring = each.body[0]
            kept -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    code = (lines[number - 1].partition("  # ")[0] for number in sorted(kept))
    return "".join("".join(line.split()) for line in code if not line.lstrip().startswith("#"))


@pytest.mark.parametrize("row", followed(), ids=lambda row: f"{row.script}-{row.module.rpartition('/')[2]}")
def test_a_script_follows_the_present_functions(row: Followed) -> None:
    now = digest((ROOT / row.module).read_text(encoding="utf-8"), row.names)
    advice = f"make the same change in {row.script}, run tests/browser/test_explanations.py, then write: as of {now}"
    assert now == row.digest, f"{row.module} has changed: {advice}"


def test_every_script_of_the_diagnosis_names_what_it_follows() -> None:
    named = {row.script for row in followed()}
    assert {f"diagnosis/{name}.js" for name in DIAGNOSIS_SCRIPTS if name not in OWN_STEPS} <= named
    assert {path.stem for path in (STATIC / "diagnosis").iterdir()} == {*DIAGNOSIS_SCRIPTS}


@pytest.mark.parametrize(
    ("changed", "is_noticed"),
    [
        ('def f(a):\n    """Other words."""\n    return a + 1  # why\n', False),
        ("def f(a):\n    # why\n    return (\n        a + 1\n    )\n", True),
        ("def f(a):\n    return a + 2\n", True),
        ("X = 3\n\n\ndef f(a):\n    return a + 1\n", False),
    ],
)
def test_a_digest_notices_a_change_of_the_code_alone(changed: str, is_noticed: bool) -> None:  # noqa: FBT001
    code = 'def f(a):\n    """Words."""\n    return a + 1\n'
    assert (digest(changed, "f") != digest(code, "f")) is is_noticed
