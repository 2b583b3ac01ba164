"""Interpreters that can travel are found; those of the system are refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from matrix.errors import UserError
from matrix.offline import interpreters
from matrix.processes import Finished
from matrix.versions.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Sequence


def uv_that_finds(path: str, folder: Path) -> Uv:
    def call(argv: Sequence[str], **_: Any) -> Finished:
        assert argv[1:3] == ["python", "find"]
        return Finished(exit_code=0 if path else 2, log=f"{path}\n")

    return Uv(binary=Path("uv"), workdir=folder, variables={}, call=call)


def interpreter_in(prefix: str, exit_code: int = 0) -> Any:
    return lambda *_, **__: Finished(exit_code=exit_code, log=f"{prefix}\n")


def test_find(tmp_path: Path) -> None:
    found = interpreters.find("3.11", uv=uv_that_finds("/opt/py/bin/python", tmp_path), call=interpreter_in("/opt/py"))
    assert found.prefix == Path("/opt/py")


@pytest.mark.parametrize(
    ("path", "call", "message"),
    [
        ("", interpreter_in("/opt/py"), "no working Python 3.11 found"),
        ("/usr/bin/python3", interpreter_in("/usr"), "Python 3.11 belongs to the system"),
        ("/opt/py/bin/python", interpreter_in("", 1), "/opt/py/bin/python does not start"),
    ],
)
def test_no_interpreter_to_pack(tmp_path: Path, path: str, call: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        interpreters.find("3.11", uv=uv_that_finds(path, tmp_path), call=call)
