"""The mesh of all ranks: ranks that share a GPU keep their process group of gloo."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from cases.apply import compat
from cases.space.place import Place


class DeviceMesh:
    @staticmethod
    def from_group(group: str, device_type: str) -> tuple[str, str]:
        return group, device_type


class FirstDeviceMesh:
    """As torch 2.3 has it."""


@pytest.fixture
def fake_torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let ``torch.distributed`` record how a mesh is made, with this class of a mesh."""

    def use(mesh: type) -> None:
        modules = {name: ModuleType(name) for name in ("torch", "torch.distributed", "torch.distributed.device_mesh")}
        distributed: Any = modules["torch.distributed"]
        distributed.group = SimpleNamespace(WORLD="all ranks")
        modules["torch"].distributed = distributed  # type: ignore[attr-defined]
        meshes: Any = modules["torch.distributed.device_mesh"]
        meshes.DeviceMesh, meshes.init_device_mesh = mesh, lambda kind, shape: (kind, shape)
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)

    return use


@pytest.mark.parametrize(("device", "mesh"), [("cpu", ("cpu", (2,))), ("cuda", ("cuda", (2,)))])
def test_ranks_with_devices_of_their_own_get_a_new_mesh(fake_torch: Any, device: str, mesh: object) -> None:
    fake_torch(DeviceMesh)
    assert compat.mesh(Place.on(device, 0, 2)) == mesh


def test_ranks_that_share_a_gpu_pass_their_group(fake_torch: Any) -> None:
    fake_torch(DeviceMesh)
    assert compat.mesh(Place.on("cuda-gloo", 0, 2)) == ("all ranks", "cuda")


def test_the_first_meshes_use_the_group_of_all_ranks_anyway(fake_torch: Any) -> None:
    fake_torch(FirstDeviceMesh)
    assert compat.mesh(Place.on("cuda-gloo", 0, 2)) == ("cuda", (2,))
