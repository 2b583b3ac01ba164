"""Draws SVG badges: the status of a feature on a version set, and the result of a night."""

from __future__ import annotations

import unicodedata
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from reports.alerts.alert import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from reports.alerts.alert import Alert

GREEN, YELLOW, RED, GREY = "#2e7d32", "#8a6d00", "#c62828", "#5f6368"  # white text on each has a contrast above 4.5
STATUS_COLOURS: Final = {"green": GREEN, "green with a setting": YELLOW, "red": RED}
LONGEST: Final = 80  # characters of each half
FONT_SIZE: Final = 11
HEIGHT, PADDING = 20, 6
# Advance widths of Verdana in units of 1/2048 em; Verdana is the widest of the fonts that the badge names.
UNITS: Final = 2048
WIDTHS: Final = {
    562: "ijl",
    720: "f ",
    745: ",.",
    807: "t!",
    874: "r",
    930: "()-/:;[\\]|'",
    1067: "csz",
    1140: "LI",
    1300: 'abdeghknopquvxy0123456789*`^_$?"{}',
    1450: "ABCEFPRSTVXYZK",
    1612: "DGHNOQU",
    1676: "+<=>#w~",
    2048: "mMW@%&",
}
WIDTH_OF: Final = {character: width for width, characters in WIDTHS.items() for character in characters}


def badge(label: str, message: str, colour: str) -> str:
    """Draw a badge of two halves: the label on grey, and the message on a colour."""
    label, message = (shortened(" ".join(printable(text).split()), LONGEST) for text in (label, message))
    left, right = (text_width(text) + 2 * PADDING for text in (label, message))
    width = str(left + right)
    root = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", width=width, height=str(HEIGHT), role="img")
    root.set("aria-label", f"{label}: {message}")
    ET.SubElement(root, "title").text = f"{label}: {message}"
    clip = ET.SubElement(root, "clipPath", id="round")
    ET.SubElement(clip, "rect", width=width, height=str(HEIGHT), rx="3")
    halves = ET.SubElement(root, "g", {"clip-path": "url(#round)"})
    ET.SubElement(halves, "rect", width=str(left), height=str(HEIGHT), fill="#444")
    ET.SubElement(halves, "rect", x=str(left), width=str(right), height=str(HEIGHT), fill=colour)
    words = ET.SubElement(root, "g", fill="#fff", attrib={"font-family": "Verdana,Geneva,DejaVu Sans,sans-serif"})
    words.set("font-size", str(FONT_SIZE))
    add_text(words, label, x=PADDING)
    add_text(words, message, x=left + PADDING)
    return ET.tostring(root, encoding="unicode") + "\n"


def add_text(parent: ET.Element, text: str, *, x: int) -> None:
    """Add a text that keeps its computed width in every font."""
    element = ET.SubElement(parent, "text", x=str(x), y="14", textLength=str(text_width(text)))
    element.text = text


def text_width(text: str) -> int:
    """Return the width of a text in pixels, rounded up."""
    units = sum(character_width(each) for each in text)
    return -(-units * FONT_SIZE // UNITS)


def character_width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    usual = UNITS if unicodedata.east_asian_width(character) in "WF" else 1400
    return WIDTH_OF.get(character, usual)


def feature_badge(feature: str, version_set: str, status: str) -> str:
    """Draw the status of a feature on a set; a status that is no colour of ours is grey, such as ``unknown``."""
    return badge(f"{feature} on {version_set}", status, STATUS_COLOURS.get(status, GREY))


def night_badge(night: date, alerts: Iterable[Alert]) -> str:
    """Draw the result of a night: the number of causes with red cells."""
    red = {each.fingerprint for each in alerts if each.kind.is_red}
    message = counted(len(red), "red cause") if red else "no new red cell"
    return badge(f"night {night}", message, RED if red else GREEN)
