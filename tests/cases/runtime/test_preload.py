from __future__ import annotations

import functools
import os
import sys
from types import SimpleNamespace

import pytest

from cases.runtime import preload


@pytest.mark.parametrize("caches", [True, False])  # torch before 2.4 caches its first count
def test_a_rank_counts_its_own_gpus_and_ignores_a_cached_count(
    monkeypatch: pytest.MonkeyPatch, *, caches: bool
) -> None:
    def device_count() -> int:
        return len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))

    count = functools.lru_cache(maxsize=1)(device_count) if caches else device_count
    monkeypatch.setitem(sys.modules, "torch.cuda", SimpleNamespace(device_count=count))
    monkeypatch.setattr(preload, "DONE", [True])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    assert count() == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a")
    preload.preload()
    assert count() == 1
