"""Reads ``alerts.toml``: where alerts are sent, and which environment variables hold the secrets for it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from matrix.errors import UserError
from matrix.run.secrets import secret_values, without_secrets
from reports.alerts.document import first_problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

REPOSITORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[\w.-]+")
VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SENT_SECRET: Final = re.compile(r"[\x21-\x7e]+")  # what a header or an address may contain
LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
API_VARIABLE: Final = "GITHUB_API_URL"  # Actions and GitHub Enterprise Server set it
API: Final = "https://api.github.com"


def checked_repository(text: str) -> str:
    if not REPOSITORY.fullmatch(text):
        raise ValueError(f"{text!r} is no repository; expected OWNER/NAME")
    return text


def checked_variable(text: str) -> str:
    # Not shown: somebody may have written the secret itself here, and a token of GitHub could be a name.
    if not VARIABLE_NAME.fullmatch(text) or without_secrets(text, frozenset()) != text:
        raise ValueError("expected the name of an environment variable, not its value")
    return text


def checked_label(text: str) -> str:
    if not text.strip() or "," in text or len(text) > LONGEST_LABEL:
        raise ValueError(f"{text!r} is no label; expected 1 to {LONGEST_LABEL} characters without a comma")
    return text


def checked_address(text: str) -> str:
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError("expected an https address") from None
    if not (parts.hostname and parts.scheme in {"http", "https"}) or any(each.isspace() for each in text):
        raise ValueError("expected an https address")
    return text


LONGEST_LABEL: Final = 50
Variable = Annotated[str, AfterValidator(checked_variable)]


class WebhookKind(StrEnum):
    SLACK = "slack"
    DISCORD = "discord"
    JSON = "json"


class AlertTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GithubTable(AlertTable):
    repository: Annotated[str, AfterValidator(checked_repository)]
    label: Annotated[str, AfterValidator(checked_label)] = "ftmatrix-alert"
    token_variable: Variable = "GITHUB_TOKEN"  # noqa: S105 - the name of a variable


class WebhookTable(AlertTable):
    kind: WebhookKind
    url_variable: Variable = "ALERT_WEBHOOK_URL"


class FeedTable(AlertTable):
    title: str = Field(default="ftmatrix", min_length=1)
    url: Annotated[str, AfterValidator(checked_address)]


class AlertConfiguration(AlertTable):
    """The tables of ``alerts.toml``; a missing table switches its channel off."""

    github: GithubTable | None = None
    webhook: WebhookTable | None = None
    feed: FeedTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """The token and the address of the webhook; empty if the variable is not set. Its text shows neither."""

    token: str = field(default="", repr=False)
    webhook: str = field(default="", repr=False)
    others: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def values(self) -> frozenset[str]:
        """Everything to mask."""
        return frozenset(
            each for each in (self.token, self.webhook, *webhook_parts(self.webhook), *self.others) if each
        )


def webhook_parts(url: str) -> tuple[str, ...]:
    """Return the parts of an address of which each opens the webhook: a log may have only the path."""
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return tuple(each for each in (path, parts.path) if len(each) >= SHORTEST_PATH)


SHORTEST_PATH: Final = 16  # characters; shorter paths are ordinary words


def load(path: Path) -> AlertConfiguration:
    """Read the configuration.

    Raises:
        UserError: the file cannot be read, or a value is wrong.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name the file with --config") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path}: not TOML: {error}") from None
    try:
        configuration = AlertConfiguration.model_validate(table)
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}") from None
    if not (configuration.github or configuration.webhook or configuration.feed):
        raise UserError(f"{path}: nothing to send to; add a [github], [webhook] or [feed] table")
    return configuration


def secrets_of(configuration: AlertConfiguration, environ: Mapping[str, str]) -> Secrets:
    """Read the secrets that the configuration names, and those to mask.

    Raises:
        UserError: a value has characters that no token or address has.
    """
    token = webhook = ""
    if configuration.github:
        token = secret(configuration.github.token_variable, environ)
    if configuration.webhook:
        webhook = secret(configuration.webhook.url_variable, environ)
        check_webhook(webhook, configuration.webhook.url_variable)
    return Secrets(token=token, webhook=webhook, others=secret_values(environ))


def check_secrets(configuration: AlertConfiguration, secrets: Secrets) -> None:
    """Refuse to start without a secret.

    Raises:
        UserError: a variable is not set.
    """
    if configuration.github and not secrets.token:
        name = configuration.github.token_variable
        raise UserError(f"no token: set {name} to a token that may write issues of {configuration.github.repository}")
    if configuration.webhook and not secrets.webhook:
        raise UserError(f"no webhook: set {configuration.webhook.url_variable} to its address")


def secret(name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name, "").strip()
    if value and not SENT_SECRET.fullmatch(value):  # an HTTP client would show the value in its error
        raise UserError(f"{name} has spaces or characters that are not ASCII; set it to the value alone")
    return value


def check_webhook(url: str, name: str) -> None:
    if url and not is_safe(url):
        raise UserError(f"{name} is no https address; set it to the address that the service shows")


def is_safe(url: str) -> bool:
    """Return whether a secret may be sent to an address: by https, or to this machine."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (
            parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOCAL)
        )
    except ValueError:
        return False


def api_address(environ: Mapping[str, str]) -> str:
    """Return the address of GitHub's API.

    Raises:
        UserError: the environment names one without https.
    """
    url = environ.get(API_VARIABLE, "").strip().rstrip("/") or API
    if not is_safe(url) or not SENT_SECRET.fullmatch(url):
        raise UserError(f"{API_VARIABLE} is no https address; set it to that of GitHub's API, or unset it")
    return url
