"""The state of a candidate, and the interface of a test, which the search algorithms share."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Subject = TypeVar("Subject")


class State(Enum):
    """The result of testing a candidate."""

    GREEN = "green"
    RED = "red"  # with the failure of the bad end
    UNTESTABLE = "untestable"  # not resolvable, not installable, or red with another failure


class BatchTest(Protocol[Subject]):
    """Tests several candidates at once, and returns the state of each."""

    def __call__(self, candidates: Sequence[Subject], /) -> Mapping[Subject, State]: ...
