"""The reader follows names and objects through a script, and runs nothing."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from matrix.errors import UserError
from reports.answers.check import sources
from reports.answers.check.reader import read_code
from reports.answers.check.sources import CodeSource


def paths(text: str) -> set[str]:
    """The names that a script takes, without a guard."""
    source = CodeSource(path=Path("train.py"), tree=ast.parse(text))
    return {path for each in read_code(source).uses if not each.guard for path in each.paths}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("import transformers as t\nt.Trainer", "transformers.Trainer"),
        ("from trl import SFTTrainer as S\nx = S()\nx.train(resume=1)", "trl.SFTTrainer.train(resume)"),
        (
            "from peft import get_peft_model\nm = get_peft_model(a, b)\nm.merge_and_unload()",
            "peft.PeftModel.merge_and_unload",
        ),
        ("import trl\ndef f(t: trl.SFTTrainer):\n    t.train()", "trl.SFTTrainer.train"),
        ("from trl import SFTConfig\nclass C(SFTConfig):\n    a: int = 1\nC(packing=True)", "trl.SFTConfig(packing)"),
        (
            "from trl import SFTTrainer\nclass T(SFTTrainer):\n    def f(self):\n        self.log({})",
            "trl.SFTTrainer.log",
        ),
        (
            "import transformers as t\nclass T(t.Trainer):\n  def __init__(self):\n    super().__init__(tokenizer=1)",
            "transformers.Trainer(tokenizer)",
        ),
        (
            "import trl\na, b = trl.TrlParser((Own, trl.SFTConfig)).parse_args_into_dataclasses()\nb.packing",
            "trl.SFTConfig.packing",
        ),
        ("from trl import SFTConfig\nSFTConfig(**dict(packing=True))", "trl.SFTConfig(packing)"),
        ("from trl import SFTConfig\nSFTConfig(**{'packing': True})", "trl.SFTConfig(packing)"),
    ],
)
def test_a_use_is_found(text: str, path: str) -> None:
    assert path in paths(text)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("from trl import SFTTrainer\nx = SFTTrainer()\nx = other()\nx.gone", "trl.SFTTrainer.gone"),
        ("from trl import A, B\nx = A() if c else B()\nx.gone", "trl.A.gone"),
        ("from trl import A\nif c:\n    x = A()\nelse:\n    x = other()\nx.gone", "trl.A.gone"),
        ("from trl import SFTConfig\na = SFTConfig()\na.mine = 1\nprint(a.mine)", "trl.SFTConfig.mine"),
        (
            "from transformers import AutoModel\nm = AutoModel.from_pretrained('x')\nm.gone",
            "transformers.AutoModel.gone",
        ),
        ("from trl import A\nfor A in b:\n    A.gone", "trl.A.gone"),
        ("from trl import A\nprint([A.gone for A in b])", "trl.A.gone"),
        ("from trl import T\nclass C(T, Other):\n    def f(self):\n        self.gone", "trl.T.gone"),
    ],
)
def test_what_the_text_does_not_tell_is_no_use(text: str, path: str) -> None:
    assert path not in paths(text)


def test_a_name_of_another_package_is_no_use() -> None:
    assert paths("import numpy as np\nnp.zeros(3)\nfrom vllm import LLM\nLLM(model='x')") == set()


def notebook(tmp_path: Path, *cells: str) -> Path:
    path = tmp_path / "run.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": each} for each in cells], "nbformat": 4}))
    return path


def test_magics_of_a_notebook_are_skipped(tmp_path: Path) -> None:
    cells = (
        "!pip install trl \\\n  peft\n%matplotlib inline\nimport trl",
        "%%bash\nfor x in *; do",
        "x = !ls\ntrl.SFTTrainer",
    )
    found = read_code(sources.read(notebook(tmp_path, *cells)))
    assert [(each.place, each.paths) for each in found.uses] == [("run.ipynb: cell 3, line 2", ("trl.SFTTrainer",))]


def test_a_cell_that_does_not_parse_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    found = read_code(sources.read(notebook(tmp_path, "x = = 1", "import trl\ntrl.SFTTrainer")))
    assert [each.place for each in found.dynamic] == ["run.ipynb: cell 1"]
    assert len(found.uses) == 1


def test_a_magic_in_a_block_keeps_the_block_whole(tmp_path: Path) -> None:
    found = read_code(sources.read(notebook(tmp_path, "if True:\n    !nvidia-smi\nimport trl\ntrl.SFTTrainer")))
    assert not found.dynamic


def test_a_script_may_state_its_encoding(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes("# -*- coding: latin-1 -*-\nimport trl  # caf\xe9\ntrl.SFTTrainer\n".encode("latin-1"))
    assert [each.paths for each in read_code(sources.read(path)).uses] == [("trl.SFTTrainer",)]


def test_code_that_is_nested_too_deeply_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("if a:\n    pass\n" + "".join(f"elif a == {each}:\n    pass\n" for each in range(2000)))
    with pytest.raises(UserError, match="nested too deeply"):
        read_code(sources.read(path))
