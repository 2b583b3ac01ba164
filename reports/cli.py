"""The command line: registers the commands, and ends with a sentence instead of a traceback."""

from __future__ import annotations

import gc
import sys
from typing import Final, NoReturn

import typer

from matrix.errors import UserError
from reports.commands import (
    bench,
    can_i_use,
    devices,
    doctor,
    explain,
    fix,
    known,
    pack,
    plan,
    recommend,
    report,
    repro,
    run,
    selfcheck,
    sets,
)

BAD_INPUT, INTERRUPTED = 2, 130
RESUME: Final = "finished cells are kept; add --resume to the same command to run the rest"
KEPT: Final = {
    "run": RESUME,
    "known": RESUME,
    "fix": RESUME,
    "selfcheck": "finished cells are kept; --resume with the same --out runs the rest, except for --crashes",
    "pack": "complete wheels are kept; the same command downloads the rest",
}  # by command: the results that survive an interruption, and the command that continues
COMMANDS: Final = (
    ("run", run.run, run),
    ("plan", plan.plan, plan),
    ("report", report.report, report),
    ("explain", explain.explain, explain),
    ("fix", fix.fix, fix),
    ("recommend", recommend.recommend, recommend),
    ("can-i-use", can_i_use.can_i_use, can_i_use),
    ("doctor", doctor.doctor, doctor),
    ("devices", devices.devices, devices),
    ("repro", repro.repro, repro),
    ("known", known.known, known),
    ("selfcheck", selfcheck.selfcheck, selfcheck),
    ("bench", bench.bench, bench),
    ("pack", pack.pack, pack),
)

app = typer.Typer(
    name="ftmatrix",
    help="Measure which versions and settings of LLM fine-tuning stacks work together, and answer from the results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(sets.app, name="sets")
for name, command, module in COMMANDS:  # a module's docstring ends with its exit codes
    app.command(name, epilog=(module.__doc__ or "").partition("\n\n")[2].replace("\n", " "))(command)


def main() -> None:
    """Run the command line; report a user's mistake in one sentence."""
    gc.set_threshold(200_000)  # published results produce no garbage, and looking for it takes a third of the time
    try:
        app()
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
