"""Finds the dotted paths of a class, method or function of which a message states only the last part."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

from matrix.api_map.packages import is_outlined
from matrix.api_map.rows import NO_DEFINITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.api_map.query import ApiMap

MOST: Final = 40
DEFINITIONS: Final = ("class", "function", "variable")
SEARCHED: Final = ("trl", "peft", "accelerate", "transformers", "bitsandbytes", "datasets", "huggingface_hub")


def paths_of(api: ApiMap, name: str, prefer: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the dotted paths that a name such as ``SFTTrainer``, ``Trainer.log`` or ``torch.load`` may mean.

    Names that a package exports come first; if none does, definitions anywhere in its modules. ``prefer`` are the
    packages to search first. Tables of later packages are read only if the paths before were not enough.
    """
    first, _, rest = name.partition(".")
    if first in api.packages:
        yield name
        return
    packages = list(dict.fromkeys([*(each for each in prefer if each in api.packages), *SEARCHED]))
    exporting = 0
    for package in packages:
        if package in api.packages and api.tables[package].names(package).get(first):
            exporting += 1
            yield f"{package}.{first}{f'.{rest}' if rest else ''}"
    if not exporting:
        yield from islice(dict.fromkeys(defined_anywhere(api, name, packages)), MOST)


def defined_anywhere(api: ApiMap, name: str, packages: list[str], kinds: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the paths of a name in the modules of packages; without ``kinds`` also where it is imported."""
    for package in packages:
        rows = api.tables[package].name_table.matching("name", rf"^{re.escape(name)}$", kinds)
        for module, found, kind, *_ in rows:
            if kind not in NO_DEFINITIONS:
                yield f"{module}.{found}"


def classes_with(api: ApiMap, member: str, packages: tuple[str, ...]) -> list[str]:
    """Return the paths of classes that define a member."""
    found: dict[str, None] = {}
    for package in packages:
        for module, name, kind, *_ in api.tables[package].name_table.matching("name", rf"^\w+\.{re.escape(member)}$"):
            if kind not in NO_DEFINITIONS:
                found[f"{module}.{name}"] = None
    return list(found)


def moved_to(api: ApiMap, package: str, name: str) -> list[str]:
    """Return the modules in which the newest release of a package defines a name."""
    newest = len(api.releases[package]) - 1
    rows = api.tables[package].name_table.matching("name", rf"^{re.escape(name)}$", DEFINITIONS)
    return [
        f"{module}.{found}"
        for module, found, _, _, first, last in rows
        if first <= newest <= last and not is_outlined(module)
    ]
