"""Version ranges of a package: measured, inferred and unknown ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import jsonschema
import pytest
from packaging.specifiers import SpecifierSet

from matrix import documents
from matrix.errors import UserError
from matrix.versions.sets import PACKAGES
from reports.answers import knowledge
from reports.answers.support import support
from reports.answers.support.query import parse
from reports.answers.support.status import SupportIndex, SupportStatus
from reports.answers.support.support import Support, support_document, support_of
from reports.render.text.support_text import BLAME, CPU_RESULTS, lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from reports.answers.support.version_ranges import VersionRange
    from reports.results.grid import Grid

QLORA = "quant=nf4 torch_dtype=bf16"
STORED = f"{QLORA} bnb_4bit_quant_storage=bf16"
SETS = ("2025-03", "2025-06", "2025-09", "2025-12")  # at 1.0, 2.0, 3.0 and 4.0 of everything


@pytest.fixture
def found(measure: Callable[..., Grid]) -> Callable[..., Support]:
    def of(table: dict[str, dict[str, str]], *queries: str) -> Support:
        return support.support(SupportIndex(measure(table)), [parse(query) for query in queries or ("qlora",)])

    return of


def table(*verdicts: str) -> dict[str, dict[str, str]]:
    return {key: {QLORA: verdict} for key, verdict in zip(SETS, verdicts, strict=False)}


def rows(version_ranges: Sequence[VersionRange]) -> list[tuple[str, str]]:
    return [(each.versions, each.status.value) for each in version_ranges]


def test_ranges_cover_all_versions(found: Callable[..., Support]) -> None:
    assert rows(found(table("fail", "pass", "pass")).packages["peft"]) == [
        ("<1.0", "unknown"),
        ("==1.0", "red"),
        (">1.0,<2.0", "unknown"),
        (">=2.0,<=3.0", "green"),
        (">3.0", "unknown"),
    ]


def test_a_status_is_inferred_between_versions_that_share_it(found: Callable[..., Support]) -> None:
    red, green = found(table("fail", "pass", "pass")).packages["peft"][1:4:2]
    assert (red.inferred, red.measured, red.sets) == (False, ("1.0",), ("2025-03",))
    assert (green.inferred, green.measured, green.sets) == (True, ("2.0", "3.0"), ("2025-06", "2025-09"))


def test_nothing_is_inferred_across_a_red_version(found: Callable[..., Support]) -> None:
    assert ("==2.0", "red") in rows(found(table("pass", "fail", "pass")).packages["trl"])


def test_nothing_is_inferred_across_a_version_without_a_result(found: Callable[..., Support]) -> None:
    version_ranges = found(table("pass", "skip", "pass")).packages["torch"]
    assert rows(version_ranges)[1:4] == [("==1.0", "green"), (">1.0,<3.0", "unknown"), ("==3.0", "green")]
    assert version_ranges[2].reason == "needs a GPU"


def test_a_version_that_nobody_ran_is_inferred_from_its_neighbours(found: Callable[..., Support]) -> None:
    version_range = found({**table("pass", "pass", "pass"), "2025-06": {}}).packages["torch"][1]
    assert (version_range.versions, version_range.measured) == (">=1.0,<=3.0", ("1.0", "3.0"))


def test_a_range_names_a_setting_that_all_its_versions_share(found: Callable[..., Support]) -> None:
    other = f"{QLORA} bnb_4bit_quant_storage=fp32"
    cells = {"2025-03": {QLORA: "fail", STORED: "pass", other: "pass"}, "2025-06": {QLORA: "fail", other: "pass"}}
    version_range = found(cells).packages["torch"][1]
    assert (version_range.versions, version_range.status, version_range.settings) == (
        ">=1.0,<=2.0",
        SupportStatus.SETTING,
        "bnb_4bit_quant_storage=fp32",
    )


def test_versions_without_a_common_setting_form_two_ranges(found: Callable[..., Support]) -> None:
    cells = {
        "2025-03": {QLORA: "fail", STORED: "pass"},
        "2025-06": {QLORA: "fail", f"{QLORA} bnb_4bit_quant_storage=fp32": "pass"},
    }
    assert [each.settings for each in found(cells).packages["torch"]] == [
        *("", "bnb_4bit_quant_storage=bf16", "", "bnb_4bit_quant_storage=fp32", ""),
    ]


def test_a_version_has_the_best_status_of_its_sets(found: Callable[..., Support]) -> None:
    packages = found({**table("pass"), "2025-03+peft0.5": {QLORA: "fail"}}).packages
    assert ("==1.0", "green") in rows(packages["torch"])
    assert ("==0.5", "red") in rows(packages["peft"])


def test_a_move_of_one_package_that_made_the_difference_is_listed(found: Callable[..., Support]) -> None:
    (move_between,) = found({**table("pass"), "2025-03+peft0.5": {QLORA: "fail"}}).moves
    assert (move_between.package, move_between.red, move_between.green) == ("peft", "0.5", "1.0")
    assert (move_between.red_set, move_between.green_set) == ("2025-03+peft0.5", "2025-03")


def test_a_version_that_failed_only_with_a_package_at_fault_is_unknown(found: Callable[..., Support]) -> None:
    """2025-03 failed because of peft 1.0: 2025-03+peft2.0 is green."""
    packages = found({**table("fail", "pass"), "2025-03+peft2.0": {QLORA: "pass"}}).packages
    assert ("==1.0", "red") in rows(packages["peft"])
    assert ("red") not in {each.status.value for each in packages["torch"]}
    older = found({"2024-12": {QLORA: "fail"}, **table("fail"), "2025-03+peft3.0": {QLORA: "pass"}}).packages
    assert older["torch"][0].reason == "ran only with a peft that is red by itself"
    assert rows(older["torch"])[:2] == [("<2.0", "unknown"), ("==2.0", "green")]


def test_all_queries_must_be_green_on_one_set(found: Callable[..., Support]) -> None:
    cells = {"2025-03": {QLORA: "pass", "flow=merge": "fail"}, "2025-06": {QLORA: "pass", "flow=merge": "pass"}}
    both = found(cells, "qlora", "lora merge")
    assert [(each.set, each.status.value) for each in both.sets] == [("2025-03", "red"), ("2025-06", "green")]


def test_versions_are_ordered_as_versions(measure: Callable[..., Grid]) -> None:
    cells = {f"2025-03+peft{version}": {QLORA: "pass"} for version in ("0.10.0", "0.9.0", "0.21.0")}
    found = support.support(SupportIndex(measure(cells)), [parse("qlora")])
    assert found.packages["peft"][1].measured == ("0.9.0", "0.10.0", "0.21.0")


def test_a_build_is_named_only_if_the_specifier_allows_one(measure: Callable[..., Grid]) -> None:
    matrix = measure(table("pass", "pass", "fail"))
    builds = {"1.0": "2.11.0+cu130", "2.0": "2.12.0+cu130", "3.0": "2.13.0+cu130"}
    sets = [each.model_copy(update={"pins": {"torch": builds[each.pins["torch"]]}}) for each in matrix.sets]
    version_ranges = support.support(SupportIndex(replace(matrix, sets=tuple(sets))), [parse("qlora")]).packages[
        "torch"
    ]
    assert [each.versions for each in version_ranges] == [
        *("<2.11.0", ">=2.11.0,<=2.12.0", ">2.12.0,<2.13.0", "==2.13.0+cu130", ">2.13.0"),
    ]
    assert all(SpecifierSet(each.versions).contains(version) for each in version_ranges for version in each.measured)


def test_builds_of_a_release_share_their_status(measure: Callable[..., Grid]) -> None:
    matrix = measure(table("pass", "fail"))
    builds = {"1.0": "2.12.0", "2.0": "2.12.0+cu130"}
    sets = [each.model_copy(update={"pins": {"torch": builds[each.pins["torch"]]}}) for each in matrix.sets]
    ranges = support.support(SupportIndex(replace(matrix, sets=tuple(sets))), [parse("qlora")]).packages["torch"]
    assert rows(ranges) == [("<2.12.0", "unknown"), (">=2.12.0,<=2.12.0", "green"), (">2.12.0", "unknown")]
    assert ranges[1].measured == ("2.12.0", "2.12.0+cu130")


def test_cpu_results_give_unknown_support_for_a_gpu(measure: Callable[..., Grid]) -> None:
    found = support_of([parse("qlora")], "cuda", {"cpu": measure(table("pass"))})
    gpu, cpu = found.devices
    assert [each.device for each in (gpu, cpu)] == ["cuda", "cpu"]
    assert {rows(each)[0] for each in gpu.support[0].packages.values()} == {("", "unknown")}
    said = lines(found)
    assert "Unknown on cuda: there are no published results for cuda." in said
    assert said.index(CPU_RESULTS) > said.index("Unknown on cuda: there are no published results for cuda.")


def test_a_gpu_result_is_not_mixed_with_the_cpus(measure: Callable[..., Grid]) -> None:
    grids = {"cpu": measure(table("pass")), "cuda": measure(table("fail"))}
    (gpu,) = support_of([parse("qlora")], "cuda", grids).devices
    assert ("==1.0", "red") in rows(gpu.support[0].packages["torch"])


def test_a_document_without_cells_has_unknown_support(measure: Callable[..., Grid]) -> None:
    assert "Unknown on cuda: there are no published results for cuda." in lines(
        support_of([parse("qlora")], "cuda", {"cuda": measure({"2025-06": {}})})
    )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_an_impossible_query_is_refused(device: str, measure: Callable[..., Grid]) -> None:
    with pytest.raises(UserError, match="quantised weights are not trainable"):
        support_of([parse("full nf4")], device, {"cpu": measure(table("pass"))} if device == "cpu" else {})


def test_the_text_labels_inferred_ranges(measure: Callable[..., Grid]) -> None:
    stated_outcomes = "\n".join(
        lines(support_of([parse("qlora")], "cpu", {"cpu": measure(table("fail", "pass", "pass"))}))
    )
    assert "Newest set: 2025-09, green\n" in stated_outcomes
    assert "torch           ==1.0        red: measured (2025-03)" in stated_outcomes
    assert ">=2.0,<=3.0  green: measured at 2.0, 3.0; inferred between them" in stated_outcomes
    assert BLAME in stated_outcomes


def test_the_text_reports_that_nothing_was_measured(measure: Callable[..., Grid]) -> None:
    assert "No published run has a case for this." in lines(
        support_of([parse("lokr")], "cpu", {"cpu": measure(table("pass"))})
    )


def test_the_committed_schema_is_current(assert_golden: Callable[[str, Path], None]) -> None:
    assert_golden(support.json_schema(), support.SCHEMA_FILE)


def test_a_document_is_valid(measure: Callable[..., Grid]) -> None:
    made = support.dumped(support_document({"cpu": measure(table("fail", "pass", "skip", "pass"))}))
    schema = json.loads(support.SCHEMA_FILE.read_text())
    jsonschema.validate(json.loads(made), schema, cls=jsonschema.Draft202012Validator)
    assert json.loads(made)["schema"] == support.SCHEMA
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(made), "devices": 1}, schema)


def test_a_document_of_schema_1_is_read(tmp_path: Path) -> None:
    path = tmp_path / "support.json"
    row = '{"needs":["x"],"job":"QLoRA","sets":[{"set":"2025-06","standing":"red"}],"packages":{},"turns":[]}'
    path.write_text(f'{{"schema":1,"devices":[{{"device":"cpu","support":[{row}]}}]}}')
    (found,) = support.published("cpu", path)
    assert found.sets[0].status is SupportStatus.RED


# --- what is published ------------------------------------------------------------------------------------------------


def test_the_published_file_matches_the_published_results() -> None:
    made = support.dumped(support_document(knowledge.by_device()))
    assert documents.content(support.PUBLISHED).decode() == made, (
        f"to accept what the results give now: ftmatrix can-i-use --write {support.PUBLISHED}"
    )


def test_the_published_file_is_valid_and_covers_all_packages() -> None:
    published = json.loads(documents.content(support.PUBLISHED).decode())
    schema = json.loads(support.SCHEMA_FILE.read_text())
    jsonschema.validate(published, schema, cls=jsonschema.Draft202012Validator)
    assert published["devices"]
    for device in published["devices"]:
        assert device["support"], device["device"]
        assert all(set(each["packages"]) == set(PACKAGES) for each in device["support"])


def test_a_measured_version_is_in_exactly_one_range() -> None:
    published = json.loads(documents.content(support.PUBLISHED).decode())
    for each in (each for device in published["devices"] for each in device["support"]):
        for version_ranges in each["packages"].values():
            versions = [version for version_range in version_ranges for version in version_range.get("measured", ())]
            for version in versions:
                holding = [s for s in version_ranges if SpecifierSet(s["versions"]).contains(version, prereleases=True)]
                assert [version in s.get("measured", ()) for s in holding] == [True], (each["needs"], version)
