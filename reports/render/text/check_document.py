"""Draws the check of a user's code as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reports.answers.check.check import CheckedUse, CodeCheck, Misfit
    from reports.answers.check.overrides import NarrowOverride

SCHEMA: Final = 1


def document(checked: CodeCheck) -> dict[str, Any]:
    """Return the check as JSON."""
    return {
        "schema": SCHEMA,
        "files": list(checked.files),
        "fits": checked.has_common_range,
        "packages": [asdict(each) for each in checked.fits],
        "names": [name_document(each) for each in checked.uses],
        "overrides": [override_document(each) for each in checked.overrides],
        "unknown": [asdict(each) for each in checked.found.dynamic],
        "outside": [asdict(each) for each in checked.found.outside],
    }


def name_document(checked: CheckedUse) -> dict[str, Any]:
    return {
        "name": checked.use.words,
        "paths": list(checked.use.paths),
        "package": checked.use.package,
        "place": checked.use.place,
        "guard": checked.use.guard,
        "branch": checked.use.branch,
        "known": checked.known,
        "ranges": [list(each) for each in checked.ranges],
        "unknown": [list(each) for each in checked.unknown],
        "inherited": {name: [list(each) for each in ranges] for name, ranges in checked.inherited},
        "renamed": checked.renamed,
    }


def override_document(narrow: NarrowOverride) -> dict[str, Any]:
    return {
        "method": narrow.override.own_name,
        "replaces": narrow.path,
        "lacks": narrow.parameter,
        "package": narrow.package,
        "ranges": [list(each) for each in narrow.ranges],
        "place": narrow.override.place,
    }


def version_document(
    versions: Mapping[str, str], source: str, misfits: Sequence[Misfit], unchecked: Sequence[str]
) -> dict[str, Any]:
    return {
        "source": source,
        "versions": dict(versions),
        "fits": not misfits,
        "missing": [{**name_document(each.checked), "version": each.version} for each in misfits],
        "unchecked": list(unchecked),
    }
