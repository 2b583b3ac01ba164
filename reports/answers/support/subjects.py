"""Subjects of questions that are no options: trainers that API cases measure, and what nothing measures."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A subject by its name; ``cases`` is the pattern of the cases that measure it, empty if none can."""

    name: str
    pattern: str
    cases: str = ""


TRAINER: Final = r"(?:[ _-]?trainer|[ _-]?config|[ -]?training)?s?"
FLAG: Final = r"(?:--)?(?:use|enable)_|--"  # of a command line
# These run their own code, so they answer for the subject alone.
APART: Final = (
    Subject(name="DPO", pattern=rf"dpo{TRAINER}|direct preference optimi[sz]ation", cases="api-dpo_trains"),
    Subject(name="KTO", pattern=rf"kto{TRAINER}", cases="api-kto_*"),
    Subject(name="GRPO", pattern=rf"(?:dr[ .]?)?grpo{TRAINER}", cases="api-grpo_*"),
    Subject(name="ORPO", pattern=rf"orpo{TRAINER}", cases="api-orpo_*"),
    Subject(name="CPO", pattern=rf"cpo{TRAINER}", cases="api-cpo_*"),
    Subject(name="RLOO", pattern=rf"rloo{TRAINER}", cases="api-rloo_*"),
    Subject(
        name="reward modelling",
        pattern=r"reward(?:[ -]?(?:modell?(?:ing|s)?|trainer|training|config))?",
        cases="api-reward_*",
    ),
    Subject(
        name="device_map=auto",
        pattern=r"device[_ -]map(?: ?= ?[\"']?auto[\"']?| auto)?|naive model parallel\w*",
        cases="api-device_map_auto*",
    ),
)
NOT_MEASURED: Final = (
    Subject(
        name="DeepSpeed ZeRO",
        pattern=r"(?:deep ?speed|ds)?[ -]?zero[ -]?(?:stage[ -]?)?[123](?:[ -]?offload)?|zero[ -](?:infinity|offload)"
        r"|deep ?speed(?:[ -]?stage[ -]?[123])?|stage[ -]?[123](?= zero)",
    ),
    *(
        Subject(name=name, pattern=pattern)
        for name, pattern in {
            "online DPO": r"online[ -]dpo",
            "PPO": rf"ppo{TRAINER}",
            "SimPO": r"simpo",
            "GKD": rf"gkd{TRAINER}",
            "RLHF": r"rlhf",
            "LLaMA-Factory": r"llama[ -]?factory",
            "llama.cpp and GGUF": r"llama\.?cpp|gguf|ollama",
            "Unsloth": r"unsloth(?:[ _-]?zoo)?",
            "Axolotl": r"axolotl",
            "FairScale": r"fair ?scale",
            "Megatron": r"megatron(?:[ -](?:lm|core))?",
            "NeMo": r"nemo(?:[ -](?:rl|automodel|framework))?",
            "torchtune": r"torchtune",
            "torchtitan": r"torchtitan",
            "PyTorch Lightning": r"(?:pytorch[ -])?lightning",
            "Colossal-AI": r"colossal[ -]?ai",
            "Ray": r"ray(?:[ -]train)?",
            "ms-swift": r"(?:ms-)?swift",
            "vLLM": r"vllm",
            "SGLang": r"sglang",
            "FP8": r"fp[ -]?8|float8\w*|transformer[ -]?engine",
            "4-bit floats of Blackwell": r"nvfp4|mxfp[48]",
            "GPTQ": r"(?:auto)?gptq\w*",
            "AWQ": r"(?:auto)?awq",
            "HQQ": r"hqq",
            "AQLM": r"aqlm",
            "EETQ": r"eetq",
            "EXL2": r"exl[23]",
            "torchao": r"torchao",
            "quanto": r"(?:optimum[ -])?quanto",
            "tensor parallelism": r"tensor[ -]parallel\w*|tp",
            "pipeline parallelism": r"pipeline[ -]parallel\w*|pp",
            "context parallelism": r"(?:context|sequence)[ -]parallel\w*|ring[ -]attention|ulysses|cp|sp",
            "expert parallelism": r"expert[ -]parallel\w*|ep",
            "FlashAttention 3": r"(?:flash[ -]?attention|flash[ -]?attn|fa)[ -_]?3",
            "xformers": r"xformers",
            "Liger kernels": r"liger(?:[ -]kernels?)?",
            "vision": r"vision(?:[ -]language)?|multi-?modal|vlms?|images?",
            "audio": r"audio|speech|asr|tts",
            "diffusion": r"diffusers?|diffusion|dreambooth",
            "GaLore": r"galore",
            "LoRA+": r"lora ?\+(?=$|\s*[,.?])|lora plus",
            "LongLoRA": r"longlora",
            "NEFTune": r"neftune",
            "p-tuning": r"p-tuning(?:[ -]v2)?",
            "several nodes": r"multi[ -]?nodes?|(?:two|several|multiple|many|[2-9]|\d\d) nodes|multi[ -]?host",
            "Windows": r"windows|wsl2?",
            "Adafactor": r"adafactor",
            "Muon": r"muon",
            "LoRA-GA": r"lora-ga",
            "classification": r"(?:sequence|token|text)[ -]classification|classifiers?",
            "embedding models": r"sentence[ -](?:transformers?|embeddings?)|embedding models?",
        }.items()
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSubjects:
    """The subjects of a question and the rest of its text."""

    rest: str
    apart: tuple[Subject, ...] = ()
    not_measured: tuple[str, ...] = ()


def found_subjects(text: str) -> FoundSubjects:
    """Find the subjects in a question in lower case."""
    rest, none = taken(text, NOT_MEASURED)
    rest, apart = taken(rest, APART)
    return FoundSubjects(rest=rest, apart=apart, not_measured=tuple(each.name for each in none))


def taken(text: str, subjects: tuple[Subject, ...]) -> tuple[str, tuple[Subject, ...]]:
    """Return the text without the subjects, and those that it had."""
    had = []
    for subject in subjects:
        text, times = re.subn(rf"(?<![\w.=-])(?:{FLAG})?(?:{subject.pattern})(?![\w=-])", " ", text)
        if times:
            had.append(subject)
    return text, tuple(had)
