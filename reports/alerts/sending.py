"""Sends the alerts of a night through every configured channel, and keeps what could not be sent for the next call."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cases.space.plural import counted
from reports.alerts import document as documents
from reports.alerts import issue_text, webhook
from reports.alerts.causes import CauseUpdate, causes
from reports.alerts.github import GithubApi, RefusedError
from reports.alerts.issues import IssueTracker
from reports.alerts.transport import SendError, Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reports.alerts.configuration import AlertConfiguration, Secrets
    from reports.alerts.document import AlertDocument
    from reports.alerts.journal import Journal

GITHUB, WEBHOOK = "github", "webhook"
CELLS: Final = "green"  # in place of a fingerprint


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Sends through the channels of a configuration. ``transport`` makes one with a fresh time budget."""

    configuration: AlertConfiguration
    secrets: Secrets
    api: str
    journal: Journal
    say: Callable[[str], None] = field(repr=False)
    transport: Callable[[], Transport] = Transport

    def queue(self, document: AlertDocument) -> AlertDocument:
        """Remember everything that is to be sent before anything is sent; return the document as it is sent."""
        for each in document.alerts:
            self.journal.see(each.alert.fingerprint, each.first_seen)
        document = self.remembered(document)
        for key, item in self.items(document):
            self.journal.queue(key, item)
        return document

    def remembered(self, document: AlertDocument) -> AlertDocument:
        """Return the document with the first night of each cause, as far as the journal knows an earlier one."""
        alerts = []
        for each in document.alerts:
            first = min(each.first_seen, self.journal.seen.get(each.alert.fingerprint, each.first_seen))
            alerts.append(each.model_copy(update={"first_seen": first}))
        return document.model_copy(update={"alerts": tuple(alerts)})

    def items(self, document: AlertDocument) -> Iterator[tuple[str, Any]]:
        """Return what a document sends: to GitHub one item per cause and then the green cells, one to the webhook."""
        night = document.night
        if self.configuration.github:
            for update in causes(document):
                yield f"{GITHUB}/{night}/{update.fingerprint}/{update.digest}", update.data
            if document.green or document.red:
                data = documents.stored(document.model_copy(update={"alerts": ()}))
                yield f"{GITHUB}/{night}/{CELLS}/{digest_of(data)}", data
        if self.configuration.webhook and document.alerts:
            data = documents.stored(document.model_copy(update={"green": (), "red": ()}))
            yield f"{WEBHOOK}/{night}/{digest_of(data)}", data

    def waiting(self, channel: str) -> list[tuple[str, AlertDocument]]:
        """Return what is to be sent through a channel, the earliest night first."""
        place = str(self.journal.path)
        items = [
            (key, documents.validated(documents.clean(item, self.secrets.values), place))
            for key, item in self.journal.waiting.items()
            if key.startswith(f"{channel}/")
        ]
        return sorted(items, key=lambda item: item[1].night)

    def send(self) -> list[str]:
        """Send everything that waits; return a sentence for each part that is left unsent."""
        unsent: list[str] = []
        if self.configuration.github and (items := self.waiting(GITHUB)):
            tracker, documents_of = IssueTracker(api=self.github_api()), [each for _, each in items]

            def tell(document: AlertDocument, at: datetime) -> Iterator[str]:
                if document.alerts:
                    return tracker.apply(only_cause(document, documents_of), since=at)
                return tracker.recover(document)

            unsent += self.send_all(items, tell, "issue update")
        if self.configuration.webhook and (items := self.waiting(WEBHOOK)):
            transport = self.transport()
            unsent += self.send_all(items, lambda document, _: self.post(document, transport), "message")
        return unsent

    def send_all(
        self,
        items: list[tuple[str, AlertDocument]],
        send: Callable[[AlertDocument, datetime], Iterator[str]],
        noun: str,
    ) -> Iterator[str]:
        """Send items one after the other. A refused one stops nothing; any other failure would meet the others too."""
        for number, (key, document) in enumerate(items):
            self.journal.start(key, datetime.now(UTC).isoformat(timespec="seconds"))
            try:
                for line in send(document, datetime.fromisoformat(self.journal.started[key])):
                    self.say(line)
            except RefusedError as error:
                yield f"{subject(document)}: {error}"
            except SendError as error:
                yield f"{counted(len(items) - number, noun)} not sent: {error}"
                return
            else:
                self.journal.finish(key)

    def github_api(self) -> GithubApi:
        table = self.configuration.github
        if table is None:
            raise AssertionError("no [github] table")
        return GithubApi(
            api=self.api,
            repository=table.repository,
            label=table.label,
            token=self.secrets.token,
            token_variable=table.token_variable,
            secrets=self.secrets.values,
            transport=self.transport(),
        )

    def post(self, document: AlertDocument, transport: Transport) -> Iterator[str]:
        table = self.configuration.webhook
        if table is None:
            raise AssertionError("no [webhook] table")
        payload = webhook.message(table.kind, document)
        yield from webhook.send(transport, url=self.secrets.webhook, variable=table.url_variable, payload=payload)

    def preview(self, document: AlertDocument) -> Iterator[str]:
        """Return what ``send`` would send for a document and for what waits, without a request."""
        new = {key: item for key, item in self.items(self.remembered(document)) if key not in self.journal.sent}
        self.journal.waiting.update({key: new[key] for key in new if key not in self.journal.waiting})
        for _, each in self.waiting(GITHUB) if self.configuration.github else ():
            yield from self.issue_preview(each)
        for _, each in self.waiting(WEBHOOK) if self.configuration.webhook else ():
            table = self.configuration.webhook
            if table:
                yield f"POST to the address in {table.url_variable}"
                yield json.dumps(webhook.message(table.kind, each), indent=1, ensure_ascii=False)

    def issue_preview(self, document: AlertDocument) -> Iterator[str]:
        """Show a new issue, or the comment that closes one. An issue that exists already gets a comment instead."""
        table = self.configuration.github
        if table is None:
            return
        url = f"{self.api}/repos/{table.repository}/issues"
        if not document.alerts:
            count = counted(sum(len(each.cases) for each in document.green), "green cell")
            listed = f"{count}, or cells that did not run; one that lists no other is closed"
            yield f"PATCH {url}/NUMBER, if an open issue lists any of {listed}"
            return
        update = only_cause(document)
        if update.is_red:
            payload = {"title": issue_text.title(update.main), "labels": [table.label]}
            yield f"POST {url}, or a comment if an issue has the fingerprint {update.fingerprint}"
            yield json.dumps(payload, ensure_ascii=False)
            yield issue_text.new_body(update)
        else:
            yield f"POST {url}/NUMBER/comments, if an open issue has the fingerprint {update.fingerprint}"
            yield from (f"{each.kind}: {each.line} ({counted(len(each.cells), 'cell')})" for each in update.alerts)


def only_cause(document: AlertDocument, others: Iterable[AlertDocument] = ()) -> CauseUpdate:
    """Return the update of a document with one cause. Some of the ``others`` have the green cells of its night."""
    device = document.alerts[0].device
    green = (each.green_cells(device) for each in others if each.night == document.night)
    return CauseUpdate(document=document, tonight=frozenset().union(*green))


def subject(document: AlertDocument) -> str:
    """Name what an item of the journal is about."""
    return document.alerts[0].alert.line if document.alerts else f"cells of the night {document.night}"


def digest_of(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
