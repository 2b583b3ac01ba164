"""Releases and wheels of an index."""

from __future__ import annotations

import io
import zipfile
from datetime import date

import httpx
import pytest

from matrix.api_map.reading.index import PackageIndex
from matrix.errors import UserError

SINCE = date(2024, 1, 1)
NAMES = (
    "tokenizers-0.15.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "tokenizers-0.15.0-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "tokenizers-0.15.0-cp312-cp312-win_amd64.whl",
    "tokenizers-0.16.0-cp310-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "tokenizers-0.17.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "tokenizers-0.18.0-py3-none-any.whl",
    "tokenizers-0.19.0rc1-py3-none-any.whl",
    "tokenizers-0.19.0.tar.gz",
)


def row(name: str, day: str = "2024-02-01") -> dict[str, object]:
    return {"filename": name, "url": f"../files/{name}", "upload-time": f"{day}T00:00:00Z", "size": 9}


def serve(files: list[dict[str, object]]) -> httpx.MockTransport:
    return httpx.MockTransport(lambda _: httpx.Response(200, json={"files": files}))


def index(files: list[dict[str, object]], *, python: str = "", address: str = "https://index/simple/") -> PackageIndex:
    return PackageIndex({}, serve(files), python=python, ask=lambda: address)


def versions(found: PackageIndex) -> list[str]:
    return [each.version for each in found.releases("tokenizers", since=SINCE)]


def test_final_releases_with_a_wheel_are_listed_in_order() -> None:
    assert versions(index([row(each) for each in reversed(NAMES)])) == ["0.15.0", "0.16.0", "0.17.0", "0.18.0"]


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ("3.11.7", ["0.15.0", "0.16.0", "0.17.0", "0.18.0"]),
        ("3.12.1", ["0.15.0", "0.16.0", "0.18.0"]),
        ("3.9.18", ["0.18.0"]),
    ],
)
def test_an_interpreter_gets_only_releases_with_a_wheel_for_it(python: str, expected: list[str]) -> None:
    assert versions(index([row(each) for each in NAMES], python=python)) == expected


def test_an_interpreter_gets_its_own_wheel_of_a_release() -> None:
    (found, *_) = index([row(each) for each in NAMES], python="3.12.1").releases("tokenizers", since=SINCE)
    assert found.url == f"https://index/simple/files/{NAMES[1]}"


def test_older_uploads_and_uploads_without_a_day_are_left_out() -> None:
    undated: dict[str, object] = {"filename": NAMES[0], "url": NAMES[0]}
    assert versions(index([row(NAMES[5], "2023-01-01"), undated])) == []


def test_an_index_that_answers_no_json_is_bad_input() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text="<html>"))
    with pytest.raises(UserError, match="needs the JSON form"):
        PackageIndex({}, transport, ask=lambda: "https://index/simple").releases("peft", since=SINCE)


@pytest.mark.parametrize("address", ["", "/srv/wheels"])
def test_an_index_without_an_address_is_bad_input(address: str) -> None:
    with pytest.raises(UserError, match="needs an index"):
        versions(index([], address=address))


def test_a_wheel_is_opened_from_its_address() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as wheel:
        wheel.writestr("peft/__init__.py", "x = 1\n")

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith(".whl"):
            return httpx.Response(200, content=stream.getvalue())
        return httpx.Response(200, json={"files": [row("peft-1.0-py3-none-any.whl")]})

    found = PackageIndex({}, httpx.MockTransport(answer), ask=lambda: "https://index/simple")
    (release,) = found.releases("peft", since=SINCE)
    assert found.open(release).read("peft/__init__.py") == b"x = 1\n"
