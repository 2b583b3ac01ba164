"""Runs ``ftmatrix run``, then ``ftmatrix fix`` for every red cell, on the suite of ``fixsuite.py``.

Usage: python drive_fix.py VERSIONS OUT SEARCH PUBLISHED [PACK], where VERSIONS is the file of sets, and the others are
the folders of the run, of the search, of its published results, and of the pack that the search installs from.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from matrix.run import request
from matrix.run.execute import Suite
from reports.commands.runs import fix_search

HERE = Path(__file__).parent


def main(versions: Path, out: Path, search_folder: Path, published: Path, pack: Path | None = None) -> None:
    suite = Suite(module="fixsuite", extra=(HERE / "fixsuite.py",))
    run_request = request.RunRequest(
        sets="good,next",
        where="group=fixable",
        torch_backend="pypi",
        device="cpu",
        keep_free_gb=0,
        cold_sample=0,
        versions=versions,
        suite=suite,
        out=out,
    )
    request.run(run_request)
    backend = "pypi" if pack is None else "auto"
    search_request = replace(run_request, sets="good", out=search_folder, offline=pack, torch_backend=backend)
    order = fix_search.order(search_request, fix_search.FixOptions(every=True, results=out))
    directory, fixes = fix_search.search(order, say=lambda _: None)
    fix_search.publish(directory, published)
    sys.stdout.write("\n\n".join(fix_search.fix_texts(fixes, order)))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
