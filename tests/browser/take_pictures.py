"""Takes the pictures of the documentation from a site of the published results: ``nox -s pictures``."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

CHROMIUM: Final = os.environ.get("FTMATRIX_CHROMIUM") or shutil.which("chromium")
FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
PICTURES: Final = {
    "home.png": "index.html",
    "matrix.png": "matrix.html",
    "case.png": "case/train-lora-fsdp1-bf16.html",
}  # by picture: the page


def take(site: Path, folder: Path) -> None:
    """Write one picture of each page into a folder."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
        for name, path in PICTURES.items():
            page.goto((site / path).absolute().as_uri())
            page.wait_for_selector('#grid[aria-busy="false"]' if path == "matrix.html" else "h1")
            page.screenshot(path=folder / name)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]), FOLDER)
