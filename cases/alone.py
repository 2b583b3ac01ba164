"""One case started the ordinary way, without the harness: to debug it, and to measure what a warm fork saves.

torchrun --nproc-per-node 2 -m cases.alone train-lora-fsdp2-fp32

A case of several acts is started act by act, the second as ``-m cases.alone CASE 1``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases import flows, gpus, models, preload, suite, twin
from cases.build import Place
from cases.setting import Setting
from cases.verdict import missed

if TYPE_CHECKING:
    from cases.verdict import Check, Phase


class Printer:
    """Reports to people."""

    def __init__(self) -> None:
        self.all: list[Check] = []

    def phase(self, phase: Phase) -> None:
        print(phase.value, flush=True)

    def checks(self, checks: list[Check]) -> None:
        self.all += checks
        for check in checks:
            print("ok " if check.ok else "RED", check, flush=True)

    def metric(self, name: str, value: float) -> None:
        print(name, value)

    def facts(self, facts: dict[str, Any]) -> None:
        print(facts)

    def beat(self) -> None:
        pass

    def observing(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in suite.CASES:
        print(f"there is no case {name!r}; the cases are:", *suite.CASES, sep="\n  ")
        return 2
    device = os.environ.get("FTMATRIX_DEVICE", "cpu")
    if device != "cpu":
        gpus.limit(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), os.environ)
    preload.preload()
    import torch
    import torch.distributed as dist

    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    place = Place(rank, ranks, "cpu" if device == "cpu" else int(os.environ.get("LOCAL_RANK", "0")))
    if device == "cpu":
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(place.device)
    options, act = suite.CASES[name].options, int(sys.argv[2]) if len(sys.argv) > 2 else 0  # noqa: PLR2004 - argv
    kept = Path(os.environ.get("FTMATRIX_OUT", tempfile.gettempdir())) / f"ftmatrix-{os.getuid()}-{name}"
    if act == 0 and rank == 0:
        shutil.rmtree(kept, ignore_errors=True)  # what an earlier start left
    say = Printer()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        models.checkpoint(options, cache)
        if ranks > 1:
            dist.init_process_group("gloo" if device == "cpu" else "nccl")
        kept.mkdir(exist_ok=True)
        flows.run(act, Setting(options, place, cache, kept, kept, lambda: twin.run(options), say))
    if rank == 0 and "FTMATRIX_OUT" in os.environ:
        out = Path(os.environ["FTMATRIX_OUT"]) / "checks.json"
        out.write_text(json.dumps([asdict(check) for check in say.all]))
    if dist.is_initialized():
        dist.destroy_process_group()
    return 1 if missed(say.all) else 0


if __name__ == "__main__":
    sys.exit(main())
