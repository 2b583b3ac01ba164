"""Questions as users write them: their options, device, versions, and what no result answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from reports.answers.support.fillers import FILLERS
from reports.answers.support.question import asked, read
from reports.answers.support.subjects import APART
from reports.answers.support.vocabulary import WORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.results.grid import Grid

MANY = "strategy=ddp,fsdp2,fsdp1"
# Paraphrases of threads: the question; options that it names; its device, versions and subjects without options.
QUESTIONS = (
    ("Can I use QLoRA with FSDP on multiple GPUs?", "quant=nf4 strategy=fsdp2,fsdp1", "cuda", "", ""),
    ("which vllm version for grpo_trainer?", "", "", "", "GRPO,vLLM"),
    ("does --use_unsloth in llama factory work with multiple gpus", MANY, "cuda", "", "LLaMA-Factory,Unsloth"),
    ("is qlora compatible with zero-1 to zero-3 or fairscale", "quant=nf4", "", "", "DeepSpeed ZeRO,FairScale"),
    ("which deepspeed do I need, CUDA is 12.2, torch compiled with 11.7", "", "cuda", "", "DeepSpeed ZeRO"),
    ("a working combination of driver and bitsandbytes for qlora", "quant=nf4", "", "", ""),
    ("FA2 on Turing GPUs?", "attn_implementation=flash_attention_2", "cuda", "", ""),
    (
        "which unsloth trains on multi gpu? 2024.1 worked, 2024.8 refuses",
        MANY,
        "cuda",
        "",
        "Unsloth,version 2024.1 (of no package of the sets),version 2024.8 (of no package of the sets)",
    ),
    ("is multi-gpu QLoRA supported", "quant=nf4 strategy=ddp,fsdp2,fsdp1", "cuda", "", ""),
    ("does qlora + fsdp support multi-node training", "quant=nf4 strategy=fsdp2,fsdp1", "", "", "several nodes"),
    (
        "fine-tune a 70b LLM on 2x 24G GPUs like RTX 3090 with qlora",
        "quant=nf4 strategy=ddp,fsdp2,fsdp1 world_size=2",
        "cuda",
        "",
        "",
    ),
    ("Training with FSDP and qLoRA on two nodes", "quant=nf4 strategy=fsdp2,fsdp1", "", "", "several nodes"),
    ("does FSDP2 work with QLoRA", "quant=nf4 strategy=fsdp2", "", "", ""),
    ("which transformers version is compatible with peft 0.14", "method=lora", "", "peft==0.14.*", ""),
    ("which peft for transformers 4.46", "method=lora", "", "transformers==4.46.*", ""),
    ("can I use transformers==4.37.2 and peft==0.7.1", "method=lora", "", "transformers==4.37.2 peft==0.7.1", ""),
    ("compatible versions for transformers, peft and bitsandbytes please", "method=lora", "", "", ""),
    ("is torch 2.8 with peft 0.17 ok", "method=lora", "", "torch==2.8.* peft==0.17.*", ""),
    ("what version of transformers should I use with pytorch 2.6", "method=lora", "", "torch==2.6.*", ""),
    ("V100 32G load_in_4bit and fp16?", "quant=nf4 torch_dtype=fp16", "cuda", "", ""),
    ("does V100 support int4 and bf16", "quant=nf4 torch_dtype=bf16", "cuda", "", ""),
    ("fine-tune on a 16 GB T4 with bf16 mixed precision", "autocast=bf16", "cuda", "", ""),
    ("can a model fine-tuned in bf16 run on V100", "torch_dtype=bf16", "cuda", "", ""),
    ("16bit lora finetuning", "method=lora torch_dtype=bf16,fp16", "", "", ""),
    (
        "How to fine-tune Llama 3 8B with 4-bit LoRA on a single 24GB GPU",
        "method=lora quant=nf4 model=llama strategy=single",
        "cuda",
        "",
        "",
    ),
    (
        "Fine-tune Llama 3.1 70B on a RTX 4090 with QLoRA, paged AdamW 8-bit and gradient checkpointing",
        "quant=nf4 model=llama optim=paged_adamw_8bit gradient_checkpointing=non_reentrant,reentrant",
        "cuda",
        "",
        "",
    ),
    ("Does DPOTrainer support deepspeed zero3 with QLoRA?", "quant=nf4", "", "", "DeepSpeed"),
    ("FSDP/ZeRO3 support for QLoRA in DPO and ORPO?", "quant=nf4 strategy=fsdp2,fsdp1", "", "", "DeepSpeed,ORPO"),
    ("trainer + deepspeed + zero3 + peft", "front_end=trainer", "", "", "DeepSpeed"),
    ("PPO lora with deepspeed zero 3", "method=lora", "", "", "PPO,DeepSpeed"),
    (
        "does LoRA + 8bit support multi GPU (single node) training",
        "method=lora quant=int8 strategy=ddp,fsdp2,fsdp1",
        "cuda",
        "",
        "",
    ),
    ("train a model loaded in 8-bit precision on multiple devices", "quant=int8 strategy=ddp,fsdp2,fsdp1", "", "", ""),
    ("How to merge a LoRA adapter into a 4bit quantized model", "flow=merge method=lora quant=nf4", "", "", ""),
    ("merge adapters after 4 bit QLoRA training", "flow=merge quant=nf4", "", "", ""),
    ("merge lora with an int8 base model", "flow=merge method=lora quant=int8", "", "", ""),
    (
        "cannot merge LORA layers when the model is loaded in 8-bit mode",
        "flow=merge method=lora quant=int8",
        "",
        "",
        "",
    ),
    ("how do I use GRPO with LoRA and vLLM", "method=lora", "", "", "GRPO,vLLM"),
    ("Do SFT and GRPO support lora?", "front_end=sft method=lora", "", "", "GRPO"),
    (
        "multi-GPU GRPO training with Qwen2.5 in unsloth",
        "model=qwen strategy=ddp,fsdp2,fsdp1",
        "cuda",
        "",
        "GRPO,Unsloth",
    ),
    ("can I fine-tune with bitsandbytes on Apple M2", "", "cpu", "", "Apple"),
    ("does QLoRA run on AMD MI300", "quant=nf4", "cuda", "", "AMD"),
    ("4-bit LoRA on CPU only", "method=lora quant=nf4", "cpu", "", ""),
    (
        "full finetune with fully_shard and gradient checkpointing",
        "method=full strategy=fsdp2 gradient_checkpointing=non_reentrant,reentrant",
        "",
        "",
        "",
    ),
    ("could not finetune gemma 2 9b with lora and fsdp", "model=gemma method=lora strategy=fsdp2,fsdp1", "", "", ""),
    (
        "does prefix tuning work with gradient checkpointing",
        "method=prefix gradient_checkpointing=non_reentrant,reentrant",
        "",
        "",
        "",
    ),
    ("is 4-bit IA3 supported", "method=ia3 quant=nf4", "", "", ""),
    ("QLoRA with DoRA on an A100", "method=dora quant=nf4", "cuda", "", ""),
    ("does 8 * 3090 support LoRA fine-tuning", "method=lora strategy=ddp,fsdp2,fsdp1", "cuda", "", "8 GPUs"),
    ("prompt tuning with T5 8-bit", "method=prompt model=t5 quant=int8", "", "", ""),
    ("mixtral QLoRA with FSDP on 4 A100", "model=mixtral quant=nf4 strategy=fsdp2,fsdp1 world_size=4", "cuda", "", ""),
    ("fine-tune phi-4 with qlora", "quant=nf4", "", "", "phi-4"),
    ("lora with flash attention 2 on H100", "method=lora attn_implementation=flash_attention_2", "cuda", "", ""),
    ("resume LoRA training from a checkpoint under FSDP", "flow=resume method=lora strategy=fsdp2,fsdp1", "", "", ""),
    ("use load_in_8bit=True with DDP", "quant=int8 strategy=ddp", "", "", ""),
    ("qlora with GPTQ or AWQ models", "quant=nf4", "", "", "GPTQ,AWQ"),
    ("fp8 training on H200", "", "cuda", "", "FP8"),
    ("SFTTrainer packing with QLoRA", "front_end=sft data=packed quant=nf4", "", "", ""),
    ("save and reload an int8 LoRA model", "flow=save_reload method=lora quant=int8", "", "", ""),
    ("gemma-3 vision LoRA", "method=lora", "", "", "gemma-3,vision"),
    ("does rsLoRA work with int 8 and FSDP 2", "method=rslora quant=int8 strategy=fsdp2", "", "", ""),
    (
        "LoRA with lm_head in modules_to_save under FSDP2",
        "method=lora modules_to_save=lm_head strategy=fsdp2",
        "",
        "",
        "",
    ),
    ("LLM.int8() with two GPUs DDP", "quant=int8 strategy=ddp world_size=2", "cuda", "", ""),
    ("deepspeed zero-2 cpu offload with full fine-tuning", "method=full cpu_offload=True", "", "", "DeepSpeed"),
    (
        "torch 2.4.1 transformers 4.44.2 peft 0.12.0: does qlora with fsdp work",
        "quant=nf4 strategy=fsdp2,fsdp1",
        "",
        "torch==2.4.1 transformers==4.44.2 peft==0.12.0",
        "",
    ),
    ("Is torch.compile supported with LoRA", "method=lora torch_compile=True", "", "", ""),
    ("reward modeling with LoRA", "method=lora case=api-reward_*", "", "", ""),
    ("KTO trainer with peft", "case=api-kto_*", "", "", ""),
)


@pytest.mark.parametrize(("text", "named", "device", "have", "subjects"), QUESTIONS)
def test_a_question_is_read(text: str, named: str, device: str, have: str, subjects: str) -> None:
    question = read(text)
    terms = [f"{name}={','.join(map(str, values))}" for each in question.queries for name, values in each.named.items()]
    cases = [word for word in named.split() if word.startswith("case=")]
    assert sorted(terms) == sorted(set(named.split()) - set(cases))
    assert question.device == device
    assert sorted(map(str, question.have)) == sorted(have.split())
    others = " ".join([*question.not_measured, *(each.name for each in question.apart)])
    assert all(each in others for each in subjects.split(","))
    assert [f"case={each.cases}" for each in question.apart if each.name not in subjects] == cases or subjects


def test_a_query_of_words_and_terms_is_no_question() -> None:
    question = read("train qlora fsdp2 loop!=eval")
    assert question == replace(question, have=(), device="", apart=(), not_measured=(), notes=())
    assert question.queries[0].named["flow"] == ("train",)


def test_several_flows_are_several_queries() -> None:
    assert [each.named["flow"] for each in read("can I train with qlora, resume, and merge").queries] == [
        ("resume",),
        ("merge",),
    ]


def test_alternatives_are_one_term() -> None:
    (query,) = read("should I use DoRA or rsLoRA with DDP vs FSDP2").queries
    assert (query.named["method"], query.named["strategy"]) == (("dora", "rslora"), ("ddp", "fsdp2"))


def test_what_is_excluded_is_no_feature() -> None:
    (query,) = read("can I use FSDP2 without gradient checkpointing").queries
    assert query.named["gradient_checkpointing"] == ("off",)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("qlora on a V100", "V100 has no bf16: where a cell below was measured with bf16, add fp16 to the question"),
        ("qlora on a RTX 4090", "the results are of H100 and H200 GPUs"),
        ("qlora on a B200", "B200 needs torch 2.7 or later"),
        ("qlora for a 7B model", "sizes are not measured: cases use tiny models"),
        ("qlora on CUDA 12.4", "cuda 12.4: not compared"),
        ("qlora with rank 64", "rank 64: the results do not vary it"),
        ("torch 2.8", "torch==2.8.*"),
    ],
)
def test_what_matters_beside_the_options_is_noted(text: str, note: str) -> None:
    assert any(note in each for each in read(text).notes)


@pytest.mark.parametrize(
    ("text", "feature"),
    [
        ("qlora with bf16 on a T4", "bf16 on a T4, whose hardware does not support it; use fp16 or fp32"),
        ("flash attention on a T4", "FlashAttention 2 on a T4, whose hardware does not support it; use sdpa"),
    ],
)
def test_what_the_hardware_cannot_run_is_never_answered_from_other_hardware(text: str, feature: str) -> None:
    assert feature in read(text).not_measured


def test_an_h100_needs_no_note() -> None:
    assert read("can I use qlora with bf16 on an H100").notes == ()


def test_a_device_against_the_question_is_noted() -> None:
    question = asked(["qlora on a T4"], [], "cpu")
    assert "--device cpu: the question implies cuda" in question.notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("can I use qlorra", "did you mean qlora"),
        ("does frobnication work with lora", "'frobnication' is neither a known word"),
        ("how do I do it", "names no feature"),
        ("full fine-tuning with lora please", "contradict each other"),
        ("can I use lora with quant=nf5", "has no value 'nf5'"),
        ("lora with torch 2.8 on \udcff", "is neither a known word"),
    ],
)
def test_an_unknown_question_is_refused_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        read(text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_subject_without_cases_is_not_measured(measure: Callable[..., Grid]) -> None:
    grids = {"cpu": measure({"2025-06": {"quant=nf4": "pass"}})}
    question = read("GRPO with qlora").with_results(grids)
    assert question.not_measured == ("GRPO",)
    assert [each.text for each in question.queries] == ["qlora"]


def test_a_subject_with_cases_has_a_query(measure: Callable[..., Grid]) -> None:
    grids = {"cpu": measure({"2025-06": {"flow=api call=grpo_loss": "pass"}})}
    question = read("does GRPO work").with_results(grids)
    assert (question.not_measured, [each.text for each in question.queries]) == ((), ["case=api-grpo_*"])


def test_the_rest_of_a_question_must_be_possible(measure: Callable[..., Grid]) -> None:
    grids = {"cpu": measure({"2025-06": {"quant=nf4": "pass"}})}
    question = read("deepspeed zero-2 with cpu offload").with_results(grids)
    assert (question.queries, question.not_measured) == ((), ("DeepSpeed ZeRO",))


def test_no_word_for_a_feature_is_ignored() -> None:
    assert FILLERS & WORDS.keys() <= {"train"}


def test_subjects_have_one_pattern_of_cases() -> None:
    assert all(each.cases.startswith("api-") and each.cases.count("*") <= 1 for each in APART)
