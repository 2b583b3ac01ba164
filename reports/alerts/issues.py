"""Files one issue per cause, and keeps it up to date.

Each update is a comment, if there is something to say, and then one request that changes the body and the state of the
issue together. The body names its cells and the last night, so that a later call knows from GitHub alone what is left
to do, wherever an earlier call ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from reports.alerts import issue_text
from reports.alerts.github import RefusedError
from reports.alerts.issue_text import IssueState, fingerprint_in, state_in
from reports.alerts.transport import exactly_once

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import date

    from matrix.keys import CellKey
    from matrix.versions.moved_packages import MovedPackage
    from reports.alerts.causes import CauseUpdate
    from reports.alerts.document import AlertDocument
    from reports.alerts.github import GithubApi, Issue
    from reports.alerts.transport import TimeBudget

MARGIN: Final = timedelta(days=1)  # clocks and time zones differ
OPEN, CLOSED = "open", "closed"
NO_CELLS: Final[frozenset[CellKey]] = frozenset()
NEVER: Final = datetime.min.replace(tzinfo=UTC).date()


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueChange:
    """What to do with an issue: the first sentence of the comment, its cells, and what the issue says afterwards.

    Without a sentence there is no comment: only the list in the body changes.
    """

    sentence: str
    state: IssueState
    new: frozenset[CellKey] = NO_CELLS
    green: frozenset[CellKey] = NO_CELLS
    gone: frozenset[CellKey] = NO_CELLS
    becomes: str = ""  # open or closed, if that changes

    @property
    def done(self) -> str:
        """Describe the change to the user."""
        return {CLOSED: "closed", OPEN: "reopened"}.get(self.becomes, "updated")


@dataclass(kw_only=True)
class IssueTracker:
    """The issues of one repository, as one call of the command sees and changes them."""

    api: GithubApi
    known: dict[str, list[Issue]] | None = None

    @property
    def budget(self) -> TimeBudget:
        return self.api.transport.budget

    def apply(self, update: CauseUpdate, *, since: datetime) -> Iterator[str]:
        """Tell GitHub about a cause; yield what was done, in words.

        ``since`` is when this update was first tried: a request whose answer was lost may have created an issue then.

        Raises:
            SendError: something is left to do; the same call does it later.
        """
        found = self.issues_of(update.fingerprint)
        if not found and not update.is_red:
            return
        issue = found[0] if found else self.create(update, since)
        if self.api.label not in issue.labels:
            self.api.add_label(issue.number)
        if not found:
            self.remember(update.fingerprint, replace(issue, labels=issue.labels | {self.api.label}))
            yield f"opened issue {issue.number}: {issue_text.title(update.main)}"
        for other in found[1:]:
            yield from self.close_duplicate(other, issue, update)
        change = change_of(issue, update)
        if change is not None:
            yield from self.change(issue, update.fingerprint, change, moved=update.main.moved)

    def recover(self, document: AlertDocument) -> Iterator[str]:
        """Close each open issue whose cells are green, and shorten the lists of others; yield what was done, in words.

        Raises:
            RefusedError: GitHub refuses to change an issue; the others are done.
            SendError: something is left to do; the same call does it later.
        """
        refused: list[str] = []
        for fingerprint, issues in self.labelled().items():
            for issue in issues:
                change = recovery_of(issue, document)
                if change is None:
                    continue
                try:
                    yield from self.change(issue, fingerprint, change)
                except RefusedError as error:
                    refused.append(f"issue {issue.number}: {error}")
        if refused:
            raise RefusedError("; ".join(refused))

    def issues_of(self, fingerprint: str) -> list[Issue]:
        """Return the issues of a cause, the one to use first: the oldest open one, or else the oldest."""
        return sorted(self.labelled().get(fingerprint, []), key=lambda each: (not each.is_open, each.number))

    def labelled(self) -> Mapping[str, list[Issue]]:
        """Return the issues with the label by fingerprint. It takes one request to GitHub."""
        if self.known is None:
            self.known = by_fingerprint(self.api.labelled_issues())
        return self.known

    def create(self, update: CauseUpdate, since: datetime) -> Issue:
        """Create an issue, unless an earlier request did. Labels do not count here: GitHub may have ignored them."""
        title, body = issue_text.title(update.main), issue_text.new_body(update)

        def created_before() -> Issue | None:
            found = by_fingerprint(self.api.recent_issues(since - MARGIN)).get(update.fingerprint, [])
            return min(found, key=lambda each: each.number, default=None)

        return exactly_once(created_before, lambda: self.api.create(title, body), self.budget)

    def change(
        self, issue: Issue, fingerprint: str, change: IssueChange, *, moved: Iterable[MovedPackage] = ()
    ) -> Iterator[str]:
        night = change.state.night
        if change.sentence:
            text, digest = issue_text.comment(
                change.sentence,
                fingerprint=fingerprint,
                moved=moved,
                new=change.new,
                green=change.green,
                gone=change.gone,
                night=night,
            )
            self.comment_once(issue, text, digest, night)
        body = issue_text.changed_body(issue.body, change.state)
        self.set(issue, fingerprint, becomes=change.becomes, body=body)
        if change.sentence:
            yield f"{change.done} issue {issue.number}: {change.sentence}"

    def close_duplicate(self, issue: Issue, of: Issue, update: CauseUpdate) -> Iterator[str]:
        """Close a second issue of a cause, which two machines can file at the same time."""
        if not issue.is_open:
            return
        digest = issue_text.comment_digest("duplicate", issue.number, of.number)
        text = f"<!-- ftmatrix-comment: {digest} -->\n\nDuplicate of #{of.number}"
        self.comment_once(issue, text, digest, update.night)
        self.set(issue, update.fingerprint, becomes=CLOSED, reason="not_planned")
        yield f"closed issue {issue.number}: a duplicate of issue {of.number}"

    def comment_once(self, issue: Issue, text: str, digest: str, night: date) -> None:
        since = datetime.combine(night, time.min, tzinfo=UTC) - MARGIN

        def commented() -> bool | None:
            return self.api.has_comment(issue.number, digest, since) or None

        def write() -> bool:
            self.api.comment(issue.number, text)
            return True

        exactly_once(commented, write, self.budget)

    def set(self, issue: Issue, fingerprint: str, *, becomes: str, body: str = "", reason: str = "completed") -> None:
        """Change the body and the state of an issue in one request."""
        values = {"body": body} if body else {}
        if becomes:
            values |= {"state": becomes, "state_reason": reason if becomes == CLOSED else "reopened"}
        self.api.edit(issue.number, **values)
        is_open = becomes == OPEN if becomes else issue.is_open
        reason = (reason if becomes == CLOSED else "") if becomes else issue.reason
        self.remember(fingerprint, replace(issue, body=body or issue.body, is_open=is_open, reason=reason))

    def remember(self, fingerprint: str, issue: Issue) -> None:
        known = {} if self.known is None else self.known
        others = [each for each in known.get(fingerprint, []) if each.number != issue.number]
        self.known = {**known, fingerprint: [*others, issue]}


def by_fingerprint(issues: Iterable[Issue]) -> dict[str, list[Issue]]:
    found: dict[str, list[Issue]] = {}
    for each in issues:
        if fingerprint := fingerprint_in(each.body):
            found.setdefault(fingerprint, []).append(each)
    return found


def change_of(issue: Issue, update: CauseUpdate) -> IssueChange | None:
    """Decide what to do with an issue; None if it says everything already, or a later night changed it."""
    old = state_in(issue.body)
    if old and old.night > update.night:
        return None
    before = old or IssueState(night=NEVER, device=update.main.device, cells=NO_CELLS)
    new = NO_CELLS if before.more else update.red - before.cells
    green = before.cells if update.is_gone else before.cells & update.green
    cells, more = (before.cells | new) - green, 0 if update.is_gone else before.more
    absent = {each: since for each, since in before.absent.items() if each in cells - update.red}
    state = replace(before, night=update.night, cells=cells, more=more, absent=absent)
    is_repeated = before.night == update.night and not new and not green
    if is_repeated or not (new or green or update.is_red or update.is_gone):
        return None
    is_red = bool(state.cells or state.more or update.is_red) or (old is None and not update.is_gone)
    return transition(issue, IssueChange(sentence="", state=state, new=new, green=green), is_red=is_red, update=update)


def transition(issue: Issue, change: IssueChange, *, is_red: bool, update: CauseUpdate) -> IssueChange | None:
    """Complete a change with its sentence and the new state of the issue."""
    new, green = change.new, change.green
    if issue.is_open and not is_red:
        return replace(change, sentence=f"Closed: green again ({update.main.kind}).", becomes=CLOSED)
    if not issue.is_open and update.is_red and not issue.is_dismissed:
        return replace(change, sentence=f"The same cause came back ({update.main.kind}).", becomes=OPEN)
    if new and green:
        return replace(change, sentence=f"Spread to {words(new)}; {words(green)} turned green.")
    if new:
        return replace(change, sentence=f"Spread to {words(new)}.")
    if green and issue.is_open:
        return replace(change, sentence=partly_green(green, change.state))
    return None


def recovery_of(issue: Issue, document: AlertDocument) -> IssueChange | None:
    """Decide what the cells of a night change in an open issue; None if they change nothing.

    A cell that was not run is not green, but leaves the list after some time. An issue whose list somebody damaged, or
    that a later night changed, stays.
    """
    old = state_in(issue.body) if issue.is_open else None
    if old is None or old.night > document.night:
        return None
    green = old.cells & document.green_cells(old.device)
    absent = absent_cells(old, document)
    gone = frozenset(each for each, since in absent.items() if document.night - since >= issue_text.GONE_AFTER)
    if not green and not gone and absent == old.absent:
        return None
    absent = {each: since for each, since in absent.items() if each not in gone}
    state = replace(old, night=document.night, cells=old.cells - green - gone, absent=absent)
    change = IssueChange(sentence=partly_over(green, gone, state), state=state, green=green, gone=gone)
    if state.cells or state.more:
        return change
    if gone:
        return replace(change, sentence=f"Closed: {words(gone)} not run any more, and no other is red.", becomes=CLOSED)
    return replace(change, sentence="Closed: green again.", becomes=CLOSED)


def absent_cells(old: IssueState, document: AlertDocument) -> dict[CellKey, date]:
    """Return the cells of an issue that did not run, with the first night of that; as before if the night ran none."""
    ran = document.cells_that_ran(old.device)
    if not ran:
        return dict(old.absent)
    return {each: old.absent.get(each, document.night) for each in old.cells - ran}


def partly_over(green: frozenset[CellKey], gone: frozenset[CellKey], state: IssueState) -> str:
    """Describe cells that leave the list of an issue; empty if none does."""
    if not gone:
        return partly_green(green, state) if green else ""
    days = issue_text.GONE_AFTER.days
    parts = [f"{words(green)} turned green; "] if green else []
    left = counted(len(state.cells) + state.more, "cell")
    return f"{''.join(parts)}{words(gone)} not run for {days} days; {left} left."


def partly_green(green: Iterable[CellKey], state: IssueState) -> str:
    """Describe a recovery; the cells that are left are red, or were not run."""
    return f"{words(green)} turned green; {counted(len(state.cells) + state.more, 'cell')} left."


def words(cells: Iterable[CellKey]) -> str:
    return counted(len(tuple(cells)), "cell")
