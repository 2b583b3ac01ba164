"""Words that several pages of the site share."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from reports.answers.devices.nearness import DEVICES

NAVIGATION: Final = (
    ("matrix.html", "Matrix"),
    ("features.html", "Features"),
    ("findings.html", "Findings"),
    ("causes.html", "Causes"),
    ("stack.html", "My stack"),
    ("error.html", "My error"),
    ("pairs.html", "Pairs"),
    ("changes.html", "What changed"),
    ("data.html", "Data"),
    ("docs/index.html", "Docs"),
)


def harness() -> str:
    """Return the version of ftmatrix that writes the site."""
    try:
        return version("ftmatrix")
    except PackageNotFoundError:
        return "from a checkout"


def device_name(device: str) -> str:
    return DEVICES.get(device, device)
