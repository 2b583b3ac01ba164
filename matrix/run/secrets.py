"""Masks secrets in everything that a run keeps: values of secret environment variables, and tokens of known forms.

Every pattern takes time linear in the length of the text: it starts at a literal, and never scans the same text from
many starts.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Record = TypeVar("Record", bound=BaseModel)

MASK: Final = "***"
SHORTEST: Final = 8  # characters; shorter values are ordinary words
SHORTEST_LINE: Final = 20  # characters of one line of a secret of several lines, such as a private key
LONGEST: Final = 10_000  # characters of a secret that may cross the start of a truncated text

SECRET_NAME: Final = re.compile(
    r"TOKEN(?!IZER)|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|SIGNING_?KEY|ENCRYPTION_?KEY"
    r"|CREDENTIAL|AUTH(?!OR)|COOKIE|SESSION|(?:^|_)(?:PASS|PWD|PAT|DSN)$",
    re.IGNORECASE,
)
PUBLIC_NAME: Final = re.compile(
    r"(?:OLD)?PWD|SSH_AUTH_SOCK|XAUTHORITY|DESKTOP_SESSION|SESSION_MANAGER|(?:DBUS|XDG)_SESSION_.*|GIT_AUTHOR_.*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenForm:
    """A form of printed secrets. The pattern is only tried on texts that contain one of the literals.

    A group called ``secret`` is masked; without one, the whole match is.
    """

    literals: tuple[str, ...]
    pattern: re.Pattern[str]


def form(*literals: str, pattern: str) -> TokenForm:
    return TokenForm(literals=literals, pattern=re.compile(pattern))


START: Final = r"(?<![A-Za-z0-9_-])"
NAMES: Final = (
    "aws_secret_access_key|aws_session_token|secret_?access_?key|session_?token|client_?secret|account_?key"
    "|api_?key|x-api-key|access_?token|refresh_?token|id_?token|auth_?token|private_?token|password|passwd"
)
# GitHub and GitLab document the prefixes of their tokens:
# https://docs.github.com/en/authentication/keeping-your-account-and-data-secure/about-authentication-to-github
# https://docs.gitlab.com/security/tokens/
FORMS: Final = (
    form("hf_", "api_org_", pattern=START + r"(?:hf|api_org)_[A-Za-z0-9]{20,}"),
    form("gh", "github_pat_", pattern=START + r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"),
    form("gl", pattern=START + r"gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-[A-Za-z0-9_.-]{16,}"),
    form("xox", "xapp-", pattern=START + r"(?:xox[a-z]|xapp)(?:-[A-Za-z0-9]+)*-[A-Za-z0-9]{8,}"),
    form("hooks.slack.com", pattern=r"(?<=hooks\.slack\.com/)[A-Za-z0-9/_-]{16,}"),
    form("AKIA", "ASIA", pattern=START + r"A(?:KIA|SIA)[A-Z0-9]{16}"),
    form("AIza", pattern=START + r"AIza[A-Za-z0-9_-]{30,}"),
    form("ya29.", pattern=START + r"ya29\.[A-Za-z0-9_-]{20,}"),
    form("GOCSPX-", pattern=START + r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    form("1//", pattern=START + r"1//[A-Za-z0-9_-]{30,}"),
    form("npm_", pattern=START + r"npm_[A-Za-z0-9]{30,}"),
    form("pypi-AgE", pattern=START + r"pypi-AgE[A-Za-z0-9_-]{16,}"),
    form("sk-", pattern=START + r"sk-[A-Za-z0-9_-]{20,}"),
    form("_live_", "_test_", pattern=START + r"[prs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    form("dckr_pat_", pattern=START + r"dckr_pat_[A-Za-z0-9_-]{20,}"),
    form("dapi", pattern=START + r"dapi[0-9a-f]{32}"),
    form("wandb_v", pattern=START + r"wandb_v[0-9]_[A-Za-z0-9_]{20,}"),
    form("wandb", pattern=r"(?<=wandb)[^\n]{0,80}?(?<![A-Za-z0-9])(?P<secret>[0-9a-f]{40})(?![A-Za-z0-9])"),
    form("WANDB", pattern=r"(?<=WANDB)[^\n]{0,80}?(?<![A-Za-z0-9])(?P<secret>[0-9a-f]{40})(?![A-Za-z0-9])"),
    form("eyJ", pattern=START + r"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?"),
    form("://", pattern=r"(?<=://)(?P<secret>[^/\s\"'<>]+)@"),
    form("earer ", "EARER ", pattern=r"(?i:\bbearer) +(?P<secret>[A-Za-z0-9._~+/=-]{12,})"),
    form("uthorization", "UTHORIZATION", pattern=r"(?i:authorization)[\"']?[:=] *[\"']?(?P<secret>[^\r\n\"']{8,})"),
    form("password ", pattern=r"\blogin +[^\s]++ +password +(?P<secret>\S+)"),
    form(
        "PRIVATE KEY",
        pattern=r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"
        r"(?P<secret>(?:[\r\n]|\\n|(?:Proc-Type|DEK-Info): [^\r\n\\]{0,80}|[A-Za-z0-9+/=])++)",
    ),
    form("=", ":", pattern=rf"(?i:\b(?:{NAMES}))[\"']? *[=:] *[\"']?(?P<secret>[^\s\"',;&<>(){{}}\[\]]{{8,}})"),
    form(
        *("TOKEN", "SECRET", "PASSWORD", "PASSWD", "_KEY", "CREDENTIALS"),
        pattern=r"\b[A-Z][A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|ACCESS_KEY|CREDENTIALS)[\"']?[=:] *[\"']?"
        r"(?P<secret>[^\s\"',;&<>(){}\[\]]{8,})",
    ),
    form(
        *("ignature=", "oken=", "sig="),
        pattern=r"(?<=[?&])(?:[A-Za-z-]{0,30}(?:[Ss]ignature|[Tt]oken)|sig)=(?P<secret>[^\s&\"'<>]{8,})",
    ),
)


def masked(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """The text with ``***`` for the values of secret environment variables and for tokens of known forms."""
    return without_secrets(text, secret_values(environ))


def without_secrets(text: str, values: frozenset[str]) -> str:
    if values:
        text = values_pattern(values).sub(MASK, text)
    for each in FORMS:
        if any(literal in text for literal in each.literals):
            text = each.pattern.sub(mask_match, text)
    return text


def masked_values(value: Any, environ: Mapping[str, str] = os.environ) -> Any:
    """The same data with every text masked, at any depth, keys included."""
    return data_without_secrets(value, secret_values(environ))


def data_without_secrets(value: Any, values: frozenset[str]) -> Any:
    if isinstance(value, str):
        return without_secrets(value, values)
    if isinstance(value, dict):
        pairs = value.items()
        return {data_without_secrets(name, values): data_without_secrets(each, values) for name, each in pairs}
    if isinstance(value, list | tuple):
        return [data_without_secrets(each, values) for each in value]
    return value


def masked_record(record: Record) -> Record:
    """The stored record with every text masked; the same object if there is nothing to mask."""
    plain = record.model_dump(mode="json", by_alias=True)
    safe = masked_values(plain)
    return record if safe == plain else type(record).model_validate(safe)


def mask_match(match: re.Match[str]) -> str:
    if "secret" not in match.re.groupindex:
        return MASK
    start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
    return f"{match[0][:start]}{MASK}{match[0][end:]}"


def secret_values(environ: Mapping[str, str]) -> frozenset[str]:
    """Values of variables whose name sounds secret. Short values and paths of existing files are ordinary words."""
    return frozenset(
        value
        for name, value in environ.items()
        if len(value) >= SHORTEST
        and SECRET_NAME.search(name)
        and not PUBLIC_NAME.fullmatch(name)
        and not is_path(value)
    )


def is_path(value: str) -> bool:
    try:
        return value.startswith("/") and Path(value).exists()
    except (OSError, ValueError):  # too long, or a null character
        return False


@cache
def values_pattern(values: frozenset[str]) -> re.Pattern[str]:
    forms = {each for value in values for each in printed_forms(value)}
    return re.compile("|".join(re.escape(each) for each in sorted(forms, key=lambda each: (-len(each), each))))


def printed_forms(value: str) -> Iterator[str]:
    """A value as programs print it: plain, in a repr, in JSON, in a URL, and line by line."""
    yield value
    yield repr(value)[1:-1]
    yield json.dumps(value)[1:-1]
    yield quote(value, safe="")
    yield from long_lines(value.splitlines())


def long_lines(lines: Iterable[str]) -> Iterator[str]:
    yield from (line for line in lines if len(line) >= SHORTEST_LINE)
