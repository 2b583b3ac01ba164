"""Tests of the expected values of calls with several adapters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from cases.behaviour.adapters.lora_reference import FIRST, SECOND, Adapter, Base, changed, written

LLAMA = {"model_type": "llama"}


def base(*layers: str) -> Base:
    return Base(LLAMA, {f"{layer}.weight": SimpleNamespace(shape=(3, 5)) for layer in layers})


def test_the_scaling_is_alpha_over_the_rank() -> None:
    assert (FIRST.scaling, SECOND.scaling) == (3.0, 0.5)


def test_rslora_divides_by_the_root_of_the_rank() -> None:
    assert Adapter(name="x", rank=4, alpha=5, more={"use_rslora": True}).scaling == 2.5


def test_an_adapter_is_placed_on_layers_by_their_whole_last_name() -> None:
    found = base("model.layers.0.q_proj", "model.layers.0.not_q_proj", "v_proj", "lm_head").placed(FIRST)
    assert set(found) == {"model.layers.0.q_proj", "v_proj"}


def test_embeddings_have_other_names_of_parts() -> None:
    one = base("model.embed_tokens")
    assert one.side("model.embed_tokens", "A", "first") == "model.embed_tokens.lora_embedding_A.first"
    assert one.side("q_proj", "B", "first") == "q_proj.lora_B.first.weight"


class Tensor(int):
    """A number in the place of a tensor."""

    def equal(self, other: int) -> bool:
        return self == other


def test_changed_names_what_differs_and_what_one_side_lacks() -> None:
    before = cast("dict[str, Any]", {"same": Tensor(1), "other": Tensor(1), "gone": Tensor(1)})
    after = cast("dict[str, Any]", {"same": Tensor(1), "other": Tensor(2), "new": Tensor(1)})
    assert changed(before, after) == {"other", "gone", "new"}


def test_an_empty_set_is_written_as_none() -> None:
    assert (written(set()), written({"b", "a"})) == ("none", "a b")
