"""Runs ``ftmatrix`` with the suite of ``replacedsuite.py``, for which its commands have no option.

Usage: python drive_replaced.py COMMAND ...
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from matrix.run.execute import Suite
from reports import cli
from reports.commands import pr, run

HERE = Path(__file__).parent


def main() -> None:
    suite = partial(Suite, module="replacedsuite", extra=(HERE / "fixsuite.py", HERE / "replacedsuite.py"))
    for command in (run, pr):
        setattr(command, "Suite", suite)  # noqa: B010 - mypy refuses to assign to a class
    cli.main()


if __name__ == "__main__":
    main()
