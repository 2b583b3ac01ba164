"""The log reader reads any text of any length in bounded memory, and refuses anything else with a clear message."""

from __future__ import annotations

import gzip
import io
import os
import random
import tracemalloc
from pathlib import Path

import pytest

from matrix.errors import UserError
from reports.answers.diagnosis import logs

ERROR = "ValueError: Cannot flatten integer dtype tensors"
NOBODY = 65534
LETTERS = str.maketrans("0123456789abcdef", "ghijklmopqstuvwx")
NOISE = 10 * logs.MEGABYTE
PEAK = 48 * logs.MEGABYTE


def read(text: str | bytes, folder: Path) -> str:
    log = folder / "log"
    log.write_bytes(text.encode() if isinstance(text, str) else text)
    return logs.read(log)


def test_lines_that_differ_only_in_digits_are_kept_once(tmp_path: Path) -> None:
    steps = "".join(f"[rank{step % 8}]: step {step}: loss {step / 7}\n" for step in range(100))
    assert read(f"begin\n{steps}{ERROR}\n", tmp_path).split() == f"begin [rank0]: step 0: loss 0.0 {ERROR}".split()


def test_blocks_of_pip_show_state_versions(tmp_path: Path) -> None:
    blocks = "Name: peft\nVersion: 0.13.2\nSummary: x\nRequires: torch\n---\nName: transformers\r\nVersion: 4.46.1\r\n"
    assert logs.versions(read(f"{blocks}{ERROR}\n", tmp_path)) == {"peft": "0.13.2", "transformers": "4.46.1"}


def test_each_state_of_a_progress_bar_is_a_line(tmp_path: Path) -> None:
    assert read(f"1%|#\r2%|##\r{ERROR}\r\n", tmp_path).splitlines()[:3] == ["1%|#", "2%|##", ERROR]


def test_utf_16_from_powershell_is_text(tmp_path: Path) -> None:
    assert ERROR in read(f"a\n{ERROR}\n".encode("utf-16"), tmp_path)


def test_a_few_invalid_bytes_do_not_make_a_text_binary(tmp_path: Path) -> None:
    assert ERROR in read(b"caf\xe9 \x00 \x1b[31m" + ERROR.encode() + b"\x1b[0m and more of the same line", tmp_path)


def test_text_in_gbk_is_text(tmp_path: Path) -> None:
    assert ERROR in read("\u8bad\u7ec3\u65f6\u62a5\u9519".encode("gbk") * 40 + b"\n" + ERROR.encode(), tmp_path)


def test_a_very_long_line_keeps_both_its_ends(tmp_path: Path) -> None:
    text = read(f"begin{'x' * logs.MEGABYTE}{ERROR}", tmp_path)
    assert text.startswith("begin")
    assert text.rstrip().endswith(ERROR)
    assert len(text) < logs.MEGABYTE


@pytest.mark.parametrize("where", [0.6, 1.0])
def test_an_error_is_found_anywhere_in_noise(where: float) -> None:
    """All lines differ, so none can be dropped as a repetition; memory stays bounded."""
    chance = random.Random(1)  # noqa: S311 - the same noise every time
    noise = [f"{chance.getrandbits(256):x}".translate(LETTERS) for _ in range(NOISE // 65)]
    noise.insert(int(where * len(noise)), ERROR)
    stream = io.BytesIO("\n".join(noise).encode())
    tracemalloc.start()
    try:
        assert ERROR in logs.distinct_text(stream, "log")
        assert tracemalloc.get_traced_memory()[1] < PEAK
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"  \n\t\r\n", "is empty"),
        (bytes(range(256)) * 64, "is binary"),
        (gzip.compress(Path(__file__).read_bytes()), "is binary"),
        (b"\0" * 4096, "is binary"),
    ],
    ids=["nothing", "blanks", "every byte", "compressed", "zeros"],
)
def test_input_that_is_not_a_log_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    with pytest.raises(UserError, match=f"log: {problem}"):
        read(content, tmp_path)


def test_an_unreadable_path_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Is a directory"):
        logs.read(tmp_path)
    with pytest.raises(UserError, match="No such file"):
        logs.read(tmp_path / "none")


