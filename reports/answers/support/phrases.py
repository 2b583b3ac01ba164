"""Spellings of users and of the libraries' documentation, each with the words of the vocabulary that it means."""

from __future__ import annotations

import re
from typing import Final

TRUE: Final = r"(?: ?= ?true)?"
MULTI: Final = "strategy=ddp,fsdp2,fsdp1"
# Replaced one after the other; an empty text drops the phrase.
PHRASES: Final = tuple(
    (re.compile(rf"(?<![\w.=-])(?:{pattern})(?![\w=])"), words)
    for pattern, words in (
        # optimisers, before the bits of quantisation
        (r"(?:optim ?= ?)?paged[ _-]adamw?[ _-]8[ _-]?bit|8[ -]?bit paged adamw?", "optim=paged_adamw_8bit"),
        (r"(?:optim ?= ?)?adamw?[ _-](?:bnb[ _-])?8[ _-]?bit|8[ -]?bit (?:adamw?|optimi[sz]ers?)", "optim=adamw_8bit"),
        (r"(?:optim ?= ?)?adamw?(?:_torch|_hf)?(?: optimi[sz]er)?", "optim=adamw"),
        # quantisation
        (
            r"(?:bnb_)?4[ -]?bit[ _-]double[ _-]quant\w*|(?:bnb_4bit_use_)?double[ _-]quant(?:i[sz]ation)?" + TRUE,
            "double",
        ),
        (r"bnb_4bit_quant_type ?= ?[\"']?(?P<quant>nf4|fp4)[\"']?", r"\g<quant>"),
        (r"(?:load[ _-]in[ _-])(?:4[ _-]?bits?|int_?4)" + TRUE + r"|(?:4|four)[ -]?bits?|int[ -]?4|w4a16", "nf4"),
        (
            r"(?:load[ _-]in[ _-])(?:8[ _-]?bits?|int_?8\w*)"
            + TRUE
            + r"|(?:8|eight)[ -]?bits?|int[ -]8|llm\.int8(?:\(\))?",
            "int8",
        ),
        (r"nf-4|normal ?float ?4?", "nf4"),
        (r"q-lora", "qlora"),
        (r"un-?quanti[sz]ed|(?:without|no) quanti[sz]ation", "quant=none"),
        # precision
        (r"(?:bf16|bfloat16)[ -](?:mixed(?:[ -]precision)?|amp|autocast)", "autocast=bf16"),
        (r"(?:fp16|float16)[ -](?:mixed(?:[ -]precision)?|amp|autocast)", "autocast=fp16"),
        (r"(?:automatic )?mixed[ -]precision", "amp"),
        (r"bf[ -]?16" + TRUE + r"|bfloat[ -]?16|torch\.bfloat16|brain float", "bf16"),
        (r"fp[ -]?16" + TRUE + r"|float[ -]?16|torch\.float16|half[ -]precision", "fp16"),
        (r"fp[ -]?32|float[ -]?32|torch\.float32|full[ -]precision|single[ -]precision", "fp32"),
        (r"16[ -]?bits?", "torch_dtype=bf16,fp16"),
        # methods
        (r"full(?:[ -](?:parameter|param|model|weight))?s?[ -]?(?:fine[ -]?tun(?:ing|ed?)|sft|ft)", "full"),
        (r"prompt[ -]tun(?:ing|ed)", "prompt"),
        (r"prefix[ -]tun(?:ing|ed)", "prefix"),
        (r"(?:use_)?rs[ -]?lora" + TRUE + r"|rank[ -]stabili[sz]ed lora", "rslora"),
        (r"use_dora" + TRUE, "dora"),
        (r"\(ia\)[ ^]?3|ia\^3|ia³", "ia3"),
        # strategies
        (r"fsdp[ -]?v?1|fully[ -]?sharded[ -]?data[ -]?parallel", "fsdp1"),
        (r"fsdp[ -]?v?2|fully_shard(?:\(\))?|fsdp_version ?= ?2", "fsdp2"),
        (r"distributed[ -]?data[ -]?parallel(?:ism)?|data[ -]parallel(?:ism)?", "ddp"),
        (r"hybrid[ -]shard(?:ing|ed)?", "hsdp"),
        (
            r"(?:(?:cpu|param(?:eter)?s?)[ _-]?)?off-?load(?:ing|ed)?(?: to (?:the )?cpu)?",
            "offload",
        ),
        # loops
        (r"(?:gradient|activation)[ _-]checkpoint(?:ing|s)?(?: ?= ?true)?|checkpointing", "gradient_checkpointing"),
        (r"(?:use_)?reentrant ?= ?false|non[ -]reentrant", "non-reentrant"),
        (
            r"gradient[ _-]accumulation(?:[ _-]steps)?(?: ?= ?\d+)?|accumulat(?:e|ed|ing)(?: gradients?)?",
            "gradient_accumulation_steps=2",
        ),
        (
            r"(?:gradient|grad(?:ient)?_norm)[ _-]clip(?:ping)?|clip(?:ping)? (?:the )?grad(?:ient)?s?|max_grad_norm",
            "clip_grad_norm=true",
        ),
        (r"torch[._ ]?compile[d]?" + TRUE + r"|compiled?", "torch_compile=true"),
        (r"packing" + TRUE + r"|packed|sample packing|sequence packing", "data=packed"),
        (r"flash[ _-]?att(?:entio)?n(?:[ _-]?v?2)?|fa[ -]?2", "attn_implementation=flash_attention_2"),
        (r"sdpa|scaled[ -]dot[ -]product[ -]attention", "attn_implementation=sdpa"),
        (r"eager(?: attention)?", "attn_implementation=eager"),
        (r"evaluat(?:e|ion|ing|es)(?: during training)?|eval", "eval"),
        (r"find[ _]unused[ _]parameters" + TRUE, "find_unused_parameters=true"),
        (r"hugging ?face trainer|hf trainer|transformers(?:\.| )trainer|(?<!-)trainer", "trainer"),
        (r"sft(?:[ -]?trainer|[ -]?config)?|supervised fine[ -]?tuning|instruction[ -]tun(?:ing|ed)", "sft"),
        (
            r"(?:lm[ _-]?head )?(?:in |as |with )?modules_to_save(?: ?= ?lm_head)?|lm[ _-]?head",
            "modules_to_save=lm_head",
        ),
        # flows
        (r"merg(?:e|es|ed|ing)(?:[ _]and[ _]unload(?:ed|ing)?)?(?:[ _]adapters?)?", "merge"),
        (
            r"resum(?:e|es|ed|ing)(?: from)?(?: an?| the)?(?: checkpoints?)?|resume_from_checkpoint|continue training",
            "resume",
        ),
        (r"(?:sav(?:e|es|ed|ing)|save_pretrained)(?:,? (?:and|then) (?:re-?)?load(?:ed|ing|s)?(?: again)?)?", "save"),
        (r"re-?load(?:s|ed|ing)?", "reload"),
        (r"generat(?:e|es|ed|ing|ion)|infer(?:ence|ring)?", "generate"),
        (
            r"(?:resized?|add(?:ed|ing)?) (?:new |special |extra )?(?:tokens?|embeddings?|vocab\w*)",
            "embeddings=resized",
        ),
        # numbers of GPUs; counts are replaced before
        (r"multi(?:ple)?[ -]?(?:gpus?|cards?|devices?)|several (?:gpus?|devices?|cards?)|many gpus", MULTI),
        (
            r"(?:on )?(?:a |one |1 ?x? ?)?single[ -](?:\w+ )?(?:gpu|card|device|process)|(?:one|1) (?:gpu|card|device)",
            "single",
        ),
        (r"single[ -]nodes?|one node|1 node", ""),
        (r"lora[ -]adapters?|adapter tuning|low-rank adapt\w+", "lora"),
    )
)
