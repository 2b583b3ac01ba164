"""A set of a pack on a host states the build of its torch."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from matrix.offline.overlaid_set import torch_build

if TYPE_CHECKING:
    from pathlib import Path


def test_a_wheel_that_does_not_state_its_build_is_no_wheel_of_torch(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "torch-2.13.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("torch-2.13.0.dist-info/METADATA", "Name: torch")
    with pytest.raises(UserError, match="it does not state its build of torch"):
        torch_build(tmp_path / "torch-2.13.0-py3-none-any.whl")
