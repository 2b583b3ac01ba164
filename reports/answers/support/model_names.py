"""Recognises models in a question: the families that cases build, and families without any case."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SIZE: Final = (
    r"(?<![\w.=])(?:\d+ ?x ?)?\d+(?:\.\d+)? ?(?:b|bn|billion|m|million)(?: ?-?param\w*)?(?![\w.])(?:-?a\d+b\b)?"
)
# A version after a family's name, but no number of GPUs, bits or parameters.
VERSION: Final = r"(?:[ -]?v?(?P<version>\d(?:\.\d+)?)(?![\w.]| ?(?:x|\*|gpus?|cards?|nodes?|-?bits?|b|h\d|a\d)\b))?"
PREFIX: Final = r"(?:[\w.-]+/)?(?:\w+[-_])*?"
SUFFIX: Final = r"(?:[-_][\w.]+)*"
TEXT_MODELS: Final = (
    # pattern, option, versions with the architecture of the cases (empty: every version)
    (r"qwen", "qwen3", ("3",)),
    (r"qwen", "qwen", ("", "1.5", "2", "2.5")),
    (r"gemma", "gemma", ("", "2")),
    (r"(?:tiny|code|open|meta)?[ -]?llama", "llama", ("", "1", "2", "3", "3.1", "3.2", "3.3")),
    (r"mixtral", "mixtral", ()),
    (r"mistral", "mistral", ()),
    (r"gpt[ -]?2", "gpt2", ()),
    (r"(?:flan[ -]?)?t5", "t5", ()),
)
OTHER_FAMILIES: Final = (
    *("phi", "falcon", "deepseek", "gpt-?oss", "gpt-?j", "gpt-?neo[x]?", "gpt-?[34]", "bloomz?", "opt", "bert"),
    *("roberta", "deberta", "distilbert", "modernbert", "bart", "mt5", "whisper", "llava", "internlm", "internvl"),
    *("chatglm", "glm", "yi", "command-?r", "mpt", "starcoder", "pythia", "olmo", "granite", "nemotron", "smollm"),
    *("stablelm", "baichuan", "kimi", "minicpm", "pixtral", "ministral", "codestral", "devstral", "magistral"),
    *("stable[ -]diffusion", "sdxl", "flux", "dbrx", "jamba", "mamba", "rwkv", "minimax", "exaone", "vit", "clip"),
    *("wav2vec", "codegen", "blip", "paligemma", "idefics", "qwq", "esm", "nllb", "solar", "vicuna", "zephyr", "lfm"),
)
FOREIGN: Final = re.compile(r"(?:vl|vision|omni|audio|moe|a\d+b|next|3n|embedding|math-vl)")
OTHER: Final = re.compile(
    rf"(?<![\w-])(?:{'|'.join(OTHER_FAMILIES)})(?:[ -]?v?\d+(?:\.\d+)?(?![\w.]| ?(?:gpus?|x|bits?|b)\b))?{SUFFIX}(?!\w)"
)
HUB: Final = re.compile(r"(?<![\w./-])[a-z][\w.-]+/[\w.-]*\d[\w.-]*")  # a model of the Hub by its id


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModels:
    """The models of a question and the rest of its text. ``has_size`` tells that it names a number of parameters."""

    rest: str
    models: tuple[str, ...] = ()
    not_measured: tuple[str, ...] = ()
    has_size: bool = False


def found_models(text: str) -> FoundModels:
    """Find the models in a question in lower case."""
    models: list[str] = []
    unknown: list[str] = []
    rest = text
    for pattern in dict.fromkeys(each for each, _, _ in TEXT_MODELS):
        expression = re.compile(rf"(?<![\w.-]){PREFIX}{pattern}{VERSION}(?P<more>{SUFFIX})(?!\w)")
        for match in expression.finditer(rest):
            model = family(pattern, match["version"] or "", match["more"])
            (models if model else unknown).append(model or match[0].strip())
        rest = expression.sub(lambda match: sizes_of(match[0]), rest)
    for other in (OTHER, HUB):
        unknown += (match[0] for match in other.finditer(rest))
        rest = other.sub(lambda match: sizes_of(match[0]), rest)
    rest, sizes = re.subn(SIZE, " ", rest)
    return FoundModels(
        rest=rest,
        models=tuple(dict.fromkeys(models)),
        not_measured=tuple(dict.fromkeys(unknown)),
        has_size=bool(sizes),
    )


def family(pattern: str, version: str, more: str) -> str:
    """Return the model of the cases with the architecture of a family's version; empty if there is none."""
    if FOREIGN.search(more):
        return ""
    of_family = ((model, versions) for each, model, versions in TEXT_MODELS if each == pattern)
    fitting = (model for model, versions in of_family if not versions or version in versions)
    return next(fitting, "")


def sizes_of(name: str) -> str:
    """Return the number of parameters within a model's name, e.g. of ``Llama-3.1-8B-Instruct``."""
    found = re.search(r"(?<=-)\d+(?:\.\d+)?b\b", name)
    return f" {found[0]} " if found else " "
