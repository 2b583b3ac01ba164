"""Every case by id, and every profile by name.

The harness and the tests import this module. Processes that run cases do not: a job carries the options of its case,
so that the code of a cell does not include the modules that only declare cases.
"""

from __future__ import annotations

from dataclasses import replace

from cases import grid
from cases.flows import scripts
from cases.grid import profiles
from cases.space.case import Case, split_source


class CaseTable(dict[str, Case]):
    """Cases by id. The id of a case that continues what another version set saved ends with the name of that set."""

    def __missing__(self, name: str) -> Case:
        begun, source = split_source(name)
        if not source or begun not in self:
            raise KeyError(name)
        return replace(self[begun], source=source)


CASES = CaseTable({**profiles.BY_ID, **{case.id: case for case in grid.commands(scripts.known().values())}})
PROFILES = profiles.PROFILES
