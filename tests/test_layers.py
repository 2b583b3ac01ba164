"""Imports point one way: noxfile, reports, matrix, and of `cases` only what declares."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

HERE = Path(__file__).parents[1]
LAYERS = ("noxfile", "reports", "matrix", "cases")  # each may import what stands behind it
STACK = {"torch", "transformers", "peft", "bitsandbytes", "accelerate", "trl"}
LONGEST = 400  # lines of a module
# For people without this project; tested in test_reproducers.py and test_plain_scripts.py.
SCRIPTS = {HERE / "matrix" / each for each in ("known/reproducers", "known/sizes", "experiments/scripts")}
MODULES = [
    HERE / "noxfile.py",
    *(path for each in LAYERS[1:] for path in sorted((HERE / each).rglob("*.py")) if SCRIPTS.isdisjoint(path.parents)),
]

PATHS = {".".join(path.relative_to(HERE).with_suffix("").parts).removesuffix(".__init__"): path for path in MODULES}
# Modules that install, run, search or draw.
ACTING = (
    "matrix.api_map.build",
    "matrix.api_map.measured.measure",
    "matrix.api_map.measured.series",
    "matrix.api_map.reading.facts_cache",
    "matrix.api_map.reading.index",
    "matrix.api_map.verify",
    "matrix.bisect",
    "matrix.environments",
    "matrix.experiments",
    "matrix.offline",
    "matrix.processes",
    "matrix.run.execute",
    "matrix.run.fit",
    "matrix.run.machine",
    "matrix.run.pipeline",
    "matrix.run.request",
    "matrix.run.scripts.user_scripts",
    "matrix.search.finder",
    "matrix.search.runner",
    "matrix.search.target",
    "matrix.versions.locking",
    "matrix.versions.uv",
    "reports.cli",
    "reports.commands",
    "reports.render",
)


class ModuleFacts(NamedTuple):
    """What the tests below need of a module; ``runtime_imports`` leaves out those for type checkers only."""

    imports: tuple[str, ...]
    runtime_imports: tuple[str, ...]
    classes: frozenset[str]


@cache
def facts(path: Path) -> ModuleFacts:
    """Read a file, once for all tests. Imports within functions count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = tuple(imported_modules(tree))
    classes = frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    return ModuleFacts(imports, tuple(imported_modules(tree)), classes)


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def closure(package: str) -> dict[str, tuple[str, ...]]:
    """Our modules that a package imports, directly or not, each with the chain of modules that leads to it."""
    chains: dict[str, tuple[str, ...]] = {
        module: (module,) for module in PATHS if f"{module}.".startswith(f"{package}.")
    }
    unread = list(chains)
    while unread:
        module = unread.pop(0)
        for imported in facts(PATHS[module]).runtime_imports:
            if imported in PATHS and imported not in chains:
                chains[imported] = (imported, *chains[module])
                unread.append(imported)
    return chains


def importers(paths: Iterable[Path], forbidden: Callable[[Path], Collection[str]]) -> dict[str, list[str]]:
    """The modules of forbidden packages that each file imports, without files that import none."""
    found = {
        str(path.relative_to(HERE)): [each for each in facts(path).imports if each.partition(".")[0] in forbidden(path)]
        for path in paths
    }
    return {name: modules for name, modules in found.items() if modules}


def layer(path: Path) -> str:
    return path.relative_to(HERE).parts[0].removesuffix(".py")


def test_modules_import_only_from_their_layer_and_those_below() -> None:
    assert importers(MODULES, lambda path: LAYERS[: LAYERS.index(layer(path))]) == {}


def test_only_cases_meet_the_stack() -> None:
    assert importers((path for path in MODULES if layer(path) != "cases"), lambda _: STACK) == {}


def test_answers_import_nothing_that_installs_runs_or_searches() -> None:
    """Follows imports at every depth, those within functions included. Imports for type checkers only do not count."""
    reached = {module: chain for module, chain in closure("reports.answers").items() if module.startswith(ACTING)}
    assert {module: " <- ".join(chain) for module, chain in reached.items()} == {}


def test_no_two_files_import_each_other() -> None:
    """Imports inside functions and for type checking count."""
    assert circles(import_graph(MODULES)) == []


def import_graph(paths: list[Path]) -> dict[str, set[str]]:
    """The modules that each module imports, by dotted name; of a package, those of its ``__init__.py``."""
    known = {".".join(path.relative_to(HERE).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    return {
        module: {name for name in facts(path).imports if name in known} - {module} for module, path in known.items()
    }


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others of the group."""
    reached = {module: reachable(graph, module) for module in graph}
    groups = {frozenset({other for other in reached[module] if module in reached[other]}) for module in graph}
    return sorted(sorted(group) for group in groups if group)


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """The modules that ``start`` imports, and those that these import, and so on."""
    found: set[str] = set()
    waiting = [*graph[start]]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += graph[module]
    return found


def test_a_circle_of_three_modules_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert circles(graph) == [["a", "b", "c"]]


def test_sessions_import_nothing_of_ours() -> None:
    """They run in nox's environment, where the package is not installed."""
    assert importers([HERE / "noxfile.py"], lambda _: LAYERS) == {}


def test_the_command_starts_without_the_stack() -> None:
    hidden = "; ".join(f"sys.modules[{package!r}] = None" for package in sorted(STACK))  # importing these raises
    imported = "import reports.cli, cases.suite, cases.checks.engagement.evidence; reports.cli.application()"
    start = f"import sys; {hidden}; {imported}"
    done = subprocess.run([sys.executable, "-c", start], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_module_is_longer_than_400_lines() -> None:
    assert [path.name for path in MODULES if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST] == []


def test_no_class_name_has_two_meanings() -> None:
    names = [facts(path).classes for path in MODULES]
    assert [name for name, number in Counter(name for each in names for name in each).items() if number > 1] == []
