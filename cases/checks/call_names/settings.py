"""The names of the checks of ``cases.behaviour.settings``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.settings.accelerator_settings": (
        "rows of batches, {title}, {kind}",
        "batches, {title}",
        "steps, {title}",
        "batches after which DDP reduces, {title}",
        "weights off, {title}",
    ),
    "cases.behaviour.settings.callback_lists": (
        "what is returned, {title}",
        "callbacks told, {title}",
    ),
    "cases.behaviour.settings.command_line": (
        "an adapter without use_peft",
        "{field} by {name}",
        "other fields by {name}",
        "all-linear as a list",
        "without quantisation",
        "bits",
        "4 bits, {title}",
        "format, {title}",
        "nested statistics, {title}",
        "dtype of computations, {title}",
    ),
    "cases.behaviour.settings.fresh_models": (
        "trained parameters that the optimiser lacks, training {turn}",
        "steps, training {turn}",
        "a model that moved, training {turn}",
        "losses of the second training",
        "models that begin elsewhere than the last",
        "starts of one seed",
        "starts of two seeds",
    ),
    "cases.behaviour.settings.grouped_setters": (
        "{field} by {key} of {name}",
        "other fields by {key} of {name}",
        "what {name} returns",
        "{marks} by {name}",
    ),
    "cases.behaviour.settings.handed_to_torch": (
        "rows of batches, {name}",
        "rows of the data set, {name}",
        "batches with {field}, {name}",
        "{attribute} by {field}, {name}",
        "{name} of DDP, with {title} chosen",
        "deterministic algorithms, full_determinism={chosen}",
        "numbers behind the start, full_determinism={chosen}",
        "level of a rank, {chosen}",
    ),
    "cases.behaviour.settings.texts_of_rows": (
        "rows by a function",
        "rows of the column {name}",
        "rows by the template of {title}",
        "template of the tokeniser, {title}",
    ),
    "cases.behaviour.settings.trl_settings": (
        "dropout of the model, {kind}, {disabled}",
        "dropout of the reference, {kind}, {disabled}",
        "{name} of a generation, {kind}, {more} others",
        "end tokens of a generation, {kind}, {more} others",
        "rows of each generation, {kind}, {size}",
        "batches of a generation, {kind}, {size}",
        "prompts, {kind}, {more}",
        "factors logged, target {target}",
        "factors off, target {target}",
    ),
}
