"""Sessions only: what each does is a command of the package or a tool's.

``nox -s matrix`` runs the default version sets, ``nox -s "matrix(2025-09)"`` one of them; what stands behind ``--``
goes to ``ftmatrix run``.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["tests", "lint", "types"]
nox.options.reuse_existing_virtualenvs = True

HERE = Path(__file__).parent
PROJECT = nox.project.load_toml("pyproject.toml")
SETS = tomllib.loads((HERE / "matrix" / "versions" / "versions.toml").read_text(encoding="utf-8"))["sets"]


def install(session: nox.Session, *groups: str) -> None:
    """The harness, editable, with what a session needs beside it."""
    wanted = nox.project.dependency_groups(PROJECT, *groups) if groups else ()
    session.install("-q", "-e", ".", *wanted)


def ftmatrix(session: nox.Session, *arguments: str) -> None:
    """The command, from the one environment that all these sessions share."""
    environments = Path(session.cache_dir).parent
    session.run(str(environments / "harness" / "bin" / "ftmatrix"), *arguments, *session.posargs, external=True)


@nox.session(default=False)
def harness(session: nox.Session) -> None:
    """The environment of the sessions that run the command."""
    install(session)


def command(name: str, does: str, *arguments: str) -> None:
    """A session that runs one command."""

    @nox.session(name=name, default=False, venv_backend="none", requires=["harness"])
    def run(session: nox.Session) -> None:
        ftmatrix(session, *arguments)

    run.__doc__ = does


command("matrix", "Install the default version sets, run the cells, render the matrix.", "run")
for each in SETS:
    command(f"matrix({each})", f"The same on {each}.", "run", "--sets", each)
command("report", "Render a run again: `nox -s report -- DIRECTORY`, or the newest.", "report")
command("known_problems", "Run what upstream threads report: reproduced, or not, or needs other hardware.", "known")
command("selfcheck", "Plant faults in a working stack: the share that is caught, and false alarms.", "selfcheck")
command("bench", "Measure a warm cell beside torchrun and accelerate launch, and where its time goes.", "bench")


@nox.session
def tests(session: nox.Session) -> None:
    """Unit tests, the whole harness on a fake ecosystem, and one real version set."""
    install(session, "tests")
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session(default=False)
def minimatrix(session: nox.Session) -> None:
    """Only the whole harness on a fake ecosystem."""
    install(session, "tests")
    session.run("pytest", "tests/minimatrix", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, and formatting."""
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict."""
    install(session, "types", "tests")
    session.run("mypy")
