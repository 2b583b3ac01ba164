"""``--have`` takes requirements as users write them, and a short version means its whole series."""

from __future__ import annotations

import pytest

from matrix.errors import UserError
from reports.answers.support.requirements import has, reading, requirement


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("torch==2.8.0", "torch==2.8.0"),
        ("torch==2.8.0+cu128", "torch==2.8.0"),
        ("torch==2.8", "torch==2.8.*"),
        ("torch==2", "torch==2.*"),
        ("torch 2.8", "torch==2.8.*"),
        ("torch=2.8", "torch==2.8.*"),
        ("PyTorch 2.8.0", "torch==2.8.0"),
        ("bnb==0.43.3", "bitsandbytes==0.43.3"),
        ("transformers==4.46.*", "transformers==4.46.*"),
        ("peft>=0.15,<0.18", "peft<0.18,>=0.15"),
    ],
)
def test_a_requirement_is_read(text: str, meaning: str) -> None:
    assert str(requirement(text)) == meaning


def test_a_short_version_covers_its_series() -> None:
    assert has({"transformers": "4.46.3"}, [requirement("transformers==4.46")])
    assert not has({"transformers": "4.47.0"}, [requirement("transformers==4.46")])


@pytest.mark.parametrize("text", ["transformers==4.46", "torch 2.8", "torch=2.8.0"])
def test_another_reading_is_stated(text: str) -> None:
    assert reading(text).startswith(f"--have {text}: read as t")


@pytest.mark.parametrize("text", ["torch==2.8.0", "torch == 2.8.0+cu128", "peft>=0.15,<0.18", "peft==0.15.*"])
def test_an_exact_requirement_needs_no_note(text: str) -> None:
    assert reading(text) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("torch=>2.8", "is not a requirement; write torch=="),
        ("torch", "names no version"),
        ("", "is not a requirement"),
        ("numpy==2", "the sets pin torch"),
        ("tourch==2", "did you mean torch"),
        ("torch[cuda]==2", "give a name and versions"),
        ("torch @ https://example.org/x.whl", "give a name and versions"),
    ],
)
def test_an_invalid_requirement_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        requirement(text)
