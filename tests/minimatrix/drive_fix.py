"""``ftmatrix run``, then ``ftmatrix fix`` of every red cell, on the suite of ``fixsuite.py``.

python drive_fix.py VERSIONS OUT FOUND PUBLISHED: the version sets, and where the run, the search and its results go.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from matrix import asked
from matrix.execute import Suite
from reports.answers import fixing

HERE = Path(__file__).parent


def main(versions: Path, out: Path, found: Path, published: Path) -> None:
    suite = Suite(module="fixsuite", extra=(HERE / "fixsuite.py",))
    wanted = asked.Asked(
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
    asked.run(wanted)
    looked = replace(wanted, sets="good", out=found)
    order = fixing.order(looked, fixing.Wish(every=True, results=out))
    directory, fixes = fixing.search(order, say=lambda _: None)
    fixing.publish(directory, published)
    sys.stdout.write("\n\n".join(fixing.told(fixes, order)))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
