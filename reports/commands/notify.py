"""``ftmatrix notify``: tells people what a night found, by issues, a webhook, a feed and a badge.

Exit codes: 0 sent, or nothing to send, 1 something is left unsent and kept for the next call, 2 bad input, such as a
missing token or a wrong configuration.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from matrix.errors import UserError
from matrix.run.secrets import without_secrets
from reports.alerts import configuration as settings
from reports.alerts import document as documents
from reports.alerts import feed as atom
from reports.alerts.badge import night_badge
from reports.alerts.journal import Journal
from reports.alerts.sending import Sender
from reports.render.files import write_whole

if TYPE_CHECKING:
    from reports.alerts.configuration import FeedTable, Secrets
    from reports.alerts.document import AlertDocument

UNSENT: Final = 1
FEED, BADGE, JOURNAL = "alerts.atom", "night.svg", "alerts.journal.jsonl"


def notify(
    alerts: Annotated[Path, typer.Argument(help="JSON document of a night's alerts.", metavar="ALERTS.json")],
    config: Annotated[Path, typer.Option("--config", help="TOML file that names where to send them.")] = Path(
        "alerts.toml"
    ),
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help=f"Folder for {FEED}, {BADGE} and the journal of unsent alerts; name the same one every night.",
            show_default="the folder of --config",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent, with secrets masked; needs no token.")
    ] = False,
) -> None:
    """Send the alerts of a night, and those that an earlier call could not send."""
    configuration = settings.load(config)
    secrets = settings.secrets_of(configuration, os.environ)
    document = documents.read(alerts, secrets=secrets.values)
    folder = out or config.parent

    def sender(journal: Journal) -> Sender:
        api = settings.api_address(os.environ)
        return Sender(
            configuration=configuration, secrets=secrets, api=api, journal=journal, say=lambda text: say(text, secrets)
        )

    if dry_run:
        for text in sender(Journal.read(folder / JOURNAL)).preview(document):
            say(text, secrets)
        return
    settings.check_secrets(configuration, secrets)
    journal = Journal.open(make_folder(folder) / JOURNAL)
    try:
        active = sender(journal)
        document = active.queue(document)
        if configuration.feed:
            write_files(folder, document, configuration.feed)
        unsent = active.send()
    finally:
        journal.close()
    for sentence in unsent:
        say(sentence, secrets, to_error=True)
    raise typer.Exit(UNSENT if unsent else 0)


def say(text: str, secrets: Secrets, *, to_error: bool = False) -> None:
    typer.echo(without_secrets(text, secrets.values), err=to_error)


def make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {folder}: cannot be created ({error.strerror}); name another folder") from None
    return folder


def write_files(folder: Path, document: AlertDocument, table: FeedTable) -> None:
    """Add the night to the feed, and draw its badge."""
    path = folder / FEED
    try:
        known = atom.read(path.read_bytes() if path.exists() else b"", str(path))
        write_whole(path, atom.feed(atom.merged(known, [document]), title=table.title, url=table.url))
        write_whole(folder / BADGE, night_badge(document.night, (each.alert for each in document.alerts)))
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); name another folder with --out") from None
