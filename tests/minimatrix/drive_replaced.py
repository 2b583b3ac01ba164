"""Runs ``ftmatrix`` with the suite of ``replacedsuite.py``, for which its commands have no option.

Usage: python drive_replaced.py COMMAND ...
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from unittest.mock import patch

from matrix.run.execute import Suite
from reports import cli
from reports.commands import pr, run

HERE = Path(__file__).parent


def main() -> None:
    """Run the command line; it ends by SystemExit."""
    suite = partial(Suite, module="replacedsuite", extra=(HERE / "fixsuite.py", HERE / "replacedsuite.py"))
    with patch.object(run, "Suite", suite), patch.object(pr, "Suite", suite):
        cli.main()


if __name__ == "__main__":
    main()
