"""``ftmatrix pack``: its request, its output and its refusals."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from matrix.offline import packing
from reports import cli

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[packing.PackRequest]:
    """Record the pack requests instead of downloading gigabytes."""
    seen: list[packing.PackRequest] = []

    def note(order: packing.PackRequest, **_: Any) -> packing.PackResult:
        seen.append(order)
        return packing.PackResult(
            folder=order.folder, sets=[packing.Part(name="2025-03", files=[])], others=[], pythons=["3.11"], fetched=0
        )

    monkeypatch.setattr(packing, "pack", note)
    return seen


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that gives the exit code, stdout and stderr of ``ftmatrix pack``."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ftmatrix", "pack", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return call


def test_the_options_become_a_pack_request(run: Run, orders: list[packing.PackRequest], tmp_path: Path) -> None:
    code, out, _ = run("--sets", "2025-03,2024-09", "--out", str(tmp_path), "--python", "3.12", "--exclude", "a*, b")
    (order,) = orders
    assert code == 0
    assert {each.key for each in order.sets} == {"2024-09", "2025-03"}
    assert (order.python, list(order.exclude), order.system_torch) == ("3.12", ["a*", "b"], False)
    assert "2025-03: 0 wheels" in out


def test_json_describes_the_pack(run: Run, orders: list[packing.PackRequest], tmp_path: Path) -> None:
    _, out, _ = run("--sets", "2025-03", "--out", str(tmp_path), "--system-torch", "--json")
    assert orders[0].system_torch
    assert json.loads(out)["sets"][0]["name"] == "2025-03"


@pytest.mark.usefixtures("orders")
def test_split_writes_parts_that_unpack_joins(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = tmp_path / "pack"
    (pack / "wheels").mkdir(parents=True)
    (pack / "wheels" / "peft-0.17.1-py3-none-any.whl").write_bytes(b"x" * 1_500_000)
    (pack / "pack.toml").write_text('[sets.2025-03]\npython = "3.11"\n', encoding="utf-8")
    _, out, _ = run("--sets", "2025-03", "--out", str(pack), "--split", "1M", "--json")
    assert json.loads(out)["parts"]["files"] == ["part-0000", "part-0001"]
    monkeypatch.setattr(sys, "argv", ["ftmatrix", "unpack", str(tmp_path / "pack-parts"), str(tmp_path / "target")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code in {0, None}
    assert (tmp_path / "target/pack/wheels/peft-0.17.1-py3-none-any.whl").stat().st_size == 1_500_000


def test_unpack_names_missing_parts_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ftmatrix", "unpack", str(tmp_path), str(tmp_path / "target")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"ftmatrix: {tmp_path / 'parts.json'} is missing; carry it with the parts\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--sets", "2025-04"), "unknown version set '2025-04'"),
        (("--sets", "2025-03", "--python", "3"), "--python 3: expected a version such as 3.12"),
        (("--sets", "2025-03", "--split", "60"), "--split 60: expected a size such as 60M"),
        (("--sets", "2025-03", "--interpreter"), "--interpreter needs --split"),
    ],
)
def test_bad_input_is_one_sentence(run: Run, tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    code, out, err = run(*arguments, "--out", str(tmp_path))
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
