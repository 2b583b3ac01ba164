"""Sends HTTP requests within a time budget: waits for rate limits, repeats what is safe to repeat, and hides secrets.

A request that is not safe to repeat, such as one that creates an issue, is sent again only if the server cannot have
processed it. Otherwise `UncertainError` lets the caller look first.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping

Result = TypeVar("Result")

BUDGET_S: Final = 300.0  # of one channel, waiting for rate limits included
REQUEST_S: Final = 30.0
ATTEMPTS: Final = 6
FIRST_PAUSE_S: Final = 1.0  # doubles with each attempt
LONGEST_PAUSE_S: Final = 60.0
SECONDARY_PAUSE_S: Final = 60.0  # GitHub: wait at least a minute if the answer names no time
LONGEST_ANSWER: Final = 32 * 1024 * 1024  # bytes
TOO_MANY: Final = 429
FORBIDDEN: Final = 403
NOT_PROCESSED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class SendError(Exception):
    """Something could not be sent: one sentence, without secrets."""


class UncertainError(SendError):
    """The server may have processed the request, but gave no usable answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request. ``repeatable`` means that sending it twice has the effect of sending it once."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    payload: Any = None
    repeatable: bool = False

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """An answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004 - the class of a status code

    def data(self) -> Any:
        """Parse the body.

        Raises:
            UncertainError: it is no JSON, because it was cut off or comes from a proxy.
        """
        try:
            return json.loads(self.body)
        except ValueError:
            raise UncertainError(f"the answer ({self.status}) is not JSON") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Time to wait before the next attempt. ``processed`` is whether the server may have done what it should do."""

    seconds: float
    why: str
    processed: bool


@dataclass(slots=True, kw_only=True)
class TimeBudget:
    """The time that is left for sending. Its functions can be replaced in tests."""

    seconds: float = BUDGET_S
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time
    end: float = field(init=False)

    def __post_init__(self) -> None:
        self.end = self.monotonic() + self.seconds

    @property
    def left(self) -> float:
        return self.end - self.monotonic()

    def wait(self, seconds: float, why: str) -> None:
        """Sleep.

        Raises:
            SendError: the time that is left is too short.
        """
        if seconds >= self.left:
            again = datetime.fromtimestamp(self.now() + seconds, tz=UTC)
            raise SendError(f"{why}; run the same command again after {again:%Y-%m-%d %H:%M:%S} UTC")
        self.sleep(seconds)


def drop_record(_: logging.LogRecord) -> bool:
    """Drop a log record: httpx logs the address of every request, which is a secret for webhooks."""
    return False


