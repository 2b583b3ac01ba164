"""Runs a night of ``ftmatrix nightly`` on the suite of ``bisectsuite.py``; prints its alerts and notes as JSON.

Usage: python drive_nightly.py VERSIONS FOLDER MINUTES [CHANGE...], with changes as ``--with`` takes them.
"""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path

from matrix.errors import UserError
from matrix.run.execute import Suite
from matrix.run.progress import Silent
from matrix.run.request import RunRequest
from reports.answers.diff import quarantine
from reports.commands.nights import base_set, night

HERE = Path(__file__).parent


def main(versions: str, folder: str, minutes: str, *changes: str) -> None:
    place = Path(folder)
    suite = Suite(module="bisectsuite", extra=(HERE / "fixsuite.py", HERE / "bisectsuite.py"))
    wish = night.NightRequest(
        run_request=RunRequest(
            suite=suite, device="cpu", torch_backend="pypi", keep_free_gb=0, where="group=bisected case!=*ia3*"
        ),
        base=base_set.find(place / "baseline", "cpu", versions=Path(versions)),
        folder=place / "nightly",
        night=date(2026, 1, 2),
        minutes=float(minutes),
        changes=changes,
        quarantine=quarantine.Quarantine(),
        history=place / "history",
        nights=3,
    )
    try:
        tonight = night.NightRun(request=wish, watcher=lambda _: Silent(), say=lambda _: None)
        done = tonight.run()
    except UserError as error:
        sys.exit(f"UserError: {error}")
    rows = [each.model_dump(mode="json") for each in done.document.alerts]
    sets = [each.key for diff in done.diffs for each in diff.new.matrix.sets]
    sys.stdout.write(json.dumps({"alerts": rows, "notes": done.notes, "sets": sets, "directory": str(done.directory)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
