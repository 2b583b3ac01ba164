"""The feed is valid XML with stable ids, and keeps earlier nights; badges are valid SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import date
from typing import Any

import pytest

from matrix.errors import UserError
from reports.alerts.badge import badge, feature_badge, night_badge, text_width
from reports.alerts.feed import ATOM, feed, merged, read

Fixture = Any  # a builder of conftest.py
HOSTILE = "</script>&amp; <!-- ]]> \x00\x1b[31m \u202e \ufffe \"' \U0001f600"


def written(documents: list[Any], known: str = "") -> str:
    return feed(merged(read(known.encode(), "f"), documents), title=HOSTILE, url="https://example.org/a?b&c")


def test_a_feed_has_what_the_rfc_requires(document: Fixture) -> None:
    root = ET.fromstring(written([document({"title": HOSTILE, "body": HOSTILE})]))  # noqa: S314 - our own
    required = {"id", "title", "updated"}
    for element in (root, *root.iter(f"{{{ATOM}}}entry")):
        assert required <= {child.tag.removeprefix(f"{{{ATOM}}}") for child in element}
    assert root.find(f"{{{ATOM}}}author/{{{ATOM}}}name") is not None


def test_an_entry_is_replaced_by_a_later_night_and_earlier_ones_stay(document: Fixture) -> None:
    first = written([document({}, {"cause_id": "other"})])
    entries = read(written([document(night=25)], first).encode(), "f")
    assert len(entries) == 2
    assert [each.updated[:10] for each in entries] == ["2026-11-25", "2026-11-24"]


def test_writing_a_feed_again_changes_nothing(document: Fixture) -> None:
    first = written([document({"title": HOSTILE, "body": HOSTILE})])
    assert written([], first) == first


@pytest.mark.parametrize(
    "text", ["<feed", "<a/>", '<!DOCTYPE a [<!ENTITY b "c">]><feed xmlns="http://www.w3.org/2005/Atom">&b;</feed>']
)
def test_another_file_is_no_feed(text: str) -> None:
    with pytest.raises(UserError, match=r"^f: "):
        read(text.encode(), "f")


@pytest.mark.parametrize("text", ["", HOSTILE, "x" * 500, "矩阵 e\u0301"])
def test_a_badge_is_valid_and_as_wide_as_its_halves(text: str) -> None:
    root = ET.fromstring(badge(text, text, "#fff"))  # noqa: S314 - our own
    right = root.findall(".//{*}rect")[2]
    assert int(root.get("width", "")) == int(right.get("x", "")) + int(right.get("width", ""))


def test_wide_characters_take_more_room_and_combining_ones_none() -> None:
    assert text_width("mm") > text_width("ii")
    assert text_width("矩") > text_width("a")
    assert text_width("e\u0301") == text_width("e")


def test_badges_name_a_feature_and_a_night(document: Fixture) -> None:
    alerts = [each.alert for each in document({}, {"cause_id": "x"}, {"kind": "fixed", "cause_id": "y"}).alerts]
    assert "qlora on 2026-11: green with a setting" in feature_badge("qlora", "2026-11", "green with a setting")
    assert "night 2026-11-24: 2 red causes" in night_badge(date(2026, 11, 24), alerts)
    assert "no new red cell" in night_badge(date(2026, 11, 24), alerts[2:])


def test_a_cause_of_several_nights_is_one_entry_with_its_first_day(document: Fixture) -> None:
    first = written([document({"first_seen": "2026-11-24"})])
    (only,) = read(written([document({"first_seen": "2026-11-25"}, night=25)], first).encode(), "f")
    assert (only.published[:10], only.updated[:10]) == ("2026-11-24", "2026-11-25")
