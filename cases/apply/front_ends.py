"""The front ends that run training: the plain loop, accelerate, and the trainers.

Ranks join their process group before a front end starts; accelerate finds it by the variables of a launcher.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.model import architectures
from cases.space.options import SHARDED

if TYPE_CHECKING:
    from pathlib import Path

    from cases.apply.context import Context
    from cases.apply.training import Trainee
    from cases.space.options import Options
    from cases.space.place import Place


@dataclass(frozen=True)
class FrontEnd:
    """The modules of ``cases.apply`` that run a training, and that save and load it.

    A rank imports them on demand, so that they belong only to the code of its cells.
    """

    training: str
    saving: str

    def prepare(self, ctx: Context) -> Trainee:
        job: Trainee = module(self.training).prepare(ctx)
        return job

    def steps(self, job: Trainee, numbers: range) -> None:
        module(self.training).steps(job, numbers)

    def save_model(self, job: Trainee, folder: Path) -> None:
        module(self.saving).save_model(job, folder)

    def save_training(self, job: Trainee, folder: Path) -> None:
        module(self.saving).save_training(job, folder)

    def load_training(self, job: Trainee, folder: Path) -> None:
        module(self.saving).load_training(job, folder)


FRONT_ENDS = {
    "loop": FrontEnd("training", "checkpoints"),
    "accelerate": FrontEnd("accelerate_loop", "accelerate_loop"),
    "trainer": FrontEnd("trainers", "trainers"),
    "sft": FrontEnd("trainers", "trainers"),
}


def module(name: str) -> Any:
    return importlib.import_module(f"cases.apply.{name}")


def prepare(ctx: Context) -> Trainee:
    if ctx.options.front_end != "loop":
        os.environ.update({**launched(ctx.place), **sharding(ctx.options)})
    return FRONT_ENDS[ctx.options.front_end].prepare(ctx)


def launched(place: Place) -> dict[str, str]:
    """The variables that a launcher sets. A single process starts without one, like ``python train.py``."""
    found = {"ACCELERATE_USE_CPU": "true"} if place.kind == "cpu" else {}
    if place.world_size == 1:
        return found
    return {
        **found,
        "RANK": str(place.rank),
        "LOCAL_RANK": str(place.local_rank),
        "WORLD_SIZE": str(place.world_size),
        "LOCAL_WORLD_SIZE": str(place.world_size),
        "MASTER_ADDR": "127.0.0.1",  # required, although the existing group is used
        "MASTER_PORT": "29500",
        "OMP_NUM_THREADS": "1",  # otherwise accelerate changes torch's number of threads
    }


def sharding(options: Options) -> dict[str, str]:
    """The variables that ``accelerate launch`` sets for FSDP; the trainers read them too."""
    if options.strategy not in SHARDED:
        return {}
    version = {"fsdp1": "1", "fsdp2": "2"}[options.strategy]
    whole = {"FSDP_SHARDING_STRATEGY": "FULL_SHARD", "FSDP_RESHARD_AFTER_FORWARD": "true"}
    return {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": version,
        **whole,
        "FSDP_AUTO_WRAP_POLICY": "NO_WRAP" if options.auto_wrap_policy == "none" else "TRANSFORMER_BASED_WRAP",
        "FSDP_TRANSFORMER_CLS_TO_WRAP": ",".join(architectures.spec(options).block),
        "FSDP_USE_ORIG_PARAMS": str(options.use_orig_params).lower(),
        "FSDP_SYNC_MODULE_STATES": str(options.sync_module_states).lower(),
        "FSDP_CPU_RAM_EFFICIENT_LOADING": str(options.cpu_ram_efficient_loading).lower(),
        "FSDP_OFFLOAD_PARAMS": str(options.cpu_offload).lower(),
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    }


def steps(job: Trainee, numbers: range) -> None:
    """Run the global steps with these numbers."""
    FRONT_ENDS[job.options.front_end].steps(job, numbers)


def save_model(job: Trainee, folder: Path) -> None:
    FRONT_ENDS[job.options.front_end].save_model(job, folder)


def save_training(job: Trainee, folder: Path) -> None:
    FRONT_ENDS[job.options.front_end].save_training(job, folder)


def load_training(job: Trainee, folder: Path) -> None:
    FRONT_ENDS[job.options.front_end].load_training(job, folder)
