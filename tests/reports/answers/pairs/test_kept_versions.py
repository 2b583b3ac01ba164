"""Which green sets still import with the versions that a user keeps, by the packaged map."""

from __future__ import annotations

import pytest

from matrix.api_map.query import ApiMap
from reports.answers.pairs.kept_versions import KeptVersions, kept_versions
from reports.answers.support.requirements import requirement
from reports.render.text.pairs_text import kept_lines

NEW = {
    "torch": "2.8.0",
    "transformers": "4.57.1",
    "peft": "0.18.0",
    "bitsandbytes": "0.48.2",
    "accelerate": "1.11.0",
    "trl": "0.25.1",
}
OLD = {
    "torch": "2.5.1",
    "transformers": "4.47.0",
    "peft": "0.14.0",
    "bitsandbytes": "0.45.0",
    "accelerate": "1.2.1",
    "trl": "0.12.1",
}


@pytest.fixture(scope="module")
def api() -> ApiMap:
    return ApiMap()


def kept(api: ApiMap, *have: str) -> KeptVersions:
    found = kept_versions([requirement(each) for each in have], {"new": NEW, "old": OLD}, api)
    assert found is not None
    return found


def test_a_set_that_breaks_at_import_with_a_kept_version_is_refused_with_the_name(api: ApiMap) -> None:
    found = kept(api, "transformers==4.46.3")
    assert found.best is not None
    assert (found.best.set, [each.set for each in found.refused]) == ("old", ["new"])
    assert "transformers 4.46.3 has no `transformers.modeling_layers`" in found.refused[0].reasons[0]
    assert "read from the releases, not run" in found.refused[0].reasons[0]


def test_kept_versions_that_break_each_other_end_the_search(api: ApiMap) -> None:
    found = kept(api, "peft==0.18.0", "transformers==4.46.3")
    assert found.broken
    assert found.best is None
    assert next(kept_lines(found)) == "The given versions do not work together:"


def test_a_version_that_the_map_does_not_have_says_nothing(api: ApiMap) -> None:
    assert kept_versions([requirement("peft==99.0")], {"new": NEW}, api) is None


def test_the_answer_names_the_combination_and_the_refused_sets(api: ApiMap) -> None:
    text = "\n".join(kept_lines(kept(api, "transformers==4.46.3")))
    assert "No cell measured transformers==4.46.3 with old; nothing is missing at import" in text
    assert "Not recommended: new with transformers==4.46.3" in text
