"""Versions are read from texts, listings, locks and sets, without an environment."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from matrix.versions import sets
from reports.answers.checkup import given_versions

if TYPE_CHECKING:
    from pathlib import Path

    from reports.answers.checkup.installed import Installed

FREEZE = """\
accelerate==1.10.1
filelock==3.19.1
peft @ git+https://user:secret@github.com/huggingface/peft@0123abc
torch==2.8.0+cu128
transformers==4.56.1
-e git+https://github.com/huggingface/trl.git@abc#egg=trl
typing_extensions==4.15.0
"""
PIP_LIST = """\
Package           Version      Editable project location
----------------- ------------ -------------------------
peft              0.17.1
torch             2.8.0+cu128
trl               0.24.0       /src/trl
"""
CONDA_LIST = """\
# packages in environment at /opt/conda:
#
# Name                    Version                   Build  Channel
python                    3.11.9               h955ad1f_0
pytorch                   2.5.1           py3.11_cuda12.4_cudnn9.1.0_0    pytorch
peft                      0.13.2             pyhd8ed1ab_0    conda-forge
"""
UV_LOCK = """\
version = 1
requires-python = ">=3.11"

[[package]]
name = "torch"
version = "2.7.1"
source = { registry = "https://pypi.org/simple" }
resolution-markers = ["sys_platform == 'darwin'"]

[[package]]
name = "torch"
version = "2.8.0+cu128"
source = { registry = "https://download.pytorch.org/whl/cu128" }
resolution-markers = ["sys_platform != 'darwin'"]

[[package]]
name = "peft"
version = "0.17.2.dev0"
source = { git = "https://github.com/huggingface/peft?rev=main#abc" }

[[package]]
name = "trl"
version = "0.24.0"
source = { registry = "https://pypi.org/simple" }
"""
POETRY_LOCK = """\
[[package]]
name = "transformers"
version = "4.56.1"

[package.source]
type = "legacy"
url = "https://mirror.example/simple"

[[package]]
name = "peft"
version = "0.17.1"

[package.source]
type = "git"
url = "https://github.com/huggingface/peft.git"
"""
PYPROJECT = """\
[project]
name = "job"
dependencies = ["torch==2.8.0", "peft>=0.15"]

[project.optional-dependencies]
train = ["trl==0.24.0", "torch==2.7.1"]

[dependency-groups]
dev = ["pytest", { include-group = "x" }]
"""
POETRY_PROJECT = """\
[tool.poetry.dependencies]
python = "^3.11"
torch = "2.8.0"
peft = "^0.15"
trl = { version = "0.24.0", extras = ["quantization"] }
accelerate = { git = "https://github.com/huggingface/accelerate.git" }
"""
ENVIRONMENT = """\
name: train
channels: [pytorch, conda-forge]
dependencies:
  - python=3.11
  - pytorch::pytorch=2.5.1=py3.11_cuda12.4_cudnn9.1.0_0
  - conda-forge::accelerate=1.1
  - pip
  - pip:
      - peft==0.13.2
      - trl>=0.12
