"""Tests that kept logs contain no secrets, user names or paths of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from matrix.run.evidence_files import LONGEST, keep, scrubbed, scrubbed_values, without_user

PLACES = {"/data/cache": "<cache>", "/data/cache/envs/abc": "<environment>"}


def test_secrets_are_masked() -> None:
    assert scrubbed("https://me:secret@example.org/simple", {}) == "https://***@example.org/simple"


def test_a_secret_that_contains_a_path_is_masked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "x/data/cache/y")
    assert scrubbed("with x/data/cache/y", PLACES) == "with ***"


def test_the_longest_path_is_replaced_first() -> None:
    assert scrubbed("/data/cache/envs/abc/lib/x.py /data/cache/uv", PLACES) == "<environment>/lib/x.py <cache>/uv"


def test_every_text_of_plain_data_is_scrubbed() -> None:
    told = {
        "facts": {"why_cold": "no x in /data/cache/envs/abc/x.py"},
        "checks": [{"value": "/data/cache", "ok": True}],
    }
    assert scrubbed_values(told, PLACES) == {
        "facts": {"why_cold": "no x in <environment>/x.py"},
        "checks": [{"value": "<cache>", "ok": True}],
    }


def test_the_home_folder_is_replaced() -> None:
    assert scrubbed(f"{Path.home()}/thing", {}) == "~/thing"


def test_the_root_folder_is_not_replaced() -> None:
    assert without_user("/data/x.py: 1/2", home="/", user="") == "/data/x.py: 1/2"


@pytest.mark.parametrize("user", ["test", "train"])
def test_a_user_name_that_is_a_word_stays_in_sentences(user: str) -> None:
    text = f"the {user} loop in {user}_step, torch.{user}"
    assert without_user(text, home=f"/home/{user}", user=user) == text


def test_a_user_name_in_a_path_or_an_address_is_replaced() -> None:
    text = "/scratch/alice/x.py, alice@host"
    assert without_user(text, home="/home/alice", user="alice") == "/scratch/user/x.py, user@host"


def test_the_name_of_the_user_of_this_process_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "alice")
    assert scrubbed("/scratch/alice/x.py", {}) == "/scratch/user/x.py"


def test_another_folder_that_begins_like_the_home_folder_stays() -> None:
    assert without_user("/h/al/x /h/alice", home="/h/al", user="al") == "~/x /h/alice"


def test_a_user_id_without_a_passwd_entry_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> NoReturn:
        raise KeyError("getpwuid(): uid not found: 4242")

    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert scrubbed("loss is 1/2", {}) == "loss is 1/2"


def test_an_empty_log_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_text("\n \n")
    assert keep(tmp_path, tmp_path / "kept", {}) == {}
    assert not (tmp_path / "kept").exists()


def test_a_log_with_invalid_utf_8_is_kept(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_bytes(b"\xff\x00 said")
    keep(tmp_path, tmp_path / "kept", {})
    assert (tmp_path / "kept" / "rank-0.log").read_text(encoding="utf-8").endswith("said\n")


def test_the_end_of_a_long_log_is_kept(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_text("x" * 2 * LONGEST + "the end")
    keep(tmp_path, tmp_path / "kept", {})
    kept = (tmp_path / "kept" / "rank-0.log").read_text()
    assert kept.endswith("the end\n")
    assert len(kept) == LONGEST + 1


def test_the_cut_of_a_long_log_leaves_no_part_of_a_secret(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_text("hf_" + "a" * 30 + "b" * (LONGEST - 20))
    keep(tmp_path, tmp_path / "kept", {})
    assert "a" not in (tmp_path / "kept" / "rank-0.log").read_text()


def test_evidence_is_named_by_the_kind_of_file(tmp_path: Path) -> None:
    for name in ("rank-0.log", "rank-0.stack", "rank-1.log", "rank-1.collectives", "autopsy.log", "rank-1.other"):
        (tmp_path / name).write_text("said")
    assert keep(tmp_path, tmp_path / "kept", {}) == {
        "rank 0 log": "rank-0.log",
        "rank 0 stacks": "rank-0.stack",
        "rank 1 log": "rank-1.log",
        "rank 1 collectives": "rank-1.collectives",
        "autopsy": "autopsy.log",
    }
