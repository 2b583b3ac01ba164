"""Sessions: each runs a command of the package, or a tool.

``nox -s matrix`` runs the default version sets, and ``nox -s "matrix(2025-09)"`` one of them. Arguments after ``--``
are passed to ``ftmatrix run``.
"""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import nox

if TYPE_CHECKING:
    from collections.abc import Mapping

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["tests", "lint", "types"]
nox.options.reuse_existing_virtualenvs = True

HERE = Path(__file__).parent
PROJECT = nox.project.load_toml("pyproject.toml")
# Tests start hundreds of processes; images that switch off bytecode would let each of them compile every module again.
KEEP_COMPILED: Final[Mapping[str, str | None]] = {"PYTHONDONTWRITEBYTECODE": None}
NO_TESTS: Final = 5  # the exit code of pytest if a selection has none
SETS = tomllib.loads((HERE / "matrix" / "versions" / "versions.toml").read_text(encoding="utf-8"))["sets"]


def install(session: nox.Session, *groups: str) -> None:
    """Install the harness in editable mode, with dependency groups."""
    requirements = nox.project.dependency_groups(PROJECT, *groups) if groups else ()
    session.install("-q", "-e", ".", *requirements)


def ftmatrix(session: nox.Session, *arguments: str) -> None:
    """Run the command from the environment that all these sessions share."""
    environments = Path(session.cache_dir).parent
    session.run(str(environments / "harness" / "bin" / "ftmatrix"), *arguments, *session.posargs, external=True)


@nox.session(default=False)
def harness(session: nox.Session) -> None:
    """Create the environment of the sessions that run the command."""
    install(session)


def command(name: str, summary: str, *arguments: str) -> None:
    """Define a session that runs one command."""

    @nox.session(name=name, default=False, venv_backend="none", requires=["harness"])
    def run(session: nox.Session) -> None:
        ftmatrix(session, *arguments)

    run.__doc__ = summary


command("matrix", "Install the default version sets, run the cells, render the matrix.", "run")
for each in SETS:
    command(f"matrix({each})", f"Install {each}, run its cells, render the matrix.", "run", "--sets", each)
command("diff", "Compare two results: `nox -s diff -- baseline DIRECTORY`.", "diff")
command("nightly", "Measure new releases, and name the package that broke a cell.", "nightly")
command("map", "Add new releases to the map of the API.", "map", "update")
command("notify", "Send the alerts of a night: `nox -s notify -- ALERTS.json`.", "notify")
command(
    "site",
    "Write the site of all published results to ./site, or: `nox -s site -- --site FOLDER`.",
    "report",
    "--site",
    "site",
)
command("report", "Render a run again: the latest one, or `nox -s report -- DIRECTORY`.", "report")
command(
    "known_problems",
    "Run the cases of upstream issues: reproduced, red with another error, not reproduced, or not runnable here.",
    "known",
)
command(
    "reproducers",
    "Run the scripts of findings, each without this project; name the folder of the record with --out.",
    "known",
    "--findings",
    "--reproduce",
)
command("selfcheck", "Inject faults into a working stack; report how many are caught, and false alarms.", "selfcheck")
command("mutate", "Change the installed stack in small ways; report the share that cells notice.", "mutate")
command("bench", "Compare the time of a cell with torchrun and accelerate launch, and break it down.", "bench")


@nox.session
def tests(session: nox.Session) -> None:
    """Run unit tests, the whole harness on a fake ecosystem, and one real version set."""
    install(session, "tests")
    session.run("pytest", "-n", "auto", "--dist", "worksteal", *session.posargs, env=KEEP_COMPILED)


@nox.session(default=False)
def browser(session: nox.Session) -> None:
    """Test the site of the published results in Chromium: the system's, or the one that FTMATRIX_CHROMIUM names."""
    install(session, "tests", "browser")
    times = "tests/browser/test_scale.py"  # runs alone, because it measures them, on sites that the others wrote
    others = ("-n", "auto", "--maxschedchunk", "1", "tests/browser", "--ignore", times)
    with tempfile.TemporaryDirectory(prefix="ftmatrix-sites-") as sites:
        environ = {**KEEP_COMPILED, "FTMATRIX_SITES": sites}
        for words in (others, (times,)):
            session.run("pytest", *words, *session.posargs, env=environ, success_codes=[0, NO_TESTS])


@nox.session(default=False)
def scale(session: nox.Session) -> None:
    """Measure the site of 100,000 made-up cells, written and used in Chromium, on a machine without other work."""
    install(session, "tests", "browser")
    session.run("python", "-m", "tests.browser.measure_scale")


@nox.session(default=False)
def tasks(session: nox.Session) -> None:
    """Count clicks, keys and seconds of the usual tasks on the site of the published results, in Chromium."""
    install(session, "tests", "browser")
    folder = session.create_tmp()
    session.run("ftmatrix", "report", "reports/published", "--site", f"{folder}/site")
    session.run("python", "-m", "tests.browser.measure_tasks", f"{folder}/site")


@nox.session(default=False)
def pictures(session: nox.Session) -> None:
    """Take the pictures of the documentation from the site of the published results, in Chromium."""
    install(session, "tests", "browser")
    folder = session.create_tmp()
    session.run("ftmatrix", "report", "reports/published", "--site", f"{folder}/site")
    session.run("python", "tests/browser/take_pictures.py", f"{folder}/site")


@nox.session(default=False)
def minimatrix(session: nox.Session) -> None:
    """Run the whole harness on a fake ecosystem."""
    install(session, "tests")
    session.run("pytest", "tests/minimatrix", *session.posargs, env=KEEP_COMPILED)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting, and the security of workflows."""
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("zizmor", "--offline", "--quiet", ".github", "action.yml")


@nox.session(default=False)
def workflows(session: nox.Session) -> None:
    """Check the syntax of workflows. Separate from lint, because this tool is downloaded from github.com."""
    session.install("-q", *nox.project.dependency_groups(PROJECT, "workflows"))
    session.run("actionlint")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy in strict mode."""
    install(session, "types", "tests", "browser")
    session.run("mypy")
