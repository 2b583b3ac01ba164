"""Queries are parsed from words and terms; impossible ones are refused in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.space import options
from matrix.errors import UserError
from reports.answers.support.matching import points, ways
from reports.answers.support.query import check, parse
from reports.answers.support.vocabulary import FILLER_WORDS, WORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.results.grid import Grid


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("qlora fsdp2", "flow=train method=lora quant=nf4 strategy=fsdp2"),
        ("method=lora quant=nf4 strategy=fsdp2", "flow=train method=lora quant=nf4 strategy=fsdp2"),
        ("QLoRA + FSDP2, DoRA", "flow=train method=dora quant=nf4 strategy=fsdp2"),
        ("full fine-tuning and ddp", "flow=train method=full quant=none strategy=ddp"),
        ("8-bit with DDP", "flow=train method=lora quant=int8 strategy=ddp"),
        ("lora merge_reload", "flow=merge_reload method=lora quant=none strategy=single"),
        ("dora fsdp", "flow=train method=dora quant=none strategy=fsdp2,fsdp1"),
        ("qlora bf16 eval", "flow=train method=lora quant=nf4 strategy=single torch_dtype=bf16 loop=eval"),
        ("quant!=none,fp4", "flow=train method=lora quant=nf4,int8 strategy=single"),
        ("load nf4", "flow=load method=full quant=nf4 strategy=single"),
        ("fsdp1 wrap=peft", "flow=train method=lora quant=none strategy=fsdp1 auto_wrap_policy=peft"),
        ("ddp also_trained=head", "flow=train method=lora quant=none strategy=ddp modules_to_save=lm_head"),
        ("ddp also_trained=embeddings", "flow=train method=lora quant=none strategy=ddp target_embeddings=True"),
    ],
)
def test_words_and_terms_are_equivalent(text: str, terms: str) -> None:
    assert parse(text).terms == terms


def test_a_former_option_name_is_answered_with_the_present_one() -> None:
    query = parse("fsdp1 wrap=peft sharding!=grad_op use_orig_params=true")
    assert query.text == "fsdp1 auto_wrap_policy=peft sharding_strategy!=shard_grad_op use_orig_params=true"
    assert query.renamings == (
        "wrap=peft: the option is auto_wrap_policy now (auto_wrap_policy=peft)",
        "sharding!=grad_op: the option is sharding_strategy now (sharding_strategy!=shard_grad_op)",
    )


@pytest.mark.parametrize("word", sorted(WORDS))
def test_every_word_matches_a_legal_case(word: str) -> None:
    assert all(set(wanted) <= set(options.values(name)) for name, wanted in parse(word).named.items())


@pytest.mark.parametrize("word", sorted(WORDS))
def test_no_word_is_ignored(word: str) -> None:
    assert word not in FILLER_WORDS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty query"),
        ("with and +", "empty query"),
        ("qlorra", "'qlorra' is neither a known word nor a term such as quant=nf4; did you mean qlora"),
        ("\x00\x01", "is neither a known word"),
        ("quantt=nf4", "unknown option 'quantt'"),
        ("quant=nf5", "option 'quant' has no value 'nf5'; choose from none, nf4"),
        ("quant=", "'quant=' is neither a known word"),
        ("full lora", "'full' and 'lora' contradict each other: both set method"),
        ("qlora 8-bit", "'qlora' and '8-bit' contradict each other: both set quant"),
        ("fsdp2 strategy!=fsdp2", "contradict each other"),
        ("wrap=pefd", "option 'auto_wrap_policy' has no value 'pefd'"),
        ("also_trained=head,embeddings", "also_trained was split into modules_to_save and target_embeddings"),
        ("bnb_4bit_use_double_quant!=true,false", "excludes every value of bnb_4bit_use_double_quant"),
    ],
)
def test_an_invalid_query_is_refused_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        parse(text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("full nf4", "quantised weights are not trainable"),
        ("load fsdp2", "flow=load runs in one process"),
        ("ddp auto_wrap_policy=peft", "auto_wrap_policy has no effect with the other options"),
        ("lora bnb_4bit_use_double_quant=true", "bnb_4bit_use_double_quant has no effect with the other options"),
    ],
)
def test_an_impossible_query_is_refused_with_its_reason(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(parse(text))


def test_a_long_legal_query_is_accepted() -> None:
    check(
        parse(
            "flow!=load method!=lora quant!=none strategy!=single attn_implementation!=default "
            "gradient_accumulation_steps=1,2"
        )
    )


def test_a_case_without_settings_matches_the_plain_query(measure: Callable[..., Grid]) -> None:
    cells = {"quant=nf4 torch_dtype=bf16": "pass", "quant=nf4 torch_dtype=bf16 bnb_4bit_quant_storage=bf16": "pass"}
    measured = points(measure({"2025-06": cells}))
    assert [dict(way.settings) for way in ways(parse("qlora"), measured)] == [{}, {"bnb_4bit_quant_storage": "bf16"}]


def test_a_named_option_is_never_a_setting(measure: Callable[..., Grid]) -> None:
    cells = dict.fromkeys(("method=dora", "strategy=ddp", "loop=eval", "quant=nf4", "model=gpt2", "flow=merge"), "pass")
    assert ways(parse("lora"), points(measure({"2025-06": cells}))) == ()


def test_a_pattern_of_cases_is_a_query(measure: Callable[..., Grid]) -> None:
    measured = points(measure({"2025-06": {"quant=nf4": "pass", "method=dora": "pass"}}))
    assert [way.case for way in ways(parse("case=*-dora-*"), measured)] == ["train-dora-single-fp32"]


def test_a_pattern_with_former_words_is_a_query(measure: Callable[..., Grid]) -> None:
    measured = points(measure({"2025-06": {"strategy=fsdp1 auto_wrap_policy=peft": "pass"}}))
    (way,) = ways(parse("case=*-peftwrap-*"), measured)
    assert "auto_wrap_policy_peft" in way.case
