"""Checks an adapter that a user's script saved, in a fresh process: its tensors, and that PEFT loads it again.

    python -m cases.flows.script_adapter REQUEST RESULT

Both are JSON files; RESULT gets the checks. What PEFT raises ends the process, and is the finding.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.space.verdict import Check, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Tensors = Mapping[str, Any]

CONFIGURATION = "adapter_config.json"
BASE = "base_model_name_or_path"
SEEDS = (0, 1)
MOST_NAMED = 2
# PEFT's own loader for each value of ``task_type``.
LOADERS = {
    "CAUSAL_LM": "AutoPeftModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoPeftModelForSeq2SeqLM",
    "SEQ_CLS": "AutoPeftModelForSequenceClassification",
    "TOKEN_CLS": "AutoPeftModelForTokenClassification",
    "QUESTION_ANS": "AutoPeftModelForQuestionAnswering",
    "FEATURE_EXTRACTION": "AutoPeftModelForFeatureExtraction",
}


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    saved = read_tensors(Path(request["weights"]))
    found = tensor_checks(saved)
    if saved:
        with named_base(Path(request["folder"]), request["base"]) as folder:
            model = load(folder)
            found += reload_checks(saved, model)
            found += change_checks(saved, starts(folder, type(model.get_base_model())), request["unchanged"])
    Path(sys.argv[2]).write_text(json.dumps([asdict(check) for check in found]))


def read_tensors(path: Path) -> Tensors:
    """The tensors of an adapter, on the CPU."""
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(path))
    import torch

    return dict(torch.load(path, map_location="cpu", weights_only=True))


def tensor_checks(saved: Tensors) -> list[Check]:
    broken = [name for name, tensor in saved.items() if not bool(tensor.isfinite().all())]
    return [
        at_least("tensors of the saved adapter", len(saved), 1),
        equal("saved adapter tensors that are not finite", listed(broken), "none"),
    ]


@contextmanager
def named_base(folder: Path, base: str) -> Iterator[Path]:
    """The folder of the adapter, or a copy whose configuration names another base model."""
    if not base:
        yield folder
        return
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(shutil.copytree(folder, Path(scratch, "adapter")))
        configuration = json.loads((copy / CONFIGURATION).read_text())
        (copy / CONFIGURATION).write_text(json.dumps({**configuration, BASE: base}))
        yield copy


def load(folder: Path) -> Any:
    """The base model with the adapter, loaded by PEFT."""
    import peft

    task = str(json.loads((folder / CONFIGURATION).read_text()).get("task_type") or "")
    return getattr(peft, LOADERS.get(task, "AutoPeftModel")).from_pretrained(str(folder))


def reload_checks(saved: Tensors, model: Any) -> list[Check]:
    """Compare the tensors of the loaded model with the file, exactly: widening a dtype changes no value."""
    loaded = adapter_tensors(model)
    lacking = [name for name in saved if name not in loaded]
    shared = [name for name in saved if name in loaded]
    differing = [name for name in shared if loaded[name].shape != saved[name].shape]
    distances = [
        (loaded[name].double() - saved[name].double()).abs().max().item()
        for name in shared
        if name not in differing and saved[name].numel()
    ]
    return [
        equal("saved adapter tensors that the reloaded model lacks", listed([*lacking, *differing]), "none"),
        at_most("difference between saved and reloaded adapter", max(distances, default=0.0), 0.0),
    ]


def adapter_tensors(model: Any) -> Tensors:
    """The tensors of the adapter as PEFT would save them, and all others under their full names."""
    from peft import get_peft_model_state_dict

    return {**model.state_dict(), **get_peft_model_state_dict(model)}


def starts(folder: Path, base: Any) -> list[Tensors]:
    """The tensors of new adapters with the same configuration, one for each seed, on a base model of this class."""
    import torch
    from peft import PeftConfig, get_peft_model

    found = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        configuration = PeftConfig.from_pretrained(str(folder))
        configuration.inference_mode = False
        model = base.from_pretrained(configuration.base_model_name_or_path)
        found.append(adapter_tensors(get_peft_model(model, configuration)))
    return found


def change_checks(saved: Tensors, begun: list[Tensors], unchanged: list[str]) -> list[Check]:
    """Every tensor whose start does not depend on the seed, such as LoRA's B, must differ from its start.

    A tensor with a random start cannot be judged: nobody knows the seed of the script.
    """
    one, other = begun
    known = [name for name in saved if name in one and name in other and is_same(one[name], other[name])]
    required = [name for name in known if not any(fnmatchcase(name, pattern) for pattern in unchanged)]
    left = [name for name in required if is_same(saved[name], one[name])]
    return [equal("saved adapter tensors that are as they started", listed(left), "none")]


def is_same(one: Any, other: Any) -> bool:
    return bool(one.shape == other.shape and (one == other.to(one.dtype)).all())


def listed(names: list[str]) -> str:
    """A few of the names and the number of the others; ``none`` for no name."""
    more = len(names) - MOST_NAMED
    return "+".join([*names[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])]) or "none"


if __name__ == "__main__":
    main()
