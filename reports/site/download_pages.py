"""The data of the site to download: all cells as Parquet and JSON, their schemas, badges and a feed."""

from __future__ import annotations

import io
import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from matrix import documents
from reports.alerts import badge
from reports.alerts.feed import NAMESPACE, FeedEntry, feed
from reports.answers.diff.changes import ChangeKind
from reports.answers.support.status import SupportStatus
from reports.results import outcome_table
from reports.results.document import SCHEMA_FILE
from reports.results.outcome_columns import whole_text
from reports.results.outcome_rows import whole
from reports.site import data_sources
from reports.site.data_sources import DOCUMENTS
from reports.site.names import device_name, harness
from reports.site.writer import file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reports.site.change_pages import ChangePage
    from reports.site.feature_pages import Feature
    from reports.site.problem_pages import ProblemPage
    from reports.site.published_data import PublishedData
    from reports.site.writer import SiteWriter

LARGE: Final = 100_000  # bytes of a file whose size is stated in MB
TITLE: Final = "ftmatrix: findings and regressions"
ADDRESS: Final = "urn:ftmatrix:feed"  # the site may be anywhere, so the feed has no address of a host


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    path: str
    words: str
    size: int
    sha256: str

    @property
    def shown_size(self) -> str:
        return f"{self.size / 1e6:.1f} MB" if self.size >= LARGE else f"{self.size / 1e3:.1f} kB"

    @property
    def name(self) -> str:
        return self.path.removeprefix("download/")


def write(
    site: SiteWriter,
    published: PublishedData,
    features: Sequence[Feature],
    problems: Sequence[ProblemPage],
    changes: Sequence[ChangePage],
) -> None:
    downloads = [*tables(site, published), *copies(site, published), *schemas(site)]
    downloads += about(site, published, downloads)
    badges = write_badges(site, features)
    site.text("feed.xml", feed(entries(problems, changes, published), title=TITLE, url=ADDRESS))
    site.page(
        "data.html",
        "data.html.j2",
        downloads=downloads,
        badges=badges,
        sources=["the top folder" if each == "." else each for each in published.sources],
        problems=published.problems,
        digest=published.digest,
    )


def tables(site: SiteWriter, published: PublishedData) -> Iterator[Download]:
    """Write all cells of a device as Parquet, and as JSON with checks and tracebacks."""
    for device, grid in published.grids.items():
        rows = [grid.rows[cell] for cell in grid.measured()]
        table = io.BytesIO()
        outcome_table.write(table, rows, grid.sets)
        yield written(
            site,
            f"download/{device}.parquet",
            table.getvalue(),
            f"All {device_name(device)} cells, one row each, for pandas",
        )
        yield written(
            site,
            f"download/{device}.jsonl.gz",
            documents.compressed(f"{whole_text(whole(each))}\n" for each in rows),
            f"All {device_name(device)} cells with checks, tracebacks and facts, one JSON object a line",
        )


def copies(site: SiteWriter, published: PublishedData) -> Iterator[Download]:
    for name, words in DOCUMENTS.items():
        path = published.folder / name
        if path.exists():
            yield written(site, f"download/{name.removesuffix('.gz')}", documents.content(path), words)


def schemas(site: SiteWriter) -> Iterator[Download]:
    for path in sorted(SCHEMA_FILE.parent.glob("*.json")):
        yield written(site, f"download/schema/{path.name}", path.read_bytes(), "JSON Schema")


def about(site: SiteWriter, published: PublishedData, downloads: Iterable[Download]) -> Iterator[Download]:
    """Write the digests of the files that the site was built from, and of those that it offers."""
    sums = data_sources.sums(published.files).encode()
    yield written(
        site,
        f"download/{data_sources.SUMS}",
        sums,
        "The files of results that this site was built from, for sha256sum; its own digest is that of all results",
    )
    known = {
        "results": {"first_day": published.first_day, "last_day": published.last_day, "sha256": published.digest},
        "ftmatrix": harness(),
        "downloads": {each.name: {"sha256": each.sha256, "bytes": each.size} for each in downloads},
    }
    yield written(
        site,
        "download/about.json",
        json.dumps(known, indent=1).encode(),
        "Days and digest of the results, the version of ftmatrix, and the digest of each download",
    )


def written(site: SiteWriter, path: str, content: bytes, words: str) -> Download:
    site.content(path, content)
    return Download(path=path, words=words, size=len(content), sha256=data_sources.sha256(content))


def write_badges(site: SiteWriter, features: Iterable[Feature]) -> list[tuple[str, str, str]]:
    """Write a badge for each feature, device and set with a known status.

    Returns:
        Path, title and device of the newest badge of each usual job.
    """
    newest = []
    for each in features:
        name = each.file.removeprefix("feature/").removesuffix(".html")
        for device, support in each.support.items():
            known = [one for one in support.sets if one.status is not SupportStatus.UNKNOWN]
            for one in known:
                site.text(
                    f"badges/{device}/{name}/{file_name(one.set)}.svg",
                    badge.feature_badge(f"{each.title} ({device_name(device)})", one.set, one.status.value),
                )
            if known and each.job:
                path = f"badges/{device}/{name}/{file_name(known[-1].set)}.svg"
                newest.append((path, f"{each.title} on {known[-1].set}", device_name(device)))
    return newest


def entries(
    problems: Iterable[ProblemPage], changes: Iterable[ChangePage], published: PublishedData
) -> Iterator[FeedEntry]:
    """Yield an entry for each finding, and for each comparison with regressions, dated by their first red cell."""
    days: dict[tuple[str, str], str] = {}
    for each in published.measurements:
        days[each.case, each.set] = min(each.day, days.get((each.case, each.set), each.day))
    for problem in problems:
        if problem.is_finding and problem.shown:
            first = min(days.get((cell["case"], cell["set"]), "9999") for cell in problem.shown)
            if first != "9999":
                yield entry(
                    f"finding {problem.id}",
                    problem.title,
                    first,
                    "finding",
                    problem.meet,
                    f"{problem.path}\n\n{problem.meet}",
                )
    for change in changes:
        red = change.diff.by_kind[ChangeKind.REGRESSED]
        if red:
            first = min(days[each.case, each.new_set] for each in red)
            title = f"{len(red)} cells red from {change.base} to {change.new} on the {device_name(change.device)}"
            lines = "\n".join(f"{each.case}: {each.reason}" for each in red)
            yield entry(change.path, title, first, "regression", title, f"{change.path}\n\n{lines}")


def entry(identity: str, title: str, day: str, kind: str, summary: str, content: str) -> FeedEntry:
    stamp = f"{datetime.fromisoformat(day).replace(tzinfo=UTC):%Y-%m-%dT%H:%M:%SZ}"
    return FeedEntry(
        id=f"urn:uuid:{uuid.uuid5(NAMESPACE, identity)}",
        title=title,
        updated=stamp,
        published=stamp,
        kind=kind,
        summary=summary,
        content=content,
    )
