"""What the import matrix measured of pairs of releases: a package was imported beside another one, or failed on it.

An import that fails because of a third package measures nothing of a pair.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from cases.imports.steps import IMPORTS
from matrix.api_map.measured.evaluation import NAMED
from matrix.api_map.packages import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matrix.api_map.measured.import_results import MeasuredImports

PLACE: Final = re.compile(r"\[(?P<user>\w+)[\w.]*\]$")
# Without a place: all modules of the package ran, and then the imported name was not there.
OWN_GAP: Final = re.compile(r"^ImportError: cannot import name '\w+' from '(?P<package>\w+)'$")
IMPORTED: Final = ""

Releases = tuple[str, str]  # of the user and of the provider


def blamed(error: str) -> tuple[str, str]:
    """Return the package whose code raised an import error, and the package that the message names.

    Both are empty if the error does not concern two packages of the map.
    """
    place, named = PLACE.search(error), NAMED.search(error)
    user = place["user"] if place else ""
    provider = ((named["name"] or named["required"] or "") if named else "").replace("-", "_")
    if user == provider or not {user, provider} <= set(PACKAGES):
        return "", ""
    return user, provider


def was_imported(user: str, error: str) -> bool:
    """Tell if a package was imported: without an error, or but for a name of its own that its release lacks.

    trl 0.4 has no ``DPOTrainer``, whatever is installed beside it.
    """
    found = OWN_GAP.match(error)
    return not error or (found is not None and found["package"] == user)


def pair_evidence(results: Iterable[MeasuredImports]) -> Mapping[tuple[str, str], Mapping[Releases, str]]:
    """Return for each user and provider what was measured of their releases: ``IMPORTED``, or the error.

    A pair that failed in one combination counts as failed: the error names both packages, and only the versions of
    other packages differ between combinations.
    """
    found: dict[tuple[str, str], dict[Releases, str]] = defaultdict(dict)
    for each in results:
        for user in (name for name in IMPORTS if name in each.versions):
            error = each.errors.get(f"import {user}")
            if error is None:
                continue
            for provider in (name for name in each.versions if name != user):
                releases = each.versions[user], each.versions[provider]
                if was_imported(user, error):
                    found[user, provider].setdefault(releases, IMPORTED)
                elif blamed(error) == (user, provider):
                    found[user, provider][releases] = error
    return found
