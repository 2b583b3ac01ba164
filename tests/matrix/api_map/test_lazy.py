"""What lazy modules export: names that a ``__getattr__`` looks up, and placeholders for what is not installed."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Protocol

import pytest

from matrix.api_map.imports import ImportPrediction
from matrix.api_map.query import ApiMap
from matrix.api_map.view import Presence

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    class FakeIndex(Protocol):
        def add(self, package: str, version: str, sources: dict[str, str], day: date) -> None: ...

    Built = Callable[[dict[str, str]], ApiMap]


@pytest.fixture
def built(index: FakeIndex, updated: Callable[[FakeIndex, Path], object], tmp_path: Path) -> Built:
    """Build a map with a release of transformers that has some sources."""

    def build(sources: dict[str, str]) -> ApiMap:
        index.add("transformers", "6.0.0", sources, date(2025, 1, 1))
        updated(index, tmp_path)
        return ApiMap(tmp_path / "map")

    return build


GETATTR = """
_old = {"first": f}
_lazy = {"second", "third"}
def __getattr__(name):
    replacement = _old.get(name)
    if replacement is not None:
        return replacement()
    if name in _lazy:
        return importlib.import_module(name)
    raise AttributeError(name)
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [("first", Presence.THERE), ("third", Presence.THERE), ("fourth", Presence.MISSING)],
)
def test_a_module_that_looks_names_up_in_tables_has_only_these(built: Built, name: str, expected: Presence) -> None:
    view = built({"transformers/__init__.py": GETATTR}).at({"transformers": "6.0.0"})
    assert view.presence(f"transformers.{name}") is expected


def test_a_module_that_answers_for_unknown_names_may_have_any(built: Built) -> None:
    source = "def __getattr__(name):\n    return importlib.import_module(name)\n"
    view = built({"transformers/__init__.py": source}).at({"transformers": "6.0.0"})
    assert view.presence("transformers.fourth") is Presence.UNKNOWN


STRUCTURE = """
_import_structure = {"base": ["Base"]}
try:
    if not is_trl_available():
        raise OptionalDependencyNotAvailable()
except OptionalDependencyNotAvailable:
    from .utils import dummy_objects
    _import_structure["utils.dummy_objects"] = [name for name in dir(dummy_objects)]
else:
    _import_structure["trainer"] = ["Trainer"]
"""
SCANNED = "define_import_structure(Path(__file__).parent / 'models', prefix='models')\n"
RULES = "BASE_FILE_REQUIREMENTS = {\n    lambda name, content: 'modeling_' in name: ('trl',),\n}\n"
MODULES = {
    "transformers/base.py": "import weave\nclass Base: pass\n",
    "transformers/trainer.py": "import weave\nclass Trainer: pass\n",
    "transformers/utils/__init__.py": "",
    "transformers/utils/import_utils.py": RULES,
    "transformers/models/__init__.py": "",
    "transformers/models/auto.py": (
        "import weave\n__all__ = ['Auto']\n@requires(backends=('trl',))\nclass Auto: pass\n"
        "@requires(backends=())\nclass Free: pass\n"
    ),
    "transformers/models/modeling_a.py": "import weave\n__all__ = ['Model']\nclass Model: pass\n",
}


@pytest.mark.parametrize(
    ("name", "has_trl", "runs"),
    [
        ("Base", False, True),
        ("Trainer", False, False),
        ("Trainer", True, True),
        ("Auto", False, False),
        ("Auto", True, True),
        ("Free", False, True),
        ("Model", False, False),
        ("Model", True, True),
    ],
)
def test_an_export_runs_its_module_only_with_what_it_needs(
    built: Built, name: str, *, has_trl: bool, runs: bool
) -> None:
    api = built({"transformers/__init__.py": STRUCTURE + SCANNED, **MODULES})
    view = api.at({"transformers": "6.0.0", **({"trl": "0.9.0"} if has_trl else {})}, {"weave": "1.0"})
    prediction = ImportPrediction(api=api, view=view)
    prediction.import_name(f"transformers.{name}")
    sources = {
        "transformers.base",
        "transformers.trainer",
        "transformers.models.auto",
        "transformers.models.modeling_a",
    }
    assert bool(sources & prediction.executed.keys()) is runs


@pytest.mark.parametrize(
    ("test", "runs"),
    [
        ("name.startswith('modeling_')", False),
        ("'modeling_' in name and name.endswith('_a')", False),
        ("'modeling_' in name and name.endswith('_b')", True),
        ("'modeling_' in name and PATTERN.search(content)", True),
    ],
)
def test_a_rule_for_files_counts_if_it_can_be_told(built: Built, test: str, *, runs: bool) -> None:
    rules = f"BASE_FILE_REQUIREMENTS = {{\n    lambda name, content: {test}: ('trl',),\n}}\n"
    api = built({"transformers/__init__.py": SCANNED, **MODULES, "transformers/utils/import_utils.py": rules})
    prediction = ImportPrediction(api=api, view=api.at({"transformers": "6.0.0"}, {}))
    prediction.import_name("transformers.Model")
    assert ("transformers.models.modeling_a" in prediction.executed) is runs


def test_an_export_may_have_what_it_needs_if_no_version_is_stated(built: Built) -> None:
    api = built({"transformers/__init__.py": STRUCTURE, **MODULES})
    prediction = ImportPrediction(api=api, view=api.at({"transformers": "6.0.0"}))
    prediction.import_name("transformers.Trainer")
    assert "transformers.trainer" in prediction.executed
