"""Finds the rules of a dialect that hold for a file and the installed versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from reports.answers.configuration.dialects import NEWEST, first_key_in, matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reports.answers.configuration.configs import Config
    from reports.answers.configuration.dialects import Rule


def active_rules(config: Config, versions: Mapping[str, Version]) -> Iterable[Rule]:
    """Return the rules that hold for the versions and match the file."""
    return (rule for rule in config.dialect.rules if is_known(rule, versions) and matches(rule, config.values))


def is_known(rule: Rule, versions: Mapping[str, Version]) -> bool:
    def reaches(name: str, first: str) -> bool:
        return versions.get(name, NEWEST[name]) >= Version(first)

    return all(reaches(*each) for each in rule.since.items()) and not any(reaches(*each) for each in rule.until.items())


def keys_of(rule: Rule, config: Config) -> tuple[str, ...]:
    return tuple(key for path in rule.keys if (key := first_key_in(path, config.values)) is not None)
