"""Keywords that a class rejects because a function passed them on."""

from __future__ import annotations

import pytest

from matrix.api_map.query import ApiMap
from reports.answers.api.explain_name import explain_name
from reports.answers.diagnosis.symptoms import Symptom


@pytest.fixture(scope="module")
def api() -> ApiMap:
    return ApiMap()


@pytest.mark.parametrize(
    ("message", "path", "last"),
    [
        (
            "TypeError: DownloadConfig.__init__() got an unexpected keyword argument 'trust_remote_code'",
            "datasets.load_dataset_builder(trust_remote_code)",
            "3.6.0",
        ),
        (
            "ValueError: BuilderConfig BuilderConfig(name='x', version=1.0.0) doesn't have a 'trust_remote_code' key.",
            "datasets.load_dataset_builder(trust_remote_code)",
            "3.6.0",
        ),
        (
            "TypeError: Qwen2ForCausalLM.__init__() got an unexpected keyword argument 'load_in_4bit'",
            "transformers.Qwen2ForCausalLM.from_pretrained(load_in_4bit)",
            "4.57.6",
        ),
        (
            "TypeError: MyRemoteModel.__init__() got an unexpected keyword argument 'load_in_4bit'",
            "transformers.PreTrainedModel.from_pretrained(load_in_4bit)",
            "4.57.6",
        ),
        (
            "TypeError: MyDPODataCollator.__init__() got an unexpected keyword argument 'max_prompt_length'",
            "trl.trainer.utils.DPODataCollatorWithPadding(max_prompt_length)",
            "0.7.4",
        ),
    ],
)
def test_a_keyword_belongs_to_the_function_that_takes_it_in_other_releases(
    message: str, path: str, last: str, api: ApiMap
) -> None:
    found = explain_name(Symptom(text=message), {}, api)
    assert found is not None
    assert (found.path, found.ranges[-1][1]) == (path, last)


def test_a_keyword_that_no_function_takes_has_no_such_answer(api: ApiMap) -> None:
    message = "TypeError: DownloadConfig.__init__() got an unexpected keyword argument 'never_seen'"
    found = explain_name(Symptom(text=message), {}, api)
    assert found is not None
    assert (found.path, found.known) == ("datasets.DownloadConfig(never_seen)", False)
