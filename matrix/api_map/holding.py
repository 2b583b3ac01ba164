"""Tells if a condition of a use holds in given versions."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from matrix.api_map.packages import LIBRARIES, MAPPED
from matrix.api_map.reading.availability import ASKS, PAIR, RETURNED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.api_map.query import ApiMap
    from matrix.api_map.view import View

CONDITION: Final = re.compile(r"(?P<kind>ver|has):(?P<name>\w+)\s*(?P<bound>(?:[<>=!]=?|==).*)?")
MODULES: Final = {"pyyaml": "yaml"}  # of distributions with another name
AVAILABILITY_MODULES: Final = ("utils.import_utils", "import_utils", "utils.imports")
LEAST: Final = re.compile(r"min_version=(?P<constant>\w*VERSION)")


def holds(condition: str, view: View, api: ApiMap, user: str) -> bool | None:
    """Tell if a condition holds if the packages of a view are installed; None if that cannot be told.

    ``user`` is the package whose code states the condition. A package outside the map is unknown, unless it is among
    the libraries of the view: the name in a condition need not be that of a module, so that its absence says nothing.
    """
    found = CONDITION.fullmatch(condition.removeprefix("!"))
    if found is None:
        return None
    name, bound = found["name"], found["bound"] or ""
    place = view.places.get(name)
    if found["kind"] == "has" and is_always_true(view, user, name):
        answer: bool | None = True
    elif found["kind"] == "has" and asks_for_less(view, api, user, name):
        answer = False
    elif name not in MAPPED:
        version = (view.libraries or {}).get(name)
        answer = None if version is None else meets(version, bound)
    elif place is None:
        answer = False if found["kind"] == "has" and name not in LIBRARIES else None
    else:
        answer = meets(api.releases[name][place].version, bound or least_version(view, user, name))
    return None if answer is None else answer is not condition.startswith("!")


def is_always_true(view: View, user: str, name: str) -> bool:
    """Tell if ``is_NAME_available()`` of a package returns a pair, because it returns what another function does."""
    waiting = [(f"{user}.{module}", f"is_{name}_available") for module in AVAILABILITY_MODULES]
    seen: set[tuple[str, str]] = set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for row in view.rows(*current):
            if row.kind == RETURNED and row.detail == PAIR:
                return True
            if row.kind == RETURNED:
                found, _ = view.find(row.detail)
                waiting += [(found.module, found.name)] if found is not None else []
    return False


def asks_for_less(view: View, api: ApiMap, user: str, name: str) -> bool:
    """Tell if ``is_NAME_available()`` of a package asks for another package first, whose version is too old."""
    rows = (row for module in AVAILABILITY_MODULES for row in view.rows(f"{user}.{module}", f"is_{name}_available"))
    asked = [each for row in rows if row.kind == ASKS for each in row.detail.split(";")]
    others = [
        each for each in asked if (found := CONDITION.fullmatch(each)) and found["name"] in {*view.places} - {name}
    ]
    return any(holds(each, view, api, user) is False for each in others)


@cache
def meets(version: str, bound: str) -> bool | None:
    if not bound:
        return True
    try:
        operator = re.match(r"[<>=!]+", bound)
        limit = Version(bound[operator.end() :] if operator else bound)
        if operator and operator[0] in {"<", ">", "<=", ">="}:  # specifiers treat 4.38.0.dev0 as no final release
            actual = Version(version)
            return {"<": actual < limit, ">": actual > limit, "<=": actual <= limit, ">=": actual >= limit}[operator[0]]
        return SpecifierSet(bound).contains(version, prereleases=True)
    except (InvalidSpecifier, ValueError):
        return None


def least_version(view: View, user: str, name: str) -> str:
    """Return the least version that ``is_NAME_available()`` of a package demands; empty if it demands none."""
    module = f"{user}.utils.import_utils"
    if name == "torch":
        return next((f">={each.detail}" for each in view.rows(module, "TORCH_MIN_VERSION")), "")
    for row in view.rows(module, f"is_{name}_available"):
        found = LEAST.search(row.detail)
        if found:
            for constant in view.rows(module, found["constant"]):
                return f">={constant.detail}" if constant.detail else ""
    return ""


def unmet(requirements: Iterable[str], view: View, api: ApiMap) -> list[str]:
    """Return the requirements that a view's versions do not meet."""
    broken = []
    for each in requirements:
        name = re.split(r"[^\w]", each)[0]
        place = view.places.get(name)
        library = (view.libraries or {}).get(MODULES.get(name, name))
        version = library if place is None else api.releases[name][place].version
        bound = each.removeprefix(name).strip("() ")
        if version and bound:
            try:
                if not SpecifierSet(bound).contains(version, prereleases=True):
                    broken.append(each)
            except InvalidSpecifier:
                continue
    return broken
