"""A page per feature, in the manner of caniuse: on which versions it works, with which setting, on which device.

A feature is a job of the support document: a usual job, or a measured combination of flow, method, quantisation and
strategy. Beside a recommendation, the page states what contradicts it on another device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from cases.space.verdict import RED
from matrix import documents
from matrix.errors import UserError
from matrix.keys import CellKey
from reports.answers.devices.nearness import near
from reports.answers.support import support
from reports.answers.support.status import GOOD, SupportStatus
from reports.site.names import device_name
from reports.site.writer import file_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reports.answers.support.support import SetSupport, Support, SupportDocument
    from reports.site.published_data import PublishedData
    from reports.site.writer import SiteWriter

NO_WORD: Final = re.compile(r"[^a-z0-9]+")
WORDS: Final = {
    "quant": {"nf4": "4-bit (nf4)", "fp4": "4-bit (fp4)", "int8": "8-bit"},
    "method": {"lora": "LoRA", "dora": "DoRA", "full": "full fine-tuning", "rslora": "rsLoRA", "pissa": "PiSSA"},
    "strategy": {"single": "one process", "ddp": "DDP", "fsdp1": "FSDP1", "fsdp2": "FSDP2"},
    "flow": {"save_reload": "save and reload", "merge_reload": "merge, save and reload", "generate": "generation"},
}


@dataclass(frozen=True, kw_only=True)
class Recommended:
    """The newest set of a device on which a feature works. ``against`` states what contradicts it elsewhere."""

    device: str
    best: SetSupport | None
    against: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return device_name(self.device)


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A job with its support by device."""

    needs: tuple[str, ...]
    job: str
    support: Mapping[str, Support]
    recommended: tuple[Recommended, ...] = field(default=())

    @cached_property
    def stated(self) -> dict[str, str]:
        """The options of its first query."""
        return dict(term.split("=", 1) for term in self.needs[0].split() if "=" in term and "!=" not in term)

    @property
    def title(self) -> str:
        if self.job:
            return self.job
        name = {key: WORDS.get(key, {}).get(value, value) for key, value in self.stated.items()}
        parts = [name.get("method", ""), *([name["quant"]] if self.stated.get("quant", "none") != "none" else [])]
        title = f"{' '.join(filter(None, parts))}, {name.get('strategy', '')}"
        flow = self.stated.get("flow", "train")
        return title if flow == "train" else f"{title}: {name['flow']}"

    @property
    def file(self) -> str:
        return f"feature/{file_name(NO_WORD.sub('-', self.job.lower()) or '-'.join(self.stated.values()))}.html"

    @property
    def status_words(self) -> str:
        return "; ".join(
            f"{each.name}: {f'works, newest {each.best.set}' if each.best else 'no measured set works'}"
            for each in self.recommended
        )


def document(published: PublishedData) -> SupportDocument:
    """Return the support document of a folder: the stored one, or a new one.

    Raises:
        UserError: the stored document cannot be read.
    """
    path = published.folder / support.PUBLISHED.name
    if not path.exists():
        return support.support_document(published.answers)
    try:
        return support.SupportDocument.model_validate_json(documents.content(path))
    except ValidationError as error:
        raise UserError(f"{path}: not a support document ({error.errors()[0]['msg']}); write it again") from None


def features(published: PublishedData) -> tuple[Feature, ...]:
    """Return all features: the usual jobs first."""
    by_needs: dict[tuple[tuple[str, ...], str], dict[str, Support]] = {}
    for of_device in document(published).devices:
        for each in of_device.support:
            by_needs.setdefault((each.needs, each.job), {})[of_device.device] = each
    rows = (Feature(needs=needs, job=job, support=by_device) for (needs, job), by_device in by_needs.items())
    known = [with_recommendations(each, published) for each in rows]
    return tuple(sorted(known, key=lambda each: (not each.job, each.title.lower() if not each.job else "")))


def with_recommendations(feature: Feature, published: PublishedData) -> Feature:
    return Feature(
        needs=feature.needs,
        job=feature.job,
        support=feature.support,
        recommended=tuple(recommended(feature, device, published) for device in published.grids),
    )


def recommended(feature: Feature, device: str, published: PublishedData) -> Recommended:
    """Return the newest set that works on a device, with what other devices show against it."""
    own = feature.support.get(device)
    best = next((each for each in reversed(own.sets) if each.status in GOOD), None) if own else None
    against = tuple(contradictions(feature, device, best, published)) if best else ()
    return Recommended(device=device, best=best, against=against)


def contradictions(feature: Feature, device: str, best: SetSupport, published: PublishedData) -> Iterator[str]:
    """Yield a sentence for each set near a recommended one on which another device shows the feature red.

    The same cells decide, and the status of the whole feature there.
    """
    own = published.records[device, best.set]
    for other, grid in published.grids.items():
        for column in grid.sets if other != device else ():
            nearness = near(own, column)
            if nearness is None:
                continue
            cases = [CellKey.parse(cell).case for cell in best.cells]
            red = [case for case in cases if grid.verdicts.get((case, column.key)) in RED]
            theirs = feature.support.get(other)
            status = next((each.status for each in theirs.sets if each.set == column.key), None) if theirs else None
            if red or status is SupportStatus.RED:
                yield f"red on the {device_name(other)} with {column.key} ({nearness.value})"


def write(site: SiteWriter, features: tuple[Feature, ...], published: PublishedData) -> None:
    site.page(
        "features.html",
        "features.html.j2",
        jobs=[each for each in features if each.job],
        groups=grouped(features),
        devices=list(published.grids),
        device_name=device_name,
    )
    for each in features:
        site.page(
            each.file,
            "feature.html.j2",
            feature=each,
            device_name=device_name,
            pins=pins(each, published),
            good=GOOD,
            cell=CellKey.parse,
        )


def pins(feature: Feature, published: PublishedData) -> dict[str, dict[str, str]]:
    """Return the pins of the recommended sets by device."""
    found = {}
    for each in feature.recommended:
        record = published.set_record(each.device, each.best.set) if each.best else None
        if record is not None:
            found[each.device] = record.pins
    return found


def grouped(features: tuple[Feature, ...]) -> dict[str, list[Feature]]:
    """Group the features that are no usual jobs by their flow."""
    groups: dict[str, list[Feature]] = {}
    for each in features:
        if not each.job:
            flow = each.stated.get("flow", "")
            groups.setdefault(WORDS["flow"].get(flow, flow), []).append(each)
    return dict(sorted(groups.items(), key=lambda item: item[0] != "train"))
