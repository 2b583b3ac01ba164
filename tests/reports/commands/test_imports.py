"""Commands that answer at once do not import pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]

ENVIRONMENT = "the environment of a set"
COMMANDS = (
    ("explain", "tests/reports/answers/diagnosis/logs/scalar-type-float-found-half.txt"),
    ("doctor", "--python", ENVIRONMENT),
    ("recommend", "--need", "qlora fsdp2"),
    ("can-i-use", "qlora fsdp2"),
    ("fix", "2026-11__train-lora-fsdp1-use_orig_params_false-fp32", "--look-up"),
    ("sets",),
    ("plan", "--where", "quant=nf4"),
)
START = "import sys; sys.modules['pandas'] = None; from reports.cli import main; main()"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_quick_command_imports_no_pandas(command: tuple[str, ...], environment: Callable[[str], Path]) -> None:
    words = [str(environment("2026-11")) if word == ENVIRONMENT else word for word in command]
    done = subprocess.run([sys.executable, "-c", START, *words], check=False, capture_output=True, text=True, cwd=ROOT)
    assert "Traceback" not in done.stderr
    assert done.returncode in {0, 1}
