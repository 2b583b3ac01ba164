"""The reason why no rank can be forked names the package whose import starts a thread."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import TYPE_CHECKING

from cases.runtime import thread_starts

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_start_is_noted_with_its_module_and_the_outermost_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fake_adapters.py").write_text("import fake_compiler.pool\n")
    (tmp_path / "fake_compiler").mkdir()
    (tmp_path / "fake_compiler" / "pool.py").write_text(
        "import threading\nthread = threading.Thread(target=print)\nthread.start()\nthread.join()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with thread_starts.noted() as starts:
        importlib.import_module("fake_adapters")
    assert starts == ["fake_compiler.pool, for fake_adapters"]
    assert not sys.modules["fake_compiler.pool"].thread.is_alive()


def test_starts_are_noted_only_inside_and_those_outside_imports_too() -> None:
    with thread_starts.noted() as starts:
        threading.Thread(target=int).start()
    threading.Thread(target=int).start()
    assert [each.partition(",")[0] for each in starts] == [__name__]
