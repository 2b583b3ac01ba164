"""Combines the files of one role, such as a file and a command line that overrides it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from matrix.errors import UserError
from reports.answers.configuration.dialects import ENGINE, ROLES, TRAINER, is_enabled
from reports.answers.configuration.dialects.engines import FSDP_JSON
from reports.answers.configuration.dialects.recognition import has_marks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reports.answers.configuration.configs import Config

FSDP: Final = "fsdp_config"
FSDP_PREFIX: Final = f"{FSDP}."


@dataclass(frozen=True, eq=False)
class RoleSettings:
    """The settings of one role.

    ``parts`` are the files that they come from, each with the prefix of its keys, highest precedence first.
    """

    config: Config
    parts: tuple[tuple[Config, str], ...]

    def origin(self, keys: Sequence[str]) -> tuple[Config, tuple[str, ...]]:
        """Return the file that sets some keys, and its names of them."""
        for part, prefix in self.parts:
            own = tuple(key.removeprefix(prefix) for key in keys if key.startswith(prefix))
            present = tuple(key for key in own if part.values.get(key) is not None)
            if present:
                return part, present
        return self.parts[-1 if not self.parts[-1][1] else 0][0], ()


def by_role(files: Sequence[Config]) -> tuple[RoleSettings, ...]:
    """Return the settings of each role, in increasing precedence.

    Raises:
        UserError: two files have the same role.
    """
    groups = {role: [each for each in files if each.dialect.role == role] for role in ROLES}
    found = {role: combined(role, several) for role, several in groups.items() if several}
    if ENGINE in found and TRAINER in found and includes(found[TRAINER], found[ENGINE]):
        found[TRAINER] = with_fsdp_file(found[TRAINER], found.pop(ENGINE))
    return tuple(found.values())


def combined(role: str, several: Sequence[Config]) -> RoleSettings:
    """Return the settings of a file, of a command line, or of a file that a command line overrides."""
    if len(several) == 1:
        return RoleSettings(several[0], ((several[0], ""),))
    commands = [each for each in several if not each.editable]
    files = [each for each in several if each.editable]
    if len(several) > 2 or len(commands) != 1 or not may_override(commands[0], files[0]):  # noqa: PLR2004 - a pair
        raise UserError(f"{several[0].path} and {several[1].path}: both are {role} files; give one of them")
    command, file = commands[0], files[0]
    merged = replace(
        file,
        values=overlaid(file.values, command.values),
        program=command.program,
        mentioned=command.mentioned,
        unresolved=command.unresolved,
    )
    return RoleSettings(merged, ((command, ""), (file, "")))


def may_override(command: Config, file: Config) -> bool:
    """Tell if the options of a command line can belong to the tool of a file."""
    return command.dialect is file.dialect or not has_marks(command.dialect, command.values)


def overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with others on top, by dotted path; mappings in both are merged."""
    merged = {**below, **above}
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            merged[key] = {**below[key], **value}
    return merged


def includes(trainer: RoleSettings, engine: RoleSettings) -> bool:
    """Tell if a trainer reads an FSDP file, by its path or because it enables FSDP."""
    values = trainer.config.values
    return engine.config.dialect is FSDP_JSON and (isinstance(values.get(FSDP), str) or is_enabled(values.get("fsdp")))


def with_fsdp_file(trainer: RoleSettings, engine: RoleSettings) -> RoleSettings:
    settings = {f"{FSDP_PREFIX}{key}": value for key, value in engine.config.values.items()}
    top = {key: value for key, value in engine.config.values.items() if "." not in key}
    merged = replace(trainer.config, values={**trainer.config.values, FSDP: top, **settings})
    return RoleSettings(merged, (*trainer.parts, (engine.config, FSDP_PREFIX)))
