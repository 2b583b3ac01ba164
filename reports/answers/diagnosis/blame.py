"""Tells if a line of a pasted log may be blamed on the fine-tuning stack, from the traceback that it belongs to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from reports.answers.diagnosis import frames
from reports.answers.diagnosis.frames import Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reports.answers.diagnosis.frames import Frame
    from reports.answers.diagnosis.signatures import Signature
    from reports.answers.diagnosis.symptoms import Symptom

# A failed import names the module, whoever imports. A file of the user's with that name is none of the stack.
IMPORT: Final = re.compile(
    r"(?:cannot import name \S+ from|No module named|Could not import module) ?\S*"
    r"(?:torch|transformers|peft|accelerate|trl|bitsandbytes)\b"
)
SHADOW: Final = re.compile(r"from \S+ \((?!.*(?:site|dist)-packages)[^)]*\.py\)")
# Parts of the stack that a message names when the user's own call is refused.
PARTS: Final = re.compile(
    r"\b(?:transformers|peft|accelerate|trl|bitsandbytes|torch\.(?:cuda\.)?OutOfMemoryError|FSDP\w*|fully_shard"
    r"|FullyShardedDataParallel\w*|FlatParameter|Must flatten|(?:Seq2Seq)?TrainingArguments|(?:Seq2Seq|SFT|DPO)?Trainer"
    r"|Peft\w+|(?:Lora|LoHa|LoKr|IA3|AdaLora|OFT|BOFT|Vera|SFT|DPO|ORPO|CPO|KTO|GRPO|PPO|Reward|BitsAndBytes)Config"
    r"|Linear4bit|Linear8bitLt|Params4bit|Int8Params|Accelerator|AutoModel\w+|\w+For(?:CausalLM|SequenceClassification)"
    r"|base_model\.model|lora_[AB]|autocast_adapter_dtype|target_modules)\b"
)
ALONE: Final = 3  # lines
DETACHED: Final = re.compile(r"\.detach\(\)|\.item\(\)|\.data\b|no_grad|\.numpy\(\)|requires_grad_?\(?=? ?False")


def may_be_blamed(row: Signature, failure: Symptom, number: int) -> bool:
    """Tell if the traceback of a line admits a signature.

    A measured cell runs the harness's own code, so only pasted logs are judged. A line without a frame admits every
    signature.
    """
    if failure.options is not None:
        return True
    found = failure.log_failures
    own = found.calls(number)
    last = failure.death
    if last is not None and not is_admitted(row, failure, found.failures[-1].lines[-1], last.calls, last.message):
        return last.calls == own and satisfies_through(row, failure, number)
    return is_admitted(row, failure, number, own, failure.bare_lines[number])


def satisfies_through(row: Signature, failure: Symptom, number: int) -> bool:
    return bool(row.through) and row.through_regex.search(failure.near(number)) is not None


def is_admitted(row: Signature, failure: Symptom, number: int, calls: Sequence[Frame], message: str) -> bool:
    """Tell if a signature may explain a traceback: it died in the stack, or the signature allows for its end."""
    if SHADOW.search(message):
        return False
    text = failure.near(number)
    allowed = bool(row.elsewhere) and row.elsewhere_regex.search(text) is not None
    match frames.origin(calls):
        case Origin.UNKNOWN if row.elsewhere and (calls or not is_alone(failure)):  # a message of many programs
            return row.elsewhere_regex.search(failure.bare) is not None or PARTS.search(failure.bare) is not None
        case Origin.STACK | Origin.UNKNOWN:
            return True
        case Origin.OTHER:
            return IMPORT.search(message) is not None or (allowed and names_library(row, calls))
        case Origin.USER:
            source = next((each.source for each in reversed(calls) if each.origin is Origin.USER), "")
            if frames.is_overridden(calls) or DETACHED.search(source):
                return allowed and names_library(row, calls)
            return allowed or IMPORT.search(message) is not None or PARTS.search(message) is not None


def is_alone(failure: Symptom) -> bool:
    """Tell if somebody gave a message without the log around it."""
    return sum(bool(line.strip()) for line in failure.bare_lines) <= ALONE


def names_library(row: Signature, calls: Sequence[Frame]) -> bool:
    """Tell if a signature names the file or the library in which a traceback died."""
    found = frames.culprit(calls)
    return found is not None and row.elsewhere_regex.search(found.path) is not None
