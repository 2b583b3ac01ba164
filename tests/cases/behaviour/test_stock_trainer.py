"""The arithmetic of the calls about trainers that needs no torch."""

from __future__ import annotations

import pytest

from cases.behaviour.trainers import accumulating, optimisers, sampling, schedules, stock_trainer, trainer_logs

STEPS = [[[0, 1], [2, 3]], [[4]]]


@pytest.mark.parametrize(
    "name",
    [
        "transformer.h.0.ln_1.weight",
        "transformer.ln_f.bias",
        "transformer.h.0.attn.c_attn.bias",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "model.norm.weight",
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    ],
)
def test_norms_and_biases_do_not_decay(name: str) -> None:
    assert not optimisers.decays(name)


@pytest.mark.parametrize("name", ["transformer.wte.weight", "lm_head.weight", "model.layers.0.self_attn.q_proj.weight"])
def test_matrices_decay(name: str) -> None:
    assert optimisers.decays(name)


def test_a_schedule_rises_to_1_and_then_falls() -> None:
    assert schedules.warmed(schedules.line, steps=6, warmup=2) == [0, 0.5, 1, 0.75, 0.5, 0.25]


def test_a_cosine_falls_from_1_to_0() -> None:
    assert [round(schedules.cosine(progress), 3) for progress in (0, 0.5, 1)] == [1, 0.5, 0]


def test_a_schedule_of_another_length_is_infinitely_far() -> None:
    assert schedules.largest_error([1.0], [1.0, 2.0]) == float("inf")


def test_steps_are_shown_by_the_rows_of_their_batches() -> None:
    assert accumulating.sizes(STEPS) == "2+2 1"


def test_a_row_that_is_missing_or_repeated_is_named() -> None:
    assert sampling.every_row([0, 2, 2, 3], count=4) == "1, 2"


def test_each_row_once_is_none() -> None:
    assert sampling.every_row([3, 1, 0, 2], count=4) == "none"


def test_means_leave_out_an_incomplete_group() -> None:
    assert trainer_logs.means([1.0, 3.0, 5.0, 7.0, 9.0], every=2) == [2.0, 6.0]


def test_padding_counts_as_tokens_if_asked() -> None:
    assert trainer_logs.tokens(STEPS, is_padding_counted=True) == 2 * 16 + 2 * 11 + 13


def test_tokens_without_padding_are_the_rows_lengths() -> None:
    assert trainer_logs.tokens(STEPS, is_padding_counted=False) == sum(stock_trainer.LENGTHS[:5])


def test_every_row_learns_a_token() -> None:
    assert min(stock_trainer.learned(number) for number in range(11)) > 0


def test_lists_of_other_lengths_are_infinitely_far() -> None:
    assert stock_trainer.worst([1.0], []) == float("inf")


def test_an_error_is_relative() -> None:
    assert stock_trainer.worst([101.0, 10.0], [100.0, 10.0]) == pytest.approx(0.01)
