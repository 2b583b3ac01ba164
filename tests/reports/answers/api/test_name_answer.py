"""Answers for missing names, from the packaged map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.api_map.query import ApiMap
from reports.answers.api.explain_name import answer, explain_name
from reports.answers.api.missing_names import MissingName
from reports.answers.diagnosis.symptoms import Symptom
from reports.render.text import api_text

if TYPE_CHECKING:
    from reports.answers.api.name_answer import NameAnswer


@pytest.fixture(scope="module")
def api() -> ApiMap:
    return ApiMap()


def answered(api: ApiMap, kind: str, owner: str, name: str, *users: str, **versions: str) -> NameAnswer:
    found = answer(MissingName(kind=kind, owner=owner, name=name, line="", users=users), versions, api)
    assert found is not None
    return found


def test_a_removed_name_has_its_range_its_users_and_the_smallest_moves(api: ApiMap) -> None:
    found = answered(
        api, "import", "peft", "prepare_model_for_int8_training", "trl.models.modeling_base", peft="0.10.0", trl="0.7.1"
    )
    assert found.ranges == (("0.4.0", "0.9.0"),)
    assert [(each.package, each.ranges) for each in found.users] == [("trl", (("0.4.2", "0.7.1"),))]
    assert {each.typed for each in found.moves} == {"peft==0.9.0", "trl==0.7.2"}


def test_a_renamed_parameter_has_its_new_name(api: ApiMap) -> None:
    found = answered(api, "argument", "SFTTrainer.__init__", "tokenizer", trl="0.16.0")
    assert found.renamed == "processing_class"


def test_a_parameter_that_moved_to_the_configuration_is_named_there(api: ApiMap) -> None:
    found = answered(api, "argument", "SFTTrainer.__init__", "packing", trl="0.16.0")
    assert found.instead == ("trl.SFTConfig(packing)",)


def test_a_name_that_the_version_of_the_log_has_contradicts_the_log(api: ApiMap) -> None:
    found = answered(api, "import", "trl.trainer.utils", "ConstantLengthDataset", trl="0.19.1")
    assert found.contradicts
    assert found.ranges == (("0.4.2", "0.19.1"),)
    assert "trl 0.19.1, which the log names, has" in api_text.cause(found)


def test_a_name_of_every_release_means_an_older_one(api: ApiMap) -> None:
    found = answered(api, "import", "bitsandbytes.nn", "Linear4bit")
    assert found.contradicts
    assert "in every release since June 2023" in api_text.cause(found)


def test_a_version_from_before_the_map_is_not_said_to_have_the_name(api: ApiMap) -> None:
    cause = api_text.cause(answered(api, "import", "bitsandbytes.nn", "Linear4bit", bitsandbytes="0.38.0"))
    assert cause.endswith("bitsandbytes 0.38.0, which the log names, is older and may lack it")


def test_a_module_that_is_half_imported_has_no_answer(api: ApiMap) -> None:
    line = "ImportError: cannot import name 'LoraConfig' from partially initialized module 'peft' (/x)"
    assert (
        answer(MissingName(kind="import", owner="peft", name="LoraConfig", line=line), {"peft": "0.17.0"}, api) is None
    )


def test_a_name_that_never_existed_is_said_in_one_sentence(api: ApiMap) -> None:
    found = answered(api, "import", "peft", "NeverExisted")
    assert not found.known
    assert "no final release of peft since June 2023 has `peft.NeverExisted`" in api_text.cause(found)


def test_a_name_of_another_package_has_no_answer(api: ApiMap) -> None:
    assert answer(MissingName(kind="import", owner="numpy", name="bool", line=""), {}, api) is None


@pytest.mark.parametrize("name", ["qwen3", "gemma3_text"])
def test_a_model_type_that_is_too_new_has_its_first_release(api: ApiMap, name: str) -> None:
    found = answered(api, "model", "transformers.models", name, transformers="4.48.0")
    assert found.path == f"transformers.models.{name.removesuffix('_text')}"
    assert found.ranges[0][0] == {"qwen3": "4.51.0", "gemma3_text": "4.50.0"}[name]


def test_a_model_type_of_every_release_has_no_answer(api: ApiMap) -> None:
    missing = MissingName(kind="model", owner="transformers.models", name="llama", line="")
    assert answer(missing, {}, api) is None


def test_an_attribute_of_the_users_model_is_looked_up_in_its_usual_base(api: ApiMap) -> None:
    found = answered(api, "attribute", "MyModelForCausalLM", "all_tied_weights_keys", transformers="4.57.1")
    assert found.path == "transformers.PreTrainedModel.all_tied_weights_keys"
    assert found.ranges[0][0] == "5.0.0"


def test_an_attribute_of_no_usual_base_has_no_answer(api: ApiMap) -> None:
    missing = MissingName(kind="attribute", owner="MyModel", name="my_own_attribute", line="")
    assert answer(missing, {}, api) is None


def test_a_module_from_before_the_map_is_in_no_release(api: ApiMap) -> None:
    assert not answered(api, "module", "torch", "_six").known


def test_a_name_in_other_case_is_found(api: ApiMap) -> None:
    found = answered(api, "import", "torch.distributed.tensor", "dtensor")
    assert (found.path, found.ranges[0][0]) == ("torch.distributed.tensor.DTensor", "2.5.0")


@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [
        ("import", "HybridCache", "transformers.HybridCache"),
        ("word", "PreTrainedConfig", "transformers.PreTrainedConfig"),
        ("class", "List", "datasets.List"),
        ("field", "evaluation_strategy", "transformers.TrainingArguments(evaluation_strategy)"),
    ],
)
def test_a_name_without_its_module_is_looked_up_in_the_packages(api: ApiMap, kind: str, name: str, path: str) -> None:
    assert answered(api, kind, "", name).path == path


def test_a_word_that_no_package_exports_has_no_answer(api: ApiMap) -> None:
    assert answer(MissingName(kind="word", owner="", name="my_variable", line=""), {}, api) is None


def test_an_attribute_that_only_a_derived_class_has_names_this_class(api: ApiMap) -> None:
    found = answered(api, "attribute", "TrainingArguments", "packing", "trl.trainer.sft_trainer")
    assert (found.path, found.read_from) == ("trl.SFTConfig.packing", "transformers.TrainingArguments")


def test_an_attribute_of_a_trainer_is_not_looked_up_in_a_package_that_the_log_does_not_show(api: ApiMap) -> None:
    lacking = MissingName(kind="attribute", owner="Trainer", name="ref_model", line="", users=("transformers.trainer",))
    assert answer(lacking, {}, api) is None
    users_own = MissingName(kind="attribute", owner="MyTrainer", name="padding_value", line="")
    assert answer(users_own, {"transformers": "4.46.1"}, api) is None


def test_an_argument_that_a_caller_leaves_out_is_not_blamed_on_the_function(api: ApiMap) -> None:
    found = answered(api, "required", "Trainer.get_batch_samples", "num_batches")
    assert found.left_out
    assert "its caller does not pass it" in api_text.cause(found)


def test_a_module_without_a_file_may_be_a_folder(api: ApiMap) -> None:
    line = "ImportError: cannot import name 'DDPOConfig' from 'trl' (unknown location)"
    assert "a folder of that name may hide it" in api_text.cause(explained(api, line))


def test_a_call_that_a_report_quotes_behind_the_message_names_the_class(api: ApiMap) -> None:
    text = (
        "TypeError: __init__() got an unexpected keyword argument 'dispatch_batches'\nx = Accelerator(\n    y=1,\n)\n"
    )
    assert explained(api, text).path == "accelerate.Accelerator(dispatch_batches)"


def test_releases_that_accept_any_argument_are_listed(api: ApiMap) -> None:
    found = answered(api, "argument", "Params4bit.__new__", "_is_hf_initialized")
    assert found.accepts_any
    assert found.ranges[0][0] == "0.50.0"


def test_an_argument_that_the_version_of_the_log_accepts_contradicts_the_log(api: ApiMap) -> None:
    assert answered(api, "argument", "DPOTrainer.__init__", "beta", trl="0.11.3").contradicts


def test_an_argument_that_no_release_accepts_is_said(api: ApiMap) -> None:
    assert not answered(api, "argument", "LoraConfig.__init__", "enable_lora").known


@pytest.mark.parametrize(
    ("method", "name", "first"),
    [("_set_gradient_checkpointing", "enable", "4.35.0"), ("forward", "num_items_in_batch", "4.46.0")],
)
def test_an_argument_that_a_newer_caller_passes_has_the_first_release(
    api: ApiMap, method: str, name: str, first: str
) -> None:
    found = answered(api, "argument", method, name, "transformers.trainer")
    assert found.overrides
    assert found.ranges[0][0] == first


def explained(api: ApiMap, text: str, **versions: str) -> NameAnswer:
    found = explain_name(Symptom(text=text), versions, api)
    assert found is not None
    return found


def test_another_name_of_the_log_is_looked_up_if_the_last_one_is_of_no_package(api: ApiMap) -> None:
    text = "AttributeError: 'Qwen3Config' object has no attribute 'rope_theta'\n'list' object has no attribute 'keys'"
    assert explained(api, text).path == "transformers.Qwen3Config.rope_theta"


@pytest.mark.parametrize(
    ("text", "path", "installed"),
    [
        (
            "ImportError: tokenizers>=0.11.1,<0.14 is required for a normal functioning, but found tokenizers==0.15.0.",
            "tokenizers<0.14,>=0.11.1",
            "0.15.0",
        ),
        (
            "trl 0.12.0 requires transformers>=4.46.0, but you have transformers 4.40.1 which is incompatible.",
            "transformers>=4.46.0",
            "4.40.1",
        ),
        ("The conflict is caused by:\n    trl 0.12.0 depends on transformers>=4.46.0", "transformers>=4.46.0", ""),
        ("The version of PEFT is not compatible, use a version that is greater than 0.5.0", "peft>=0.5.0", ""),
        ("4 bit quantization requires bitsandbytes>=0.39.0 - please upgrade", "bitsandbytes>=0.39.0", ""),
        ("Disabling PyTorch because PyTorch >= 2.4 is required but found 2.3.1", "torch>=2.4", "2.3.1"),
        ("ImportError: Using the `Trainer` with PyTorch requires `accelerate>=0.26.0`", "accelerate>=0.26.0", ""),
    ],
)
def test_a_requirement_that_is_not_met_has_the_releases_that_meet_it(
    api: ApiMap, text: str, path: str, installed: str
) -> None:
    found = explained(api, text)
    assert found.is_requirement
    assert (found.path, found.installed) == (path, installed)


def test_a_requirement_names_the_releases_of_the_package_that_states_it(api: ApiMap) -> None:
    found = explained(api, "trl 0.12.0 requires transformers>=4.46.0, but you have transformers 4.40.1 which is bad.")
    assert [each.package for each in found.users] == ["trl"]
    assert {each.package for each in found.moves} == {"transformers", "trl"}


def test_a_requirement_that_is_met_has_no_answer(api: ApiMap) -> None:
    text = "Using the `Trainer` with PyTorch requires `accelerate>=0.26.0`"
    assert explain_name(Symptom(text=text), {"accelerate": "1.2.0"}, api) is None


def test_a_value_of_an_enumeration_is_its_member(api: ApiMap) -> None:
    found = answered(api, "value", "PeftType", "vblora")
    assert found.path.endswith("PeftType.VBLORA")
    assert found.ranges[0][0] == "0.13.0"


def test_the_log_shows_that_a_name_is_missing_where_the_map_cannot_tell(api: ApiMap) -> None:
    found = answered(api, "attribute", "Qwen2TokenizerFast", "batch_encode_plus", transformers="5.3.0")
    assert found.ranges[-1][1] == "4.57.6"


@pytest.mark.parametrize(
    ("kind", "owner", "name"),
    [
        ("argument", "LogisticRegression.fit", "tokenizer"),
        ("argument", "TextClassifier.forward", "labels"),
        ("count", "MetricBar.log", "2"),
        ("attribute", "SimpleNamespace", "model"),
        ("field", "", "load_in_4bit"),
        ("argument", "LlamaForCausalLM.__init__", "my_option"),
    ],
)
def test_a_name_of_the_users_own_code_has_no_answer(api: ApiMap, kind: str, owner: str, name: str) -> None:
    assert answer(MissingName(kind=kind, owner=owner, name=name, line=""), {}, api) is None


def test_a_requirement_that_every_release_meets_has_no_answer(api: ApiMap) -> None:
    assert explain_name(Symptom(text="ValueError: You need torch>=1.10, using an Ampere GPU"), {}, api) is None


def test_a_module_name_that_the_log_cuts_is_completed(api: ApiMap) -> None:
    assert answered(api, "import", "transformers.modeling_", "shard_checkpoint").path == (
        "transformers.modeling_utils.shard_checkpoint"
    )


def test_an_argument_of_every_release_means_an_older_one(api: ApiMap) -> None:
    assert answered(api, "argument", "hf_hub_download", "token").contradicts


def test_no_move_leads_to_a_yanked_release(api: ApiMap) -> None:
    found = answered(api, "argument", "Trainer.__init__", "processing_class", transformers="4.45.2")
    assert found.ranges[0][0] == "4.46.0"
    assert "transformers==4.46.1" in {each.typed for each in found.moves}
