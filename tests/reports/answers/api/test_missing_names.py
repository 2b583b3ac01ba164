"""The missing name that a log shows."""

from __future__ import annotations

import pytest

from reports.answers.api.missing_names import MissingName, missing_names
from reports.answers.diagnosis.symptoms import Symptom

FRAME = '  File "/x/site-packages/trl/trainer/sft_trainer.py", line 3, in <module>\n    from transformers import X\n'


def first(text: str) -> MissingName:
    return next(missing_names(Symptom(text=text)))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "ImportError: cannot import name 'A' from 'transformers.utils' (/x/y.py)",
            ("import", "transformers.utils", "A"),
        ),
        ("ModuleNotFoundError: No module named 'transformers.deepspeed'", ("module", "transformers", "deepspeed")),
        ("AttributeError: module 'torch' has no attribute 'compiler'", ("import", "torch", "compiler")),
        ("AttributeError: 'Trainer' object has no attribute 'tokenizer'", ("attribute", "Trainer", "tokenizer")),
        ("AttributeError: type object 'A' has no attribute 'b'", ("attribute", "A", "b")),
        ("TypeError: A.__init__() got an unexpected keyword argument 'b'", ("argument", "A.__init__", "b")),
        ("TypeError: A.init() got an unexpected keyword argument 'b'", ("argument", "A.__init__", "b")),
        (
            "ValueError: The checkpoint has model type `b-c` but Transformers does not recognize this architecture.",
            ("model", "transformers.models", "b-c"),
        ),
        ("TypeError: A.f() missing 1 required positional argument: 'b'", ("required", "A.f", "b")),
        ("RuntimeError: Failed to import trl.x: cannot import name 'A' from 'peft' (/x)", ("import", "peft", "A")),
        ("ImportError: Cannot import name `A` from transformers", ("import", "transformers", "A")),
        ("ImportError: cannot import name 'A'...", ("import", "", "A")),
        ("NameError: name 'A' is not defined. Did you mean: 'B'?", ("word", "", "A")),
        ("ValueError: Feature type 'List' not found. Available feature types: ['B']", ("class", "", "List")),
        ("ValueError: Tokenizer class My does not exist or is not currently imported.", ("class", "", "My")),
        ("ValueError: Some keys are not used by the HfArgumentParser: ['a', 'b']", ("field", "", "a")),
        (
            "ValueError: 'a_b' is not a valid OptimizerNames, please select one of ['c']",
            ("value", "OptimizerNames", "a_b"),
        ),
        ("AttributeError: Ab has no attribute c", ("attribute", "Ab", "c")),
        (
            "AttributeError: \N{LEFT SINGLE QUOTATION MARK}A\N{RIGHT SINGLE QUOTATION MARK} object has no attribute b",
            ("attribute", "A", "b"),
        ),
        ("TypeError: a.b()got an unexpected keyword argument'c'", ("argument", "a.b", "c")),
        ("AttributeError: Can't get attribute 'A' on <module 'trl.core' from '/x'>", ("import", "trl.core", "A")),
        ("train.py: error: unrecognized arguments: --a epoch", ("field", "", "a")),
    ],
)
def test_a_message_states_a_name(line: str, expected: tuple[str, str, str]) -> None:
    found = first(f"Traceback (most recent call last):\n{FRAME}{line}\n")
    assert (found.kind, found.owner, found.name) == expected


def test_the_traceback_states_the_user() -> None:
    text = f"Traceback (most recent call last):\n{FRAME}ImportError: cannot import name 'X' from 'transformers' (/x)\n"
    found = first(text)
    assert found.users == ("trl.trainer.sft_trainer",)


def test_an_older_python_names_the_class_only_in_the_call() -> None:
    frame = '  File "train.py", line 3, in <module>\n    args = SFTConfig(packing=True, x=1)\n'
    text = f"Traceback (most recent call last):\n{frame}TypeError: __init__() got an unexpected keyword argument 'x'\n"
    found = first(text)
    assert found.owner == "SFTConfig.__init__"


def test_another_failure_states_none() -> None:
    assert not list(missing_names(Symptom(text="Traceback (most recent call last):\nValueError: no name here\n")))


@pytest.mark.parametrize(("call", "expected"), [("config = AutoConfig.from_pretrained(x)", ["ab"]), ("table[x]", [])])
def test_a_missing_key_is_a_model_type_if_a_class_looked_it_up(call: str, expected: list[str]) -> None:
    text = f"Traceback (most recent call last):\n  File \"train.py\", line 3, in f\n    {call}\nKeyError: 'ab'\n"
    assert [each.name for each in missing_names(Symptom(text=text))][:1] == expected


def test_the_name_that_ended_the_job_comes_before_others() -> None:
    other = "AttributeError: 'Trainer' object has no attribute 'y'"
    end = f"Traceback (most recent call last):\n{FRAME}ImportError: cannot import name 'X' from 'peft' (/x)\n"
    found = missing_names(Symptom(text=f"{end}{other}\n"))
    assert {each.name for each in found} == {"X", "y"}


def test_a_log_without_frames_still_shows_the_call() -> None:
    call = "---> 29 trainer = SFTTrainer(\n         packing=True)"
    text = f"{call}\nTypeError: __init__() got an unexpected keyword argument 'x'"
    assert first(text).owner == "SFTTrainer.__init__"
