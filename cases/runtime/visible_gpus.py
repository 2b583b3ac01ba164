"""Which GPUs a process sees: those of its job and no others, as a user who wants one GPU gives a program one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

VISIBLE = "CUDA_VISIBLE_DEVICES"


def limit(count: int, environ: MutableMapping[str, str]) -> None:
    """From now on, the first ``count`` of those there are. It has to come before CUDA is initialised.

    Who sees more than it was meant to have uses them: a Trainer in one process puts a model on every GPU it sees
    (``DataParallel``), and takes a batch for each.
    """
    listed = environ.get(VISIBLE)
    names = [str(number) for number in range(count)] if listed is None else listed.split(",")
    environ[VISIBLE] = ",".join(names[:count])
