"""States which jobs meet an error, as values of facts about a job, and tells if some facts fulfil such a condition.

A fact is an option of the option space by its name, an argument of the trainer as ``arguments.NAME``, or one of
``FACTS``. A condition holds if each of its facts has one of its values. A fact that nobody states is unknown, and so is
the condition then, unless another fact already denies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator

from cases.space import options

if TYPE_CHECKING:
    from collections.abc import Iterable

Value = bool | int | float | str
Facts = Mapping[str, Value]

ARGUMENTS: Final = "arguments."
ENABLED: Final = "enabled"  # a value of an argument: anything but its usual defaults
DISABLED: Final = (None, False, 0, 0.0, "", "no", "none", "off")

# Facts beside options and arguments, with their values.
FACTS: Final[Mapping[str, tuple[Value, ...]]] = {
    "device": ("cpu", "cuda"),
    "ranks": ("one", "several"),
    "accumulates": (True, False),  # gradients over several micro-batches
    "evaluates": (True, False),  # evaluates or generates between steps
    "saves": (True, False),  # what was trained is saved for use; checkpoints and merged models are other facts
    "resumes": (True, False),
    "merges": (True, False),
    "generates": (True, False),
    "trainer": ("sft", "dpo", "kto", "reward", "grpo", "orpo", "pretraining", "other"),
    # The user's code makes a call, or the data has a property, that no configuration states; ``meet`` names it.
    "own_code": (True, False),
}


def checked_condition(condition: dict[str, tuple[Value, ...]]) -> dict[str, tuple[Value, ...]]:
    """Return the condition.

    Raises:
        ValueError: a fact or one of its values is unknown.
    """
    for name, values in condition.items():
        known = known_values(name)
        if known is None:
            raise ValueError(f"{name!r} is no option, no argument ({ARGUMENTS}NAME) and none of {', '.join(FACTS)}")
        strange = [each for each in values if known and each not in known]
        if strange:
            raise ValueError(f"{name} has no value {strange[0]!r}; use {', '.join(map(str, known))}")
    return condition


def known_values(name: str) -> tuple[Value, ...] | None:
    """Return the values that a fact can have, none if it takes any, and None for an unknown fact."""
    if name.startswith(ARGUMENTS):
        return ()
    if name in FACTS:
        return FACTS[name]
    return tuple(options.values(name)) if name in options.names() else None


Condition = Annotated[dict[str, tuple[Value, ...]], AfterValidator(checked_condition)]


def holds(condition: Mapping[str, tuple[Value, ...]], facts: Facts) -> bool | None:
    """Tell if facts fulfil a condition; None if that depends on facts that are not stated."""
    answers = [fulfils(name, values, facts) for name, values in condition.items()]
    return False if False in answers else None if None in answers else True


def fulfils(name: str, values: tuple[Value, ...], facts: Facts) -> bool | None:
    """Tell if one fact has one of some values; None if it is not stated. An argument is stated or has its default."""
    if name.startswith(ARGUMENTS):
        value = facts.get(name)
        return value in values or (ENABLED in values and value not in DISABLED)
    return facts[name] in values if name in facts else None


def any_holds(conditions: Iterable[Mapping[str, tuple[Value, ...]]], facts: Facts) -> bool | None:
    """Tell if facts fulfil one of some conditions; None if that depends on facts that are not stated."""
    answers = [holds(each, facts) for each in conditions]
    return True if True in answers else None if None in answers else False
