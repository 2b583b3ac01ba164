from __future__ import annotations

import functools
import os
import sys
from types import SimpleNamespace

import pytest

from cases.runtime import preload


@pytest.mark.parametrize("remembers", [True, False])  # torch before 2.4 does, from the first time it is asked
def test_a_rank_counts_its_own_gpus_whatever_its_parent_counted(
    monkeypatch: pytest.MonkeyPatch, *, remembers: bool
) -> None:
    def device_count() -> int:
        return len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))

    count = functools.lru_cache(maxsize=1)(device_count) if remembers else device_count
    monkeypatch.setitem(sys.modules, "torch.cuda", SimpleNamespace(device_count=count))
    monkeypatch.setattr(preload, "DONE", [True])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    assert count() == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a")
    preload.preload()
    assert count() == 1
