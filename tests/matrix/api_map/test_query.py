"""Names of releases, as the map answers for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.api_map.changes import changes
from matrix.api_map.view import Presence

if TYPE_CHECKING:
    from matrix.api_map.query import ApiMap

OLD = {"transformers": "4.40.0", "trl": "0.9.0"}
NEW = {"transformers": "4.46.0", "trl": "0.9.0"}


def test_a_lazy_module_exports_what_its_dictionary_lists(api: ApiMap) -> None:
    assert api.having("transformers.Trainer").ranges == (("4.40.0", "4.46.0"),)
    assert api.having("transformers.TrainingArguments").ranges == (("4.40.0", "4.46.0"),)


def test_a_field_of_a_dataclass_is_a_parameter_until_it_is_removed(api: ApiMap) -> None:
    assert api.having("transformers.TrainingArguments(evaluation_strategy)").versions == ("4.40.0",)
    assert api.having("transformers.TrainingArguments(eval_strategy)").versions == ("4.46.0",)


def test_a_renamed_parameter_that_is_still_accepted_is_there(api: ApiMap) -> None:
    assert api.at(NEW).presence("transformers.Trainer(tokenizer)") is Presence.THERE
    assert api.rename("transformers.Trainer", "tokenizer") == "processing_class"


def test_a_sentence_in_the_code_states_a_new_name(api: ApiMap) -> None:
    assert api.rename("transformers.TrainingArguments", "evaluation_strategy") == "eval_strategy"


def test_fields_come_from_a_base_in_another_package_at_its_version(api: ApiMap) -> None:
    assert api.at(OLD).presence("trl.SFTConfig(evaluation_strategy)") is Presence.THERE
    assert api.at(NEW).presence("trl.SFTConfig(evaluation_strategy)") is Presence.MISSING


def test_a_name_that_no_release_has_is_not_known(api: ApiMap) -> None:
    assert not api.having("transformers.NeverExisted").known


def test_an_attribute_that_a_method_sets_is_there(api: ApiMap) -> None:
    assert api.having("transformers.Trainer.model").versions == ("4.40.0",)


def test_a_package_outside_the_versions_is_unknown(api: ApiMap) -> None:
    assert api.at({"trl": "0.9.0"}).presence("transformers.Trainer") is Presence.UNKNOWN


def test_a_changed_default_is_listed_with_both_values(api: ApiMap) -> None:
    (changed,) = changes(api, "transformers", OLD, NEW).defaults
    assert (changed.path, changed.parameter) == ("transformers.TrainingArguments", "seed")
    assert (changed.old, changed.new) == ("0", "1")


def test_a_parameter_that_is_gone_is_listed_with_its_new_name(api: ApiMap) -> None:
    found = changes(api, "transformers", OLD, NEW)
    assert found.removed == ("transformers.TrainingArguments(evaluation_strategy)",)
    assert found.renamed == {"transformers.TrainingArguments(evaluation_strategy)": "eval_strategy"}


def test_a_dataclass_has_its_own_fields_and_those_of_its_base(api: ApiMap) -> None:
    found = api.parameters("trl.SFTConfig", NEW) or []
    assert {each.name for each in found} == {"max_length", "output_dir", "eval_strategy", "seed"}
