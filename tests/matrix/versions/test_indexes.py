"""pip's configuration reaches uv, and the user's own settings for uv win."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from matrix.errors import UserError
from matrix.versions.indexes import Translation, candidates, pip_files, pip_settings, translate


def configured(tmp_path: Path, text: str, **environ: str) -> Translation:
    path = tmp_path / "pip.conf"
    path.write_text(text, encoding="utf-8")
    return translate(pip_settings(environ, files=(path,)), environ)


def test_indexes_certificates_and_proxies_are_translated(tmp_path: Path) -> None:
    text = """[global]
index-url = https://mirror.example/simple
extra-index-url = https://one.example/simple
    file:///two/simple
trusted-host = mirror.example
cert = /etc/bundle.pem
client-cert = /etc/me.pem
proxy = http://proxy.example:3128
timeout = 60
"""
    assert configured(tmp_path, text).variables == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://one.example/simple file:///two/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "mirror.example",
        "UV_HTTP_TIMEOUT": "60",
        "SSL_CERT_FILE": "/etc/bundle.pem",
        "SSL_CLIENT_CERT": "/etc/me.pem",
        "ALL_PROXY": "http://proxy.example:3128",
    }


def test_without_configuration_uv_gets_no_variables() -> None:
    assert translate({}, {}) == Translation(variables={})


def test_a_pip_variable_wins_over_a_file(tmp_path: Path) -> None:
    found = configured(tmp_path, "[global]\nindex-url = https://file.example", PIP_INDEX_URL="https://env.example")
    assert found.variables["UV_DEFAULT_INDEX"] == "https://env.example"


def test_the_install_section_wins_over_the_global_one(tmp_path: Path) -> None:
    found = configured(tmp_path, "[install]\nindex-url = https://b.example\n[global]\nindex-url = https://a.example")
    assert found.variables["UV_DEFAULT_INDEX"] == "https://b.example"


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_the_users_own_setting_for_uv_wins(tmp_path: Path, name: str) -> None:
    found = configured(tmp_path, "[global]\nindex-url = https://pip.example", **{name: "https://uv.example"})
    assert "UV_DEFAULT_INDEX" not in found.variables


def test_no_index_becomes_an_argument(tmp_path: Path) -> None:
    assert configured(tmp_path, "[global]\nno-index = true").arguments == ("--no-index",)
    assert configured(tmp_path, "[global]\nno-index = false").arguments == ()


def test_missing_find_links_are_ignored_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    found = configured(tmp_path, f"[global]\nfind-links = {tmp_path}/wheels {tmp_path}/none https://links.example")
    assert found.variables["UV_FIND_LINKS"] == f"{tmp_path}/wheels,https://links.example"
    assert found.notes == (f"pip's find-links names {tmp_path}/none, which does not exist; it is ignored",)


def test_a_named_file_replaces_the_users_own(tmp_path: Path) -> None:
    home, chosen = tmp_path / ".config" / "pip" / "pip.conf", tmp_path / "chosen.conf"
    home.parent.mkdir(parents=True)
    home.touch()
    chosen.touch()
    assert home in pip_files({"HOME": str(tmp_path)})
    named = pip_files({"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(chosen)})
    assert chosen in named
    assert home not in named


def test_the_null_device_disables_configuration_files() -> None:
    assert pip_files({"PIP_CONFIG_FILE": os.devnull}) == ()


def test_a_file_that_is_no_configuration_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"pip\.conf: pip's configuration cannot be read"):
        configured(tmp_path, "index-url without a section")


def test_an_unknown_user_has_no_files_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    assert not [path for path in candidates({}, None) if path.parts[-2:] == (".pip", "pip.conf")]
