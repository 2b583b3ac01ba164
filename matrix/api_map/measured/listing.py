"""Lists of combinations to import: what is left of them, their shares for several processes, and the results."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cases.imports.wire import LIBRARIES, Combination
from matrix.api_map.measured.combinations import BASE
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

LARGEST: Final = 24  # combinations of a share: a process needs seconds to import torch, and the last ones end apart
SHARES: Final = ".shares"


def write(path: Path, combinations: Iterable[Combination]) -> None:
    """Write combinations with folders relative to the file, so that all can be moved together."""
    lines = (with_folders(each, lambda folder: os.path.relpath(folder, path.parent)).line() for each in combinations)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{each}\n" for each in lines), encoding="utf-8")


def read(path: Path) -> list[Combination]:
    """Return the combinations of a file, with absolute folders.

    Raises:
        UserError: there is no such file, or it lists no combinations.
    """
    try:
        found = [Combination.parsed(each) for each in path.read_text(encoding="utf-8").splitlines()]
    except OSError:
        raise UserError(f"{path}: no list of combinations; `ftmatrix map measure --plan-only` writes it") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: lists no combinations; write it again with --plan-only") from None
    return [with_folders(each, lambda folder: str((path.parent / folder).resolve())) for each in found]


def with_folders(combination: Combination, changed: Callable[[str], str]) -> Combination:
    return replace(
        combination,
        folders=tuple(changed(each) for each in combination.folders),
        variants=tuple((version, changed(folder)) for version, folder in combination.variants),
    )


def without(combinations: Iterable[Combination], done: Collection[Mapping[str, str]]) -> Iterator[Combination]:
    """Yield what is left of combinations, without the releases of trl that were imported with the rest."""
    for each in combinations:
        left = tuple(one for one in each.variants if {**each.versions, "trl": one[0]} not in done)
        if left:
            yield replace(each, variants=left)


def shares(combinations: Sequence[Combination], processes: int) -> list[list[Combination]]:
    """Split combinations for processes.

    One process gets them in their order, because that is random. For several, a share has at most ``LARGEST``
    combinations, all of one transformers, because two that import the same release first would compile it twice. The
    combinations of a release that are more than that are in several shares, which may run at the same time. The first
    share of each transformers comes before all second ones, so that a call that ends early has imported some of every
    release.
    """
    if processes == 1:
        return [list(combinations)]
    by_base: dict[str, list[Combination]] = defaultdict(list)
    for each in combinations:
        by_base[each.versions[BASE]].append(each)
    rounds = range(0, len(combinations), LARGEST)
    return [same[first : first + LARGEST] for first in rounds for same in by_base.values() if first < len(same)]


def collect(results: Path) -> None:
    """Append the results of all shares to a file, also those of an interrupted call, and remove the shares.

    A line that was cut off is left out. The list of libraries is that of the last share.
    """
    folder = results.with_suffix(SHARES)
    for path in sorted(folder.glob("*.jsonl")):
        whole = path.read_text(encoding="utf-8").rpartition("\n")
        with results.open("a", encoding="utf-8") as sink:
            sink.write(whole[0] + whole[1])
        libraries = path.with_suffix(LIBRARIES)
        if libraries.exists():
            shutil.copy(libraries, results.with_suffix(LIBRARIES))
        path.unlink()
    shutil.rmtree(folder, ignore_errors=True)
