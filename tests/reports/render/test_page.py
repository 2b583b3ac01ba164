from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from reports.render.page import embedded, href, page
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.overview import Overview
    from reports.results.grid import Grid

    Run = tuple[RunRecord, list[SetRecord], list[Outcome]]
    See = Callable[[Run], "Seen"]


class Seen(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        return [a for t, a in self.elements if t == tag and wanted.items() <= a.items()]


@pytest.fixture
def seen_beside_gpus(build_beside_gpus: Callable[[Grid], Overview], later: datetime) -> See:
    def look(run: Run) -> Seen:
        matrix = grid(*run)
        return Seen(page(run[0], matrix, build_beside_gpus(matrix), generated=later))

    return look


@pytest.fixture
def seen(build_overview: Callable[[Grid], Overview], later: datetime) -> See:
    def look(run: Run) -> Seen:
        matrix = grid(*run)
        return Seen(page(run[0], matrix, build_overview(matrix), generated=later))

    return look


def inlined(found: Seen) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(found.scripts[0])
    return data


def test_the_page_fetches_nothing(small: Run, seen: See) -> None:
    found = seen(small)
    fetched = [value for tag, a in found.elements for name, value in a.items() if name == "src" or (tag == "link")]
    assert set(fetched) <= {"icon", "data:,"}


def test_links_lead_into_the_page_or_to_threads(small: Run, seen: See) -> None:
    links = [a["href"] for a in seen(small).all("a")]
    assert {link for link in links if not link.startswith("#")} == {"https://github.com/owner/repo/issues/7"}


def test_a_red_cell_has_its_cause_and_its_fix(small: Run, seen: See) -> None:
    data = inlined(seen(small))
    cell = data["cells"]["2024-06__train-lora-fsdp1-bf16"]
    assert data["causes"][cell["cause"]]["cause"] == "Trained and frozen parameters share a flat tensor."
    assert cell["fix"] == {
        "words": "set use_orig_params=True instead of False",
        "proof": "2024-06__green, green in 2 runs on cpu: test, 2026-11-20",
        "edit": "--- a/train.py\n+++ b/train.py",
    }


def test_a_search_without_a_fix_has_its_limits(small: Run, seen: See) -> None:
    fix = inlined(seen(small))["cells"]["2024-09__train-lora-fsdp1-bf16"]["fix"]
    assert fix == {"words": "none found (3 single settings)", "proof": "", "edit": ""}


def test_a_cell_without_a_signature_is_called_unexplained(small: Run, seen: See) -> None:
    cell = inlined(seen(small))["cells"]["2024-06__train-dora-ddp-bf16"]
    assert (cell["cause"], "fix" in cell) == ("unexplained", False)


def test_the_security_policy_forbids_fetching(small: Run, seen: See) -> None:
    policy = {"http-equiv": "Content-Security-Policy"}
    assert seen(small).all("meta", **policy)[0]["content"].startswith("default-src 'none'; ")


def test_every_cell_is_a_button_with_its_verdict_in_words(small: Run, seen: See) -> None:
    buttons = [a for a in seen(small).all("button") if "data-cell" in a]
    assert {b["data-cell"] for b in buttons} == set(small[0].planned)
    assert "fail, train-lora-fsdp1-bf16 on 2024-06" in {b["aria-label"] for b in buttons}


def test_a_page_of_gpu_results_names_driver_and_libraries(small_on_gpus: Run, seen: See) -> None:
    found = seen(small_on_gpus)
    assert "cuda: H200 x 2, driver 580.159.04 (CUDA 13.0)" in found.text
    assert '<th scope="col">NCCL</th>' in found.text
    assert "<td>2.20.5</td>" in found.text


def test_headers_have_a_scope(small: Run, seen: See) -> None:
    assert all(header.get("scope") for header in seen(small).all("th"))


def test_the_details_of_every_cell_are_in_the_page(small: Run, seen: See) -> None:
    cells = inlined(seen(small))["cells"]
    assert set(cells) == set(small[0].planned)
    assert cells["2024-06__train-dora-ddp-bf16"]["checks"][0] == {
        "name": "gradient",
        "value": 0.31,
        "op": "<=",
        "bound": 0.06,
        "ok": False,
    }


def test_each_cell_has_the_command_that_runs_it_again(small: Run, seen: See) -> None:
    command = inlined(seen(small))["cells"]["2024-06__train-dora-ddp-bf16"]["again"]
    assert command == "ftmatrix run --sets 2024-06 --where case=train-dora-ddp-bf16"


def test_differences_of_cpu_and_gpu_are_a_section_and_part_of_the_cells(
    small: Run, seen: See, seen_beside_gpus: See
) -> None:
    found = seen_beside_gpus(small)
    assert found.all("h2", id="devices")
    assert found.all("a", href="#2024-06__train-lora-ddp-fp32")
    assert "<dd>With use_orig_params=False, an FSDP1 unit is one flat parameter" in found.text
    cells = inlined(found)["cells"]
    assert cells["2024-06__train-lora-ddp-fp32"]["differs"] == [
        "On GPUs, on 2024-06 (the same six versions): fail (unexplained)",
    ]
    assert "differs" not in cells["2024-06__train-nf4-ddp-bf16"]
    assert not seen(small).all("h2", id="devices")


def test_on_a_page_of_gpus_the_other_device_is_the_cpu(small: Run, seen_beside_gpus: See) -> None:
    record = small[0].model_copy(update={"device": "cuda"})
    found = seen_beside_gpus((record, *small[1:]))
    assert inlined(found)["cells"]["2024-06__train-lora-ddp-fp32"]["differs"] == [
        "On the CPU, on 2024-06 (the same six versions): pass"
    ]
    links = '<a href="#2024-06__train-lora-ddp-fp32">2024-06</a> compared with 2024-06'
    assert (links in found.text, links in seen_beside_gpus(small).text) == (True, False)


def test_links_of_compared_sets_lead_to_cells_of_the_page(small: Run, seen_beside_gpus: See) -> None:
    found = seen_beside_gpus(small)
    anchors = {a["data-cell"] for a in found.all("button") if "data-cell" in a} | {
        a["id"] for _, a in found.elements if "id" in a
    }
    assert {a["href"][1:] for a in found.all("a") if a["href"].startswith("#")} <= anchors


def test_hostile_text_adds_no_element(hostile: Run, seen_beside_gpus: See) -> None:
    found = seen_beside_gpus(hostile)
    assert len(found.all("script")) == len(found.scripts) == 2
    assert "{{ 7 * 7 }}" in inlined(found)["cells"]["2024-06__train-lora-ddp-fp32"]["reason"]


def test_numbers_that_json_lacks_are_words(hostile: Run, seen: See) -> None:
    check = inlined(seen(hostile))["cells"]["2024-06__train-lora-ddp-fp32"]["checks"][0]
    assert (check["value"], check["bound"]) == ("NaN", "Infinity")


def test_embedded_data_cannot_end_its_element() -> None:
    text = embedded({"a": "</script><!--&\u2028"})
    assert not re.search("[<>&\u2028]", text)
    assert json.loads(text) == {"a": "</script><!--&\u2028"}


def test_a_file_name_cannot_become_a_scheme_or_a_host() -> None:
    assert href("", "javascript:x") == "./javascript%3Ax"
    assert href("", "//elsewhere") == ".///elsewhere"
    assert href("../run", "a b.log") == "../run/a%20b.log"


def test_the_device_is_shown(small: Run, seen: See) -> None:
    assert "CPU (gloo)" in seen(small).text
