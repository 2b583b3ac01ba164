"""Environments of links find each package where it is installed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from matrix.environments.linked_environment import installed_packages, link
from matrix.environments.pytest_runner import PTH

if TYPE_CHECKING:
    from pathlib import Path

SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def installed(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (info / "entry_points.txt").write_text(f"[console_scripts]\nrun-{name} = shared.{name}:main\n")
    paths = [
        *files,
        f"{info.name}/METADATA",
        f"{info.name}/entry_points.txt",
        f"{info.name}/RECORD",
        "../../../bin/tool",
    ]
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in paths))


def test_packages_of_two_folders_share_a_namespace(tmp_path: Path) -> None:
    old = tmp_path / "old" / SITE
    installed(old, "one", "1", {"shared/one.py": "", "first/__init__.py": "version = 1\n", "big/lib/libbig.so": ""})
    installed(old, "two", "1", {"shared/two.py": "version = 1\n"})
    (old / PTH).write_text("")
    new = tmp_path / "new"
    installed(new, "two", "2", {"shared/two.py": "version = 2\n\n\ndef main():\n    return version\n"})
    (tmp_path / "old" / "bin").mkdir()
    (tmp_path / "old" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "old" / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\n")
    root = tmp_path / "linked"
    link(root, [installed_packages(old)["one"], installed_packages(new)["two"]], like=tmp_path / "old")
    code = (
        "import first, shared.two, shared.one; from importlib.metadata import version;"
        " print(first.version, shared.two.version, version('two'))"
    )
    done = subprocess.run([root / "bin" / "python", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1 2 2\n", "")
    assert (root / SITE / "first").is_symlink()
    assert not (root / SITE / "shared").is_symlink()
    assert not (root / SITE / "big" / "lib").is_symlink()  # $ORIGIN is a folder of this environment
    assert subprocess.run([root / "bin" / "run-two"], check=False).returncode == 2  # a command of this environment
