"""Runs ``ftmatrix run`` with a test suite and test limits, for which the command has no options.

Usage: python drive.py FIELDS, where FIELDS is JSON with fields of ``RunRequest``, and of ``Limits`` under "limits".
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from cases.runtime.wire import Limits
from matrix.errors import UserError
from matrix.run import request
from matrix.run.execute import Suite
from reports.commands import report

HERE = Path(__file__).parent


def run(fields: dict[str, Any]) -> int:
    """Run a request and print its report; return the exit code."""
    paths: dict[str, Any] = {name: Path(fields.pop(name)) for name in ("versions", "out", "offline") if name in fields}
    limits = Limits(**fields.pop("limits"))
    suite = Suite(module="minisuite", extra=(HERE / "minisuite.py",))
    try:
        directory = request.run(
            request.RunRequest(torch_backend="pypi", keep_free_gb=0, suite=suite, limits=limits, **paths, **fields)
        )
        return report.show(directory, Console())
    except UserError as error:
        print(f"ftmatrix: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background processes ignore SIGINT
    sys.exit(run(json.loads(sys.argv[1])))
