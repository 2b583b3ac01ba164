"""The list of configuration files of other repositories, with the reading that somebody expects who saw no rule."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

from cases.space import options
from reports.answers.configuration.dialects.recognition import DIALECTS

ROWS: Final[list[dict[str, Any]]] = json.loads(Path(__file__).with_name("upstream.json").read_text())
ENOUGH: Final = 300
NAMES: Final = {"llamafactory-v1": "LLaMA-Factory v1", "peft-adapter": "PEFT adapter", "trl": "TRL"}


def test_each_file_is_listed_once_with_its_commit() -> None:
    files = Counter((row["repository"], row["path"]) for row in ROWS)
    assert (len(files) >= ENOUGH, max(files.values())) == (True, 1)
    assert {len(row["commit"]) for row in ROWS} == {40}


def test_the_expected_dialects_have_rules() -> None:
    known = {each.name.lower().replace("-", "") for each in DIALECTS}
    expected = {NAMES.get(row["dialect"], row["dialect"]).lower().replace("-", "") for row in ROWS}
    assert expected - known - {"other", "trainingarguments", "fsdpjson"} == set()


def test_measured_methods_and_strategies_have_the_names_of_the_option_space() -> None:
    sharded = {row["expected"].get("strategy") for row in ROWS if "fsdp" in str(row["expected"].get("strategy"))}
    assert sharded <= set(options.values("strategy"))
    assert {"lora", "full"} <= {row["expected"].get("method") for row in ROWS} & set(options.values("method"))
