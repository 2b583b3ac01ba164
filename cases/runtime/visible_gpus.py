"""Limits the GPUs that a process sees to those of its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

VISIBLE = "CUDA_VISIBLE_DEVICES"


def limit(count: int, environ: MutableMapping[str, str]) -> None:
    """Make only the first ``count`` GPUs visible. Call it before CUDA is initialised.

    A process uses every GPU that it sees: a Trainer in one process puts a model on each (``DataParallel``), and takes a
    batch for each.
    """
    listed = environ.get(VISIBLE)
    names = [str(number) for number in range(count)] if listed is None else listed.split(",")
    environ[VISIBLE] = ",".join(names[:count])