@dataclass(kw_only=True)
class Transport:
    """Sends requests, and repeats them where that is safe."""

    budget: TimeBudget = field(default_factory=TimeBudget)
    request_s: float = REQUEST_S

    def __post_init__(self) -> None:
        logging.getLogger("httpx").addFilter(drop_record)

    def send(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer, whatever its status, unless the status is temporary.

        Raises:
            UncertainError: the request may have been processed, and is not safe to repeat.
            SendError: the server cannot be reached, or its rate limit lasts longer than the budget.
        """
        pause: Pause | None = None
        for attempt in range(ATTEMPTS):
            answer, pause = self.once(request, attempt)
            if answer and not pause:
                return answer
            if pause and pause.processed and not request.repeatable:
                raise UncertainError(pause.why)
            if pause and attempt + 1 < ATTEMPTS:
                self.budget.wait(pause.seconds, pause.why)
        raise SendError(f"{pause.why if pause else request.host}, {ATTEMPTS} times; run the same command again later")

    def once(self, request: HttpRequest, attempt: int) -> tuple[HttpAnswer | None, Pause | None]:
        """Send a request once; return the answer, and how long to wait if it is temporary."""
        try:
            answer = exchange(request, timeout_s=max(0.1, min(self.request_s, self.budget.left)))
        except NOT_PROCESSED as error:
            why = f"{request.host} cannot be reached ({type(error).__name__})"
            return None, Pause(seconds=backoff(attempt), why=why, processed=False)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            why = f"{request.host} gave no whole answer ({type(error).__name__})"
            return None, Pause(seconds=backoff(attempt), why=why, processed=True)
        return answer, pause_of(answer, request.host, attempt=attempt, now=self.budget.now())


def exchange(request: HttpRequest, *, timeout_s: float) -> HttpAnswer:
    """Send a request and read its answer within a time, even if every byte of it arrives slowly."""
    end = time.monotonic() + timeout_s
    headers = dict(request.headers)
    with httpx.stream(
        request.method, request.url, headers=headers, json=request.payload, timeout=timeout_s, verify=certificates()
    ) as response:
        body = b"".join(chunks(response, end))
        links = {str(name): str(link["url"]) for name, link in response.links.items() if "url" in link}
        headers = {name.lower(): value for name, value in response.headers.items()}
        return HttpAnswer(status=response.status_code, headers=headers, body=body, links=links)


@cache
def certificates() -> ssl.SSLContext:
    """Load the certificates of authorities, which takes longer than a request."""
    return httpx.create_ssl_context()


def chunks(response: httpx.Response, end: float) -> Iterator[bytes]:
    size = 0
    for chunk in response.iter_bytes():
        size += len(chunk)
        if time.monotonic() > end:
            raise httpx.ReadTimeout("the answer took too long")
        if size > LONGEST_ANSWER:
            raise httpx.DecodingError("the answer is too long")
        yield chunk


def pause_of(answer: HttpAnswer, host: str, *, attempt: int, now: float) -> Pause | None:
    """Return how long to wait before the next attempt; None if the answer is final."""
    if answer.status in {FORBIDDEN, TOO_MANY}:
        seconds = rate_limit_s(answer, attempt=attempt, now=now)
        why = f"{host} limits the rate of requests ({answer.status})"
        return None if seconds is None else Pause(seconds=seconds, why=why, processed=False)
    if answer.status >= 500 or answer.status == 408:  # noqa: PLR2004 - status codes
        seconds = max(retry_after_s(answer, now=now) or 0.0, backoff(attempt))
        return Pause(seconds=seconds, why=f"{host} answered {answer.status}", processed=True)
    return None


def rate_limit_s(answer: HttpAnswer, *, attempt: int, now: float) -> float | None:
    """Return the seconds until a rate limit ends; None if the answer is no rate limit, but a refusal."""
    after = retry_after_s(answer, now=now)
    if after is not None:
        return after
    if answer.headers.get("x-ratelimit-remaining") == "0":
        reset = number(answer.headers.get("x-ratelimit-reset", ""))
        return SECONDARY_PAUSE_S if reset is None else max(0.0, reset - now) + 1
    if answer.status == TOO_MANY or b"rate limit" in answer.body.lower():
        return float(SECONDARY_PAUSE_S * 2**attempt)
    return None


def retry_after_s(answer: HttpAnswer, *, now: float) -> float | None:
    """Read the ``Retry-After`` header, which has seconds or a date."""
    text = answer.headers.get("retry-after", "")
    seconds = number(text)
    if seconds is not None:
        return max(0.0, seconds)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (TypeError, ValueError):
        return None


def number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e12 else None  # noqa: PLR2004 - neither infinite nor NaN, and a time


def backoff(attempt: int) -> float:
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt))


def exactly_once(look: Callable[[], Result | None], act: Callable[[], Result], budget: TimeBudget) -> Result:
    """Act unless a look shows that it is done; after an uncertain answer, wait and look again.

    Raises:
        SendError: the server gave only uncertain answers.
    """
    why = ""
    for attempt in range(ATTEMPTS):
        done = look()
        if done is not None:
            return done
        try:
            return act()
        except UncertainError as error:
            why = str(error)
            budget.wait(backoff(attempt), why)
    raise SendError(f"{why}, {ATTEMPTS} times; run the same command again later")