"""


def read(given: str, raw: bytes = b"") -> Installed:
    return given_versions.read(given, sets.load(), io.BytesIO(raw))


def read_file(folder: Path, name: str, text: str) -> Installed:
    (folder / name).write_text(text)
    return read(str(folder / name))


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("torch==2.8.0,peft==0.17.1", {"torch": "2.8.0", "peft": "0.17.1"}),
        ("torch 2.8.0 peft 0.17.1", {"torch": "2.8.0", "peft": "0.17.1"}),
        ("torch=2.8.0, PEFT: 0.17.1; trl@0.24.0", {"torch": "2.8.0", "peft": "0.17.1", "trl": "0.24.0"}),
        ("torch == v2.8.0+cu128\npeft===0.17.1", {"torch": "2.8.0+cu128", "peft": "0.17.1"}),
        ("transformers[torch]==4.56.1 numpy==2.3.0", {"transformers": "4.56.1"}),
        ("pytorch 2.8.0 bnb 0.47.0", {"torch": "2.8.0", "bitsandbytes": "0.47.0"}),
        ("torch==2.8.0 torch==2.8.0", {"torch": "2.8.0"}),
    ],
)
def test_versions_are_read_from_a_text(text: str, versions: dict[str, str]) -> None:
    assert dict(read(text).versions) == versions


def test_a_range_in_a_text_is_not_a_version() -> None:
    found = read("torch==2.8.0 peft>=0.15,<0.18 trl 0.24.* accelerate python 3.12")
    assert (dict(found.versions), found.python) == ({"torch": "2.8.0"}, "3.12")
    assert found.notes == ("not pinned: peft>=0.15,<0.18", "not pinned: accelerate", "not pinned: trl 0.24.*")
    assert found.unpinned == ("peft", "accelerate", "trl")
    assert found.missing == ("transformers", "bitsandbytes")


def test_an_abbreviated_version_is_read_as_pip_reads_it() -> None:
    assert read("torch 2.8 peft 0.17.1").notes == ("torch 2.8 is read as 2.8.0",)


def test_a_version_that_was_not_released_is_a_problem_and_a_newer_one_a_note() -> None:
    found = read("torch==2.8.1 peft==0.99.0 transformers==4.46.0")
    assert found.broken == ("torch 2.8.1 was not released by 2026-11-13; its neighbours are 2.8.0 and 2.9.0",)
    assert found.notes == (
        "peft 0.99.0 was not released by 2026-11-13; the newest peft is 0.21.2",
        "transformers 4.46.0 is yanked on PyPI: pip installs it only if it is pinned",
    )


def test_a_key_gives_the_versions_and_the_python_of_its_set() -> None:
    found = read("2025-09")
    assert (found.versions["torch"], found.python, found.source) == ("2.8.0", "3.11", "set 2025-09")


def test_a_freeze_from_standard_input_is_whole() -> None:
    found = read("-", FREEZE.encode())
    assert dict(found.versions) == {"torch": "2.8.0+cu128", "transformers": "4.56.1", "accelerate": "1.10.1"}
    assert found.notes == (
        "version unknown: peft from git+https://github.com/huggingface/peft@0123abc",
        "version unknown: trl from git+https://github.com/huggingface/trl.git@abc#egg=trl",
    )
    assert (found.missing, found.whole) == (("bitsandbytes",), True)


def test_a_freeze_of_powershell_is_read() -> None:
    assert read("-", FREEZE.encode("utf-16")).versions["torch"] == "2.8.0+cu128"


def test_requirements_have_pins_ranges_options_markers_and_other_files(tmp_path: Path) -> None:
    (tmp_path / "base.txt").write_text("-r job.txt\naccelerate==1.10.1 \\\n  --hash=sha256:00 \\\n  --hash=sha256:11\n")
    (tmp_path / "limits.txt").write_text("trl==0.24.0\ntransformers==4.0.0\n")
    text = """\
