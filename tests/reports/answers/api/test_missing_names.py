"""The missing name that a log shows."""

from __future__ import annotations

import pytest

from reports.answers.api.missing_names import missing_name
from reports.answers.diagnosis.symptoms import Symptom

FRAME = '  File "/x/site-packages/trl/trainer/sft_trainer.py", line 3, in <module>\n    from transformers import X\n'


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
        ("TypeError: A.f() missing 1 required positional argument: 'b'", ("required", "A.f", "b")),
        ("RuntimeError: Failed to import trl.x: cannot import name 'A' from 'peft' (/x)", ("import", "peft", "A")),
    ],
)
def test_a_message_states_a_name(line: str, expected: tuple[str, str, str]) -> None:
    found = missing_name(Symptom(text=f"Traceback (most recent call last):\n{FRAME}{line}\n"))
    assert found is not None
    assert (found.kind, found.owner, found.name) == expected


def test_the_traceback_states_the_user() -> None:
    text = f"Traceback (most recent call last):\n{FRAME}ImportError: cannot import name 'X' from 'transformers' (/x)\n"
    found = missing_name(Symptom(text=text))
    assert found is not None
    assert found.users == ("trl.trainer.sft_trainer",)


def test_an_older_python_names_the_class_only_in_the_call() -> None:
    frame = '  File "train.py", line 3, in <module>\n    args = SFTConfig(packing=True, x=1)\n'
    text = f"Traceback (most recent call last):\n{frame}TypeError: __init__() got an unexpected keyword argument 'x'\n"
    found = missing_name(Symptom(text=text))
    assert found is not None
    assert found.owner == "SFTConfig.__init__"


def test_another_failure_states_none() -> None:
    assert missing_name(Symptom(text="Traceback (most recent call last):\nValueError: no name here\n")) is None
