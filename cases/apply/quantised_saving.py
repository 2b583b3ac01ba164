"""Saves a quantised checkpoint with the version's own ``save_pretrained``, in a separate process."""

from __future__ import annotations

import fcntl
import os
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cases.apply import build
from cases.model import prequantised
from cases.runtime.process_tree import die_with_parent
from cases.space.verdict import Phase

if TYPE_CHECKING:
    from pathlib import Path

    from cases.space.options import Options
    from cases.space.place import Place


class QuantisedSavingError(RuntimeError):
    """The version under test failed to load, quantise or save; the message holds its error."""


def make(cache: Path, options: Options, place: Place, reporter: Any) -> None:
    """Create the checkpoint once, before ranks join: after that, only rank 0 would write all of it.

    Raises:
        QuantisedSavingError: the version under test failed to create it.
    """
    folder = prequantised.folder(cache, options)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return
        reporter.phase(Phase.SAVE)
        error_file = folder.with_suffix(".error")
        error_file.unlink(missing_ok=True)
        parent, child = os.getpid(), os.fork()
        if child == 0:
            write(folder, error_file, cache, options, place, parent)
        _, status = os.waitpid(child, 0)
        if status != 0:
            why = error_file.read_text() if error_file.exists() else f"its process ended with status {status}"
            raise QuantisedSavingError(f"saving a quantised model: {why}")
    reporter.phase(Phase.LOAD)


def write(folder: Path, error_file: Path, cache: Path, options: Options, place: Place, parent: int) -> None:
    """Load, quantise and save the model, then exit. Does not return."""
    die_with_parent(parent)
    code = 1
    try:
        model = build.load(replace(options, prequantised=False), place, cache)
        unfinished = folder.with_suffix(".unfinished")
        model.save_pretrained(unfinished)
        unfinished.rename(folder)
        code = 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
        traceback.print_exc()
        error_file.write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)
