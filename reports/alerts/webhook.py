"""Sends one message per night to a webhook of Slack, Discord, or anything that reads JSON.

A webhook cannot tell whether it received a message. If an answer is lost, the message is sent again: twice is better
than never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cases.space.plural import counted
from reports.alerts.alert import shortened
from reports.alerts.configuration import WebhookKind
from reports.alerts.document import stored
from reports.alerts.transport import HttpRequest, SendError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reports.alerts.alert import Alert
    from reports.alerts.document import AlertDocument
    from reports.alerts.transport import HttpAnswer, Transport

# https://docs.slack.dev/reference/block-kit/blocks: characters of a header, of a section, and blocks of a message
SLACK_HEADER: Final = 150
SLACK_SECTION: Final = 3_000
SLACK_BLOCKS: Final = 50
# https://docs.discord.com/developers/resources/message#embed-object: characters, and embeds of a message
DISCORD_TITLE: Final = 256
DISCORD_DESCRIPTION: Final = 4_096
DISCORD_TOTAL: Final = 6_000  # of all embeds
DISCORD_EMBEDS: Final = 10
DISCORD_ALERT: Final = 560  # so that ten fit
RED, GREEN = 0xCB2431, 0x28A745
NAMED_CELLS: Final = 3
BODY: Final = 600  # characters of a Slack alert's details
LOST_WEBHOOK: Final = frozenset({401, 403, 404, 410})


def message(kind: WebhookKind, document: AlertDocument) -> Any:
    """Return what is sent for a night."""
    alerts = sorted((each.alert for each in document.alerts), key=lambda alert: not alert.kind.is_red)
    heading = f"ftmatrix, night of {document.night}: {counts(alerts)}"
    match kind:
        case WebhookKind.SLACK:
            return slack(heading, alerts)
        case WebhookKind.DISCORD:
            return discord(heading, alerts)
        case WebhookKind.JSON:
            fingerprints = [each.alert.fingerprint for each in document.alerts]
            return {"text": heading, "fingerprints": fingerprints, **stored(document)}


def counts(alerts: Sequence[Alert]) -> str:
    kinds = dict.fromkeys(each.kind for each in alerts)
    return ", ".join(f"{sum(each.kind is kind for each in alerts)} {kind}" for kind in kinds) or "no alerts"


def slack(heading: str, alerts: Sequence[Alert]) -> dict[str, Any]:
    room = SLACK_BLOCKS - 1  # of which the last says how many are left out
    shown = alerts if len(alerts) <= room else alerts[: room - 1]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": shortened(heading, SLACK_HEADER), "emoji": False}},
        *(slack_section(slack_text(each)) for each in shown),
    ]
    if len(shown) < len(alerts):
        blocks.append(slack_section(f"and {counted(len(alerts) - len(shown), 'more alert')}"))
    return {"text": slack_escaped(heading, SLACK_SECTION), "blocks": blocks}


def slack_section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def slack_text(alert: Alert) -> str:
    parts = (
        f"*{slack_escaped(alert.line.replace('*', ''), 300)}*",
        slack_escaped(alert.summary, 600),
        slack_escaped(f"Cause: {' '.join(alert.cause.split())}", 600),
        slack_escaped(named_cells(alert), 800),
        slack_escaped(" ".join(alert.body.split()), BODY),
    )
    return "\n".join(part for part in parts if part)


def slack_escaped(text: str, limit: int) -> str:
    """Escape a text, so that nobody is notified by ``<!channel>``; at most ``limit`` characters after that."""
    return fitting(text, limit, lambda part: part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def fitting(text: str, limit: int, escape: Callable[[str], str], length: Callable[[str], int] = len) -> str:
    """Escape as much of a text as fits; an escape is never cut."""
    whole = escape(text)
    if length(whole) <= limit:
        return whole
    low, high = 0, min(len(text), limit)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if length(escape(text[:middle])) < limit else (low, middle - 1)
    return f"{escape(text[:low])}…"


def discord(heading: str, alerts: Sequence[Alert]) -> dict[str, Any]:
    shown = alerts if len(alerts) <= DISCORD_EMBEDS else alerts[: DISCORD_EMBEDS - 1]
    embeds = [discord_embed(each) for each in shown]
    if len(shown) < len(alerts):
        embeds.append({"description": f"and {counted(len(alerts) - len(shown), 'more alert')}"})
    content = fitting(heading, 2_000, discord_escaped, utf16)
    return {"content": content, "embeds": embeds, "allowed_mentions": {"parse": []}}


def discord_embed(alert: Alert) -> dict[str, Any]:
    """Return the embed of an alert. Ten of them stay below the limit of a message."""
    title = fitting(alert.line, min(DISCORD_TITLE, 160), discord_escaped, utf16)
    lines = (alert.summary, f"Cause: {' '.join(alert.cause.split())}", named_cells(alert))
    description = fitting("\n".join(each for each in lines if each), DISCORD_ALERT - 160, discord_escaped, utf16)
    return {"title": title, "description": description, "color": RED if alert.kind.is_red else GREEN}


def discord_escaped(text: str) -> str:
    return "".join(f"\\{each}" if each in "\\*_~`|>#[]()<@" else each for each in text)


def utf16(text: str) -> int:
    """Return the length as JavaScript counts it."""
    return len(text.encode("utf-16-le")) // 2


def named_cells(alert: Alert) -> str:
    names = ", ".join(map(str, alert.cells[:NAMED_CELLS]))
    more = len(alert.cells) - NAMED_CELLS
    return f"Cells: {names}{f' and {more} more' if more > 0 else ''}" if names else ""


def send(transport: Transport, *, url: str, variable: str, payload: Any) -> Iterator[str]:
    """Send a message.

    Raises:
        SendError: it was not sent.
    """
    request = HttpRequest(method="POST", url=url, headers={"User-Agent": "ftmatrix"}, payload=payload, repeatable=True)
    answer = transport.send(request)
    if not answer.is_success:
        raise SendError(refusal(answer, variable))
    yield "sent the message to the webhook"


def refusal(answer: HttpAnswer, variable: str) -> str:
    """Say why a webhook refuses; its own words are left out, as they may repeat the address."""
    status = answer.status
    if status in LOST_WEBHOOK:
        return f"the webhook refuses ({status}): it was revoked or never existed; set {variable} to a new address"
    if status in {400, 413, 422}:
        return f"the webhook refuses the message ({status}); check that its kind in alerts.toml is right"
    return f"the webhook answered {status}; check the address in {variable}"
