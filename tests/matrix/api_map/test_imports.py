"""Predicted imports: what a set of versions misses, and under which conditions code runs."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Protocol

import pytest

from matrix.api_map.imports import ImportPrediction
from matrix.api_map.query import ApiMap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    class FakeIndex(Protocol):
        def add(
            self, package: str, version: str, sources: dict[str, str] | None, day: date, requires: tuple[str, ...] = ()
        ) -> None: ...

    Predict = Callable[[str], list[str]]
    Missed = Callable[..., list[str]]


OLD = {"transformers/__init__.py": "", "transformers/extra.py": "def helper(): pass\ndef other(): pass\n"}
NEW = {"transformers/__init__.py": "", "transformers/extra.py": "def other(): pass\n"}


@pytest.fixture
def predict(index: FakeIndex, updated: Callable[[FakeIndex, Path], object], tmp_path: Path) -> Predict:
    """Predict what ``import trl`` misses with transformers 6.1, which has no ``helper``, if trl has some source."""

    def missed(source: str) -> list[str]:
        index.add("transformers", "6.0.0", OLD, date(2025, 1, 1))
        index.add("transformers", "6.1.0", NEW, date(2025, 2, 1))
        index.add("trl", "2.0.0", {"trl/__init__.py": source}, date(2025, 1, 2))
        updated(index, tmp_path)
        api = ApiMap(tmp_path / "map")
        view = api.at({"transformers": "6.1.0", "trl": "2.0.0"})
        return [each.target for each in ImportPrediction(api=api, view=view).import_name("trl")]

    return missed


HELPER = "from transformers.extra import helper\n"
MISSED = ["transformers.extra.helper"]


def test_an_import_of_a_name_that_is_gone_breaks(predict: Predict) -> None:
    assert predict(HELPER) == MISSED


def test_an_import_of_a_name_that_is_there_does_not(predict: Predict) -> None:
    assert predict("from transformers.extra import other\n") == []


def test_a_name_that_no_release_has_says_nothing(predict: Predict) -> None:
    assert predict("from transformers.extra import made_at_run_time\n") == []


@pytest.mark.parametrize(
    "source",
    [
        f"try:\n    {HELPER}except ImportError:\n    pass\n",
        f"def function():\n    {HELPER}",
        f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {HELPER}",
        f"import transformers\nif version.parse(transformers.__version__) < version.parse('6.1'):\n    {HELPER}",
        f"if is_transformers_version('<', '6.1.0'):\n    {HELPER}",
        f"if is_deepspeed_available():\n    {HELPER}",
        f"if not is_transformers_available():\n    {HELPER}",
    ],
    ids=[
        "handled",
        "in a function",
        "typing",
        "version check",
        "version function",
        "unknown package",
        "absent package",
    ],
)
def test_code_that_does_not_run_breaks_nothing(predict: Predict, source: str) -> None:
    assert predict(source) == []


@pytest.mark.parametrize(
    "source",
    [
        f"if is_transformers_available():\n    {HELPER}",
        f"if is_transformers_version('>=', '6.1.0'):\n    {HELPER}",
        f"try:\n    {HELPER}except ImportError as error:\n    raise RuntimeError from error\n",
    ],
    ids=["available", "version", "raised again"],
)
def test_code_under_a_condition_that_holds_breaks(predict: Predict, source: str) -> None:
    assert predict(source) == MISSED


def test_an_attribute_in_a_class_body_breaks(predict: Predict) -> None:
    assert predict("import transformers.extra\nclass C:\n    x = transformers.extra.helper\n") == MISSED


PAIR = "def _is_package_available(name):\n    return True, '1.0'\n"
FLAG = "def _is_package_available(name):\n    return True\n"
ASKED = "from transformers.utils.import_utils import _is_package_available\n"
KEPT = (
    f"{ASKED}_weave_available = _is_package_available('weave')\n"
    "def is_weave_available():\n    return _weave_available\n"
)
CALLED = f"{ASKED}def is_weave_available():\n    return _is_package_available('weave')\n"
WEAVE = "from trl.import_utils import is_weave_available\nif is_weave_available():\n    import weave\n"


@pytest.fixture
def missed(index: FakeIndex, updated: Callable[[FakeIndex, Path], object], tmp_path: Path) -> Missed:
    """Predict what ``import trl`` misses with a source of transformers, and libraries that are installed."""

    def found(trl: dict[str, str], transformers: dict[str, str], libraries: dict[str, str]) -> list[str]:
        index.add("transformers", "6.0.0", {"transformers/__init__.py": "", **transformers}, date(2025, 1, 1))
        index.add("trl", "2.0.0", trl, date(2025, 1, 2))
        updated(index, tmp_path)
        api = ApiMap(tmp_path / "map")
        view = api.at({"transformers": "6.0.0", "trl": "2.0.0"}, libraries)
        return [each.target for each in ImportPrediction(api=api, view=view).import_name("trl")]

    return found


@pytest.mark.parametrize(
    ("source", "libraries", "expected"),
    [
        ("import weave\n", {}, ["weave"]),
        ("import weave.trace\n", {}, ["weave"]),
        ("from weave import op\n", {"weave": "1.0"}, []),
        ("try:\n    import weave\nexcept ImportError:\n    weave = None\n", {}, []),
        ("def trace():\n    import weave\n", {}, []),
        ("import json, distutils\n", {}, []),
    ],
    ids=["absent", "submodule", "installed", "handled", "in a function", "standard library"],
)
def test_a_library_that_is_not_installed_breaks(
    missed: Missed, source: str, libraries: dict[str, str], expected: list[str]
) -> None:
    assert missed({"trl/__init__.py": source}, {}, libraries) == expected


@pytest.mark.parametrize("helper", [KEPT, CALLED], ids=["kept in a variable", "returned"])
@pytest.mark.parametrize(("result", "expected"), [(PAIR, ["weave"]), (FLAG, [])], ids=["pair", "truth value"])
def test_a_check_that_gets_a_pair_is_always_true(missed: Missed, helper: str, result: str, expected: list[str]) -> None:
    trl = {"trl/__init__.py": WEAVE, "trl/import_utils.py": helper}
    transformers = {"transformers/utils/__init__.py": "", "transformers/utils/import_utils.py": result}
    assert missed(trl, transformers, {}) == expected


@pytest.mark.parametrize(
    ("version", "expected"), [("1.26.4", []), ("2.2.0", ["numpy>=1.17,<2.0"])], ids=["met", "unmet"]
)
def test_a_version_that_is_checked_at_import_breaks(missed: Missed, version: str, expected: list[str]) -> None:
    transformers = {
        "transformers/__init__.py": "from . import dependency_versions_check\n",
        "transformers/dependency_versions_check.py": (
            "from .dependency_versions_table import deps\npkgs_to_check_at_runtime = ['python', 'numpy']\n"
        ),
        "transformers/dependency_versions_table.py": "deps = {'numpy': 'numpy>=1.17,<2.0', 'ray': 'ray>=2.7'}\n",
    }
    source = {"trl/__init__.py": "import transformers\n"}
    assert missed(source, transformers, {"numpy": version}) == expected


def calling(helper: str, source: str = "from .helpers import check\ncheck()\n") -> dict[str, str]:
    return {"trl/__init__.py": source, "trl/helpers.py": helper}


@pytest.mark.parametrize(
    ("helper", "source"),
    [
        ("def check():\n    import weave\n", "from .helpers import check\ncheck()\n"),
        ("def check():\n    import weave\n", "from . import helpers\nx = 1 if helpers.check() else 2\n"),
        ("def check():\n    import weave\n", "from .helpers import check\nclass C:\n    x = check()\n"),
        ("def check():\n    import weave\n", "from .helpers import check\ndef f(x=check()): pass\n"),
        ("def check(f):\n    import weave\n    return f\n", "from .helpers import check\n@check\ndef f(): pass\n"),
        ("class check:\n    def __init__(self):\n        import weave\n", "from .helpers import check\ncheck()\n"),
        ("def inner():\n    import weave\ndef check():\n    return inner()\n", "from .helpers import check\ncheck()\n"),
        ("def check(x=None):\n    if x is None:\n        import weave\n", "from .helpers import check\ncheck()\n"),
        ("def check(x=None):\n    if x:\n        return\n    import weave\n", "from .helpers import check\ncheck()\n"),
    ],
    ids=["called", "in a test", "class body", "default", "decorator", "constructor", "through", "argument", "return"],
)
def test_a_function_that_is_called_at_import_runs(missed: Missed, helper: str, source: str) -> None:
    assert missed(calling(helper, source), {}, {}) == ["weave"]


@pytest.mark.parametrize(
    ("helper", "source"),
    [
        ("def check():\n    import weave\n", "from .helpers import check\ndef f():\n    check()\n"),
        ("def check():\n    import weave\n", "from .helpers import check\ntry:\n    check()\nexcept Exception: ...\n"),
        ("def check():\n    import weave\n", "from .helpers import check\nif flag:\n    check()\n"),
        ("def check(x=None):\n    if x is None:\n        import weave\n", "from .helpers import check\ncheck(1)\n"),
        ("def check(x=None):\n    if x is None:\n        import weave\n", "from .helpers import check\ncheck(y)\n"),
        ("def check(x=0):\n    x = 1\n    if x == 0:\n        import weave\n", "from .helpers import check\ncheck()\n"),
        ("def check():\n    if flag():\n        return\n    import weave\n", "from .helpers import check\ncheck()\n"),
        ("def check():\n    for each in found:\n        import weave\n", "from .helpers import check\ncheck()\n"),
        ("def check():\n    import weave\n    yield\n", "from .helpers import check\ncheck()\n"),
        ("def check():\n    def f():\n        import weave\n", "from .helpers import check\ncheck()\n"),
    ],
    ids=[
        "not called",
        "handled",
        "unknown test",
        "argument",
        "unknown argument",
        "assigned argument",
        "returned before",
        "loop",
        "generator",
        "inner function",
    ],
)
def test_a_part_of_a_function_that_may_not_run_breaks_nothing(missed: Missed, helper: str, source: str) -> None:
    assert missed(calling(helper, source), {}, {}) == []