--extra-index-url https://download.pytorch.org/whl/cu128
-r base.txt
-c limits.txt
torch==2.8.0  # the newest
torch==2.2.2; sys_platform == "darwin"
transformers[torch]==4.56.1; python_version >= "3.9"
peft>=0.15  # any
bitsandbytes @ https://example.org/bitsandbytes-0.47.0-py3-none-any.whl#sha256=00
./local
"""
    found = read_file(tmp_path, "job.txt", text)
    assert dict(found.versions) == {
        "torch": "2.8.0+cu128",
        "transformers": "4.56.1",
        "bitsandbytes": "0.47.0",
        "accelerate": "1.10.1",
        "trl": "0.24.0",
    }
    assert found.notes == (
        "not pinned: peft>=0.15",
        "torch comes from the index of cu128, so it is read as 2.8.0+cu128",
    )
    assert (found.whole, found.unpinned) == (False, ("peft",))


def test_a_package_for_another_system_only_is_not_named(tmp_path: Path) -> None:
    found = read_file(tmp_path, "r.txt", 'torch==2.8.0\nbitsandbytes==0.47.0; sys_platform == "win32"\n')
    assert (dict(found.versions), "bitsandbytes" in found.missing) == ({"torch": "2.8.0"}, True)


@pytest.mark.parametrize(
    ("name", "text", "versions", "notes"),
    [
        ("list.txt", PIP_LIST, {"torch": "2.8.0+cu128", "peft": "0.17.1", "trl": "0.24.0"}, []),
        ("list.json", '[{"name": "torch", "version": "2.8.0"}]', {"torch": "2.8.0"}, []),
        ("list.txt", CONDA_LIST, {"torch": "2.5.1+cu124", "peft": "0.13.2"}, []),
        (
            "uv.lock",
            UV_LOCK,
            {"torch": "2.8.0+cu128", "trl": "0.24.0"},
            ["version unknown: peft from https://github.com/huggingface/peft?rev=main#abc"],
        ),
        (
            "poetry.lock",
            POETRY_LOCK,
            {"transformers": "4.56.1"},
            ["version unknown: peft from https://github.com/huggingface/peft.git"],
        ),
        (
            "pylock.toml",
            UV_LOCK.replace("[[package]]", "[[packages]]"),
            {"torch": "2.8.0+cu128", "trl": "0.24.0"},
            None,
        ),
        ("pyproject.toml", PYPROJECT, {"torch": "2.8.0", "trl": "0.24.0"}, ["not pinned: peft>=0.15"]),
        (
            "pyproject.toml",
            POETRY_PROJECT,
            {"torch": "2.8.0", "trl": "0.24.0"},
            [
                "not pinned: peft ^0.15",
                "version unknown: accelerate from https://github.com/huggingface/accelerate.git",
            ],
        ),
        (
            "environment.yml",
            ENVIRONMENT,
            {"torch": "2.5.1+cu124", "peft": "0.13.2"},
            ["not pinned: accelerate=1.1", "not pinned: trl>=0.12"],
        ),
    ],
)
def test_listings_and_locks_are_read(
    name: str, text: str, versions: dict[str, str], notes: list[str] | None, tmp_path: Path
) -> None:
    found = read_file(tmp_path, name, text)
    assert dict(found.versions) == versions
    assert notes is None or list(found.notes) == notes


def test_a_conda_environment_states_its_python(tmp_path: Path) -> None:
    assert read_file(tmp_path, "environment.yml", ENVIRONMENT).python == "3.11"


def test_a_freeze_as_an_argument_is_read_as_from_a_file() -> None:
    assert read(FREEZE).versions == read("-", FREEZE.encode()).versions


@pytest.mark.parametrize("text", [UV_LOCK, PYPROJECT, ENVIRONMENT, PIP_LIST, CONDA_LIST])
def test_a_format_is_recognised_without_the_name_of_its_file(text: str) -> None:
    assert read("-", text.encode()).versions["torch"].startswith(("2.8.0", "2.5.1"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("2026-13", 'unknown version set "2026-13"; did you mean'),
        ("tranformers==4.56.1", 'unknown package "tranformers"; did you mean transformers?'),
        ("torch==2.8.0 ==", '"==" is no package with a version'),
        ("torch==two", "--versions: not a requirement: torch==two"),
        ("numpy==2.0", "the command line names none of torch"),
        ("", "the command line names none of torch"),
        ("peft>=0.15", "the command line pins none of torch"),
        ("torch==2.8.0 torch==2.7.1", "pins torch to 2.7.1 and 2.8.0"),
        ("missing.txt", "missing.txt: there is no such file"),
        ("./missing", "there is no such file"),
        ("~nobody/x", "there is no such file"),
        ("-", "standard input is empty"),
    ],
)
def test_bad_texts_are_refused(given: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as refused:
        read(given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("uv.lock", b"version = ", "not valid TOML"),
        ("uv.lock", b"version = 1\n", "no packages are locked in it"),
        ("pyproject.toml", b"[project]\nname = 'x'\n", "names none of torch"),
        ("environment.yml", b"a: [b\n", "not valid YAML"),
        ("environment.yml", b"learning_rate: 1\n", "lists no dependencies"),
        ("list.json", b'[{"name": 1}]', "not a list of `pip list --format json`"),
        ("r.txt", b"\x00\x01\xfe\xff", "is not text"),
        ("r.txt", b"", "names none of torch"),
        ("r.txt", b"-r other.txt\n", "which r.txt includes, cannot be read"),
        ("r.txt", b"torch==2.8.0\ntorch==2.7.1\n", "pins torch to 2.7.1 and 2.8.0"),
    ],
)
def test_bad_files_are_refused(name: str, raw: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(UserError, match=re.escape(message)):
        read(str(tmp_path / name))


def test_a_folder_and_a_huge_file_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(30_000_000)
    for given, message in ((tmp_path, "a folder; give --python"), (tmp_path / "huge.txt", "is larger than 20 MB")):
        with pytest.raises(UserError, match=message):
            read(str(given))


def test_a_lock_beside_a_project_of_ranges_is_named(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text(UV_LOCK)
    with pytest.raises(UserError, match=r"such as `pip freeze` lists, or .*uv\.lock"):
        read_file(tmp_path, "pyproject.toml", '[project]\nname = "x"\ndependencies = ["torch>=2"]\n')


def test_one_line_of_pins_from_standard_input_is_read_as_an_argument() -> None:
    line = "torch==2.8.0 peft==0.17.1 transformers==4.56.0"
    assert read("-", f"{line}\n".encode()).versions == read(line).versions
