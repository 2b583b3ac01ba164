"""Runs the search of ``ftmatrix bisect`` on the suite of ``bisectsuite.py``; prints the answer as JSON.

Usage: python drive_bisect.py VERSIONS OUT CELL GOOD BAD [GIT], where GOOD is a set or a release such as trl==0.0.1, and
GIT is a repository of the guilty package.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from matrix.bisect import request
from matrix.errors import UserError
from matrix.run.execute import Suite
from matrix.run.request import RunRequest

HERE = Path(__file__).parent


def main(versions: str, out: str, cell: str, good: str, bad: str, git: str = "") -> None:
    suite = Suite(module="bisectsuite", extra=(HERE / "fixsuite.py", HERE / "bisectsuite.py"))
    run_request = RunRequest(
        versions=Path(versions), out=Path(out), suite=suite, device="cpu", torch_backend="pypi", keep_free_gb=0
    )
    ends: dict[str, Any] = {"since": good} if "==" in good else {"good": good}
    wish = request.BisectRequest(run_request=run_request, cell=cell, bad=bad, git=git, **ends)
    try:
        _, answer = request.run(wish, say=lambda _: None)
    except UserError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    sys.stdout.write(answer.model_dump_json())


if __name__ == "__main__":
    main(*sys.argv[1:])
