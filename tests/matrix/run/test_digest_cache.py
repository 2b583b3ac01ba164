"""Digests of modules from the cache are those that parsing gives."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from matrix.run import code_digest, digest_cache
from matrix.run.code_digest import CaseCode
from matrix.run.digest_cache import FILE

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = {"cases.a": b"x = 1", "cases.b": b"y = 1", "cases.grid.rows": b"ROWS = ()", "script:mine": b"{"}


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The sources that were parsed."""
    seen: list[bytes] = []

    def noted(source: bytes, real: Any = code_digest.tree_digest) -> str:
        seen.append(source)
        return str(real(source))

    monkeypatch.setattr(code_digest, "tree_digest", noted)
    return seen


def test_a_second_run_parses_nothing(tmp_path: Path, parsed: list[bytes]) -> None:
    first = digest_cache.digest(CaseCode(SOURCES), tmp_path)
    assert sorted(parsed) == [b"x = 1", b"y = 1"]
    assert digest_cache.digest(CaseCode(SOURCES), tmp_path) == first == CaseCode(SOURCES).digest
    assert sorted(parsed[2:]) == [b"x = 1", b"y = 1"]  # by the last line without a cache


def test_only_a_changed_module_is_parsed_again(tmp_path: Path, parsed: list[bytes]) -> None:
    digest_cache.digest(CaseCode(SOURCES), tmp_path)
    changed = CaseCode({**SOURCES, "cases.b": b"y = 2"})
    assert digest_cache.digest(changed, tmp_path) != CaseCode(SOURCES).digest
    assert parsed[2] == b"y = 2"
    assert digest_cache.digest(changed, tmp_path) == CaseCode(changed.sources).digest


def test_a_stamp_uses_the_known_digests(tmp_path: Path, parsed: list[bytes]) -> None:
    digest_cache.digest(CaseCode(SOURCES), tmp_path)
    code = CaseCode(SOURCES)
    digest_cache.digest(code, tmp_path)
    assert code.stamp(["cases.a"]).startswith("a=")
    assert len(parsed) == 2


def test_digests_of_another_method_are_computed_again(tmp_path: Path, parsed: list[bytes]) -> None:
    digest_cache.digest(CaseCode(SOURCES), tmp_path)
    content = json.loads((tmp_path / FILE).read_text())
    spoilt = {"method": "another", "digests": dict.fromkeys(content["digests"], "000000")}
    (tmp_path / FILE).write_text(json.dumps(spoilt))
    assert digest_cache.digest(CaseCode(SOURCES), tmp_path) == CaseCode(SOURCES).digest
    assert len(parsed) == 6


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"method": 1, "digests": 2}'])
def test_a_damaged_file_only_costs_time(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert digest_cache.digest(CaseCode(SOURCES), tmp_path) == CaseCode(SOURCES).digest
    assert json.loads((tmp_path / FILE).read_text())["digests"]


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert digest_cache.digest(CaseCode(SOURCES), tmp_path / "cache") == CaseCode(SOURCES).digest
