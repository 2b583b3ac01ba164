"""Answers for missing names, from the packaged map."""

from __future__ import annotations

import pytest

from matrix.api_map.query import ApiMap
from reports.answers.api.missing_names import MissingName
from reports.answers.api.name_answer import NameAnswer, answer
from reports.render.text import api_text


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


def test_a_name_that_is_there_has_no_answer(api: ApiMap) -> None:
    missing = MissingName(kind="import", owner="peft", name="LoraConfig", line="")
    assert answer(missing, {"peft": "0.17.0"}, api) is None


def test_a_name_that_never_existed_is_said_in_one_sentence(api: ApiMap) -> None:
    found = answered(api, "import", "peft", "NeverExisted")
    assert not found.known
    assert "no final release of peft since June 2023 has `peft.NeverExisted`" in api_text.cause(found)


def test_a_name_of_another_package_has_no_answer(api: ApiMap) -> None:
    assert answer(MissingName(kind="import", owner="numpy", name="bool", line=""), {}, api) is None