def test_a_file_without_read_permission_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "log").touch(mode=0o000)
    user = os.geteuid()
    if user == 0:  # root may read everything
        os.seteuid(NOBODY)
    try:
        with pytest.raises(UserError, match=r"log: cannot be read \(Permission denied\)"):
            logs.read(tmp_path / "log")
    finally:
        os.seteuid(user)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stdin", [Terminal(), None], ids=["terminal", "closed"])
def test_a_terminal_is_refused_as_a_log(monkeypatch: pytest.MonkeyPatch, stdin: Terminal | None) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(UserError, match="is a terminal"):
        logs.read(None)


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("torch==2.4.0+cu121\npeft==0.12.0", {"torch": "2.4.0+cu121", "peft": "0.12.0"}),
        ("- `transformers` version: 4.43.3", {"transformers": "4.43.3"}),
        ("transformers version: 4.43.3", {"transformers": "4.43.3"}),
        ("- `Accelerate` version: 0.33.0", {"accelerate": "0.33.0"}),
        ("- PyTorch version (GPU?): 2.4.0 (True)", {"torch": "2.4.0"}),
        ("- PyTorch version (accelerator?): 2.8.0+cu128 (CUDA)", {"torch": "2.8.0+cu128"}),
        ("PyTorch version: 2.8.0.dev20250506+cu128", {"torch": "2.8.0.dev20250506+cu128"}),
        ("PEFT 0.12", {"peft": "0.12"}),
        ("- peft 0.12.0\n- trl 0.9.6", {"peft": "0.12.0", "trl": "0.9.6"}),
        ("/site-packages/torch-2.4.0.dist-info/METADATA", {"torch": "2.4.0"}),
        ("Successfully installed accelerate-0.27.2 peft-0.8.2", {"accelerate": "0.27.2", "peft": "0.8.2"}),
        ("peft                      0.10.0\ntorch        2.1.2    /src", {"peft": "0.10.0", "torch": "2.1.2"}),
        ("Unsloth 2024.10.7: Transformers = 4.44.2.", {"transformers": "4.44.2"}),
        ("bitsandbytes: 0.40.2", {"bitsandbytes": "0.40.2"}),
        ("This goes away in transformers 5.0 at last; it needs torch>=2.3 and peft<0.18", {}),
        ("sentence-transformers==3.0.1 torchvision==0.19.0 pytorch-lightning==2.4.0", {}),
        ("torch==nightly trl==x.y", {}),
        ("peft==0.12.0\nwith an adapter of PEFT 0.15", {"peft": "0.12.0"}),
        ("Uninstalling peft-0.11.1:\nSuccessfully installed peft-0.12.0", {"peft": "0.12.0"}),
        ("Successfully installed peft-0.12.0\n  Successfully uninstalled peft-0.15.0", {"peft": "0.12.0"}),
        ("peft==0.12.0\n  Found existing installation: peft 0.15.0", {"peft": "0.12.0"}),
        ("Attempting uninstall: peft\nUninstalling peft-0.15.0:", {}),
        (
            "trl 0.9.6 requires transformers==4.40.0, but you have transformers 4.52.4 which is incompatible.",
            {"transformers": "4.52.4"},
        ),
        ("but you'll have torch 2.0.1 which is incompatible.\nsome 1.0 requires torch==1.9.0", {"torch": "2.0.1"}),
        ("transformers 4.30.0 (trl 0.9.6 requires transformers==4.40.0)", {}),
        ("The user requested trl==0.9.6\n    trl 0.9.6 depends on transformers==4.40.0", {}),
        ("ERROR: No matching distribution found for torch==1.9.0", {}),
        ("Could not find a version that satisfies the requirement torch==1.9.0 (from versions: 2.0.0)", {}),
        ("Requirement already satisfied: torch==2.4.0 in ./lib", {}),
        ("!pip install peft==0.10.0 trl==0.9.6\npeft                 0.12.0", {"peft": "0.12.0"}),
        ("uv pip install peft==0.10.0\nuv add trl==0.9.6\nconda install torch==2.1.0", {}),
        ("Collecting peft==0.10.0", {}),
        ("requires_grad is off with torch==2.4.0", {"torch": "2.4.0"}),
        ("accelerate>=0.20.3 is required, but found accelerate==0.19.0", {"accelerate": "0.19.0"}),
    ],
)
def test_versions_are_read_from_lines_that_state_them(text: str, versions: dict[str, str]) -> None:
    assert logs.versions(text) == versions
