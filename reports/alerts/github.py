"""Talks to GitHub's REST API about issues: lists, creates, edits, labels and comments.

It uses httpx instead of a client library for GitHub: six requests need no more, and a library's own retries could
create an issue twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from matrix.run.secrets import without_secrets
from reports.alerts.alert import printable, shortened
from reports.alerts.issue_text import COMMENT_MARKER
from reports.alerts.transport import HttpRequest, SendError, UncertainError, backoff

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from reports.alerts.transport import HttpAnswer, Transport

PER_PAGE: Final = 100
MOST_PAGES: Final = 300
READ_ATTEMPTS: Final = 4
WRITE_PAUSE_S: Final = 1.0  # GitHub asks clients to wait a second between requests that write
CLOSED: Final = "closed"
DISMISSED: Final = frozenset({"not_planned", "duplicate"})


class RefusedError(SendError):
    """GitHub refuses this one issue; others may still be accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    number: int
    body: str
    is_open: bool
    reason: str = ""
    labels: frozenset[str] = frozenset()

    @property
    def is_dismissed(self) -> bool:
        """Return whether somebody closed it because nothing is to be done."""
        return not self.is_open and self.reason in DISMISSED


@dataclass(frozen=True, slots=True, kw_only=True)
class GithubApi:
    """The issues of one repository that have one label."""

    api: str
    repository: str
    label: str
    token: str = field(repr=False)
    token_variable: str
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    transport: Transport
    write_pause_s: float = WRITE_PAUSE_S

    @property
    def issues_url(self) -> str:
        return f"{self.api}/repos/{self.repository}/issues"

    def labelled_issues(self) -> list[Issue]:
        """List all issues with the label, open and closed, oldest first."""
        return self.issues(labels=self.label)

    def recent_issues(self, since: datetime) -> list[Issue]:
        """List all issues that changed since a time, with and without the label."""
        return self.issues(since=f"{since:%Y-%m-%dT%H:%M:%SZ}")

    def issues(self, **query: str) -> list[Issue]:
        words = urlencode({"state": "all", "sort": "created", "direction": "asc", "per_page": PER_PAGE, **query})
        rows = self.pages(f"{self.issues_url}?{words}")
        return [issue_of(row) for row in rows if isinstance(row, dict) and "pull_request" not in row]

    def create(self, title: str, body: str) -> Issue:
        data = self.write("POST", self.issues_url, {"title": title, "body": body, "labels": [self.label]})
        return issue_of(data)

    def edit(self, number: int, **values: str) -> None:
        self.write("PATCH", f"{self.issues_url}/{number}", values, repeatable=True)

    def add_label(self, number: int) -> None:
        """Add the label to an issue that lacks it. GitHub ignores labels of a new issue if the token may not label."""
        rows = self.write("POST", f"{self.issues_url}/{number}/labels", {"labels": [self.label]}, repeatable=True)
        names = {row.get("name") for row in rows if isinstance(row, dict)} if isinstance(rows, list) else set()
        if self.label not in names:
            raise SendError(f"issue {number} did not get its label; give the token write access to {self.repository}")

    def has_comment(self, number: int, digest: str, since: datetime) -> bool:
        words = urlencode({"per_page": PER_PAGE, "since": f"{since:%Y-%m-%dT%H:%M:%SZ}"})
        rows = self.pages(f"{self.issues_url}/{number}/comments?{words}")
        bodies = (str(row.get("body") or "") for row in rows if isinstance(row, dict))
        return any(digest in COMMENT_MARKER.findall(body) for body in bodies)

    def comment(self, number: int, text: str) -> None:
        self.write("POST", f"{self.issues_url}/{number}/comments", {"body": text})

    def pages(self, url: str) -> Iterator[Any]:
        """Yield the rows of all pages.

        Raises:
            SendError: a page is missing; an incomplete list would file issues twice.
        """
        for _ in range(MOST_PAGES):
            answer, rows = self.read(url)
            if not isinstance(rows, list):
                raise SendError(f"{self.host} answered something else than a list; run the same command again later")
            yield from rows
            following = answer.links.get("next", "")
            if not following:
                return
            if urlsplit(following)[:2] != urlsplit(self.api)[:2]:
                raise SendError(f"{self.host} continues its list on another host; the token is not sent there")
            url = following
        raise SendError(f"{self.repository} has too many issues with this label; choose another label in alerts.toml")

    def read(self, url: str) -> tuple[HttpAnswer, Any]:
        return self.answered(HttpRequest(method="GET", url=url, headers=self.headers, repeatable=True))

    def write(self, method: str, url: str, payload: Any, *, repeatable: bool = False) -> Any:
        self.transport.budget.wait(self.write_pause_s, f"{self.host} needs more time")
        headers = {**self.headers, "Content-Type": "application/json"}
        request = HttpRequest(method=method, url=url, headers=headers, payload=payload, repeatable=repeatable)
        return self.answered(request)[1]

    def answered(self, request: HttpRequest) -> tuple[HttpAnswer, Any]:
        """Send a request; return its answer and the data in it. If JSON was cut off, repeat what is repeatable."""
        for attempt in range(READ_ATTEMPTS):
            answer = self.final(self.transport.send(request))
            try:
                return answer, answer.data()
            except UncertainError as error:
                if not request.repeatable:
                    raise
                self.transport.budget.wait(backoff(attempt), f"{self.host}: {error}")
        raise SendError(f"{self.host} gave no whole answer, {READ_ATTEMPTS} times; run the same command again later")

    @property
    def host(self) -> str:
        return urlsplit(self.api).netloc

    @property
    def headers(self) -> dict[str, str]:
        return {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self.token}",
            "User-Agent": "ftmatrix",
            "X-GitHub-Api-Version": "2022-11-28",
        }

    def final(self, answer: HttpAnswer) -> HttpAnswer:
        """Return a successful answer.

        Raises:
            RefusedError: GitHub refuses the content.
            SendError: GitHub refuses the token, the repository or the address.
        """
        if answer.is_success:
            return answer
        raise self.refusal(answer)

    def refusal(self, answer: HttpAnswer) -> SendError:
        said = shortened(printable(without_secrets(message_of(answer), self.secrets)), 300)
        status, repository, variable = answer.status, self.repository, self.token_variable
        sentences = {
            301: f"{repository} has moved ({status}); write its new name into alerts.toml",
            401: f"GitHub refuses the token ({status}): it is wrong or has expired; set {variable} to a new one",
            403: f"the token may not do this in {repository} ({status}: {said}); give it write access to issues",
            404: f"GitHub finds no {repository} ({status}), or hides it; check alerts.toml and {variable}",
            410: f"{repository} has issues switched off, or the issue was deleted ({status}); switch issues on",
        }
        sentences |= {302: sentences[301], 307: sentences[301], 308: sentences[301]}
        if status in {413, 422}:
            return RefusedError(f"GitHub refuses the issue ({status}: {said}); shorten or correct its text")
        return SendError(sentences.get(status, f"{self.host} answered {status}: {said}; check alerts.toml"))


def issue_of(row: Any) -> Issue:
    """Read an issue.

    Raises:
        UncertainError: the data is no issue.
    """
    if not isinstance(row, dict) or not isinstance(row.get("number"), int):
        raise UncertainError("the answer is no issue")
    labels = row.get("labels") if isinstance(row.get("labels"), list) else []
    return Issue(
        number=row["number"],
        body=str(row.get("body") or ""),
        is_open=row.get("state") != CLOSED,
        reason=str(row.get("state_reason") or ""),
        labels=frozenset(str(each.get("name") if isinstance(each, dict) else each) for each in labels or ()),
    )


def message_of(answer: HttpAnswer) -> str:
    """Return what GitHub says about an error, in one line."""
    try:
        data = answer.data()
    except UncertainError:
        return "no message"
    if not isinstance(data, dict):
        return "no message"
    errors = data.get("errors") if isinstance(data.get("errors"), list) else []
    details = [each.get("message") or each.get("code") for each in errors or () if isinstance(each, dict)]
    words = ": ".join(str(each) for each in (data.get("message"), *details) if each)
    return " ".join(words.split()) or "no message"
