"""The command line: registers the commands, and ends with a sentence instead of a traceback."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

import typer

from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

BAD_INPUT, INTERRUPTED = 2, 130
RESUME: Final = "finished cells are kept; add --resume to the same command to run the rest"
KEPT: Final = {
    "run": RESUME,
    "known": RESUME,
    "diff": "finished repeats are kept; the same command runs the rest",
    "fix": RESUME,
    "selfcheck": "finished cells are kept; --resume with the same --out runs the rest, except for --crashes",
    "mutate": "finished cells are kept; --resume with the same --out runs the rest",
    "nightly": "finished cells are kept; the same command continues the night",
    "notify": "what is not sent yet is kept; the same command sends it",
    "pr": "finished cells of both sides are kept; the same command continues",
    "bisect": "finished cells are kept; the same command continues",
    "pack": "complete wheels are kept; the same command downloads the rest",
    "unpack": "nothing is unpacked in part; the same command begins again",
}  # by command: the results that survive an interruption, and the command that continues
HELP: Final = (
    "Measure which versions and settings of LLM fine-tuning stacks work together, and answer from the results."
)
COMMANDS: Final = (
    *("run", "plan", "report", "explain", "fix", "recommend", "can-i-use", "doctor", "check"),
    *("nightly", "diff", "pr", "bisect", "history", "baseline", "notify"),
    *("devices", "repro", "known", "selfcheck", "mutate", "bench", "pack", "unpack", "sets", "map"),
)


FOLDERS: Final = {
    "pack": "offline",
    "unpack": "offline",
    "check": "api",
    "map": "api",
}  # by command: the folder of its module, below commands/


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the command line with some of its commands; only their modules are imported."""
    app = typer.Typer(
        name="ftmatrix",
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(several_commands)
    for name in names:
        add(app, name)
    return app


def several_commands() -> None:
    """Let an application of one command expect its name: typer takes it for the command itself without a callback."""


def add(app: typer.Typer, name: str) -> None:
    """Register a command: the function of its name in the module of its name, or the commands below it."""
    module = module_of(name)
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name)
    else:  # the docstring ends with the exit codes
        epilog = (module.__doc__ or "").partition("\n\n")[2].replace("\n", " ")
        app.command(name, epilog=epilog)(getattr(module, name.replace("-", "_")))


def module_of(name: str) -> ModuleType:
    folder = f"{FOLDERS[name]}." if name in FOLDERS else ""
    return import_module(f"reports.commands.{folder}{name.replace('-', '_')}")


def named_first(words: list[str]) -> tuple[str, ...]:
    """Return the command that the words begin with, or all commands: help and errors list them."""
    return (words[0],) if words and words[0] in COMMANDS else COMMANDS


def main() -> None:
    """Run the command line; report a user's mistake in one sentence."""
    gc.set_threshold(200_000)  # published results produce no garbage, and looking for it takes a third of the time
    try:
        application(named_first(sys.argv[1:]))()
    except UserError as error:
        print(f"ftmatrix: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        interrupted()
    except SystemExit as ended:  # typer turns Ctrl-C into an exit without a message
        if ended.code == INTERRUPTED:
            interrupted()
        raise


def interrupted() -> NoReturn:
    """Print which results are kept, and exit."""
    notice = KEPT.get(sys.argv[1] if len(sys.argv) > 1 else "", "")
    print(f"ftmatrix: interrupted{notice and f'; {notice}'}", file=sys.stderr)
    sys.exit(INTERRUPTED)
