"""The time to explain hostile text in the browser grows linearly with its length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.browser.meter import Meter
from tests.growing_text import check_linear, long_lines, mixture

if TYPE_CHECKING:
    from tests.browser.conftest import Visit

LOG: Final = 1_000_000  # characters of the shortest of three texts; the longest is all that the page reads whole
LINE: Final = 2_500_000  # of each of several lines
# In no field of the page, because the browser would lay it out meanwhile.
KEEP: Final = "text => { globalThis.log = text; }"
EXPLAIN: Final = "async () => { await ftm.diagnosis.explain(globalThis.log); }"


def seconds_of(visit: Visit, text: str) -> float:
    page, meter = visit.page, Meter(visit.page)
    page.evaluate(KEEP, text)
    return meter.seconds(lambda: page.evaluate(EXPLAIN))


def test_the_explanation_of_a_log(visit: Visit) -> None:
    visit.open("error.html").evaluate("ftm.diagnosis.ready()")
    check_linear(lambda size: seconds_of(visit, mixture(size)), LOG)


def test_the_explanation_of_lines_of_ten_megabytes(visit: Visit) -> None:
    visit.open("error.html").evaluate("ftm.diagnosis.ready()")
    check_linear(lambda size: seconds_of(visit, long_lines(size)), LINE)
