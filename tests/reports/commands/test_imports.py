"""Commands that answer at once do not import pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

COMMANDS = (
    ("explain", "tests/reports/answers/diagnosis/logs/scalar-type-float-found-half.txt"),
    ("doctor",),
    ("recommend", "--need", "qlora fsdp2"),
    ("can-i-use", "qlora fsdp2"),
    ("fix", "2026-11__train-lora-fsdp1-flatparams-fp32", "--look-up"),
    ("sets",),
    ("plan", "--where", "quant=nf4"),
)
START = "import sys; sys.modules['pandas'] = sys.modules['pyarrow'] = None; from reports.cli import main; main()"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_quick_command_imports_no_pandas(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START, *command], check=False, capture_output=True, text=True, cwd=ROOT
    )
    assert "Traceback" not in done.stderr
    assert done.returncode in {0, 1}
