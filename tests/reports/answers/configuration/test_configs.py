"""The reader recognises configuration files by their keys, and an edit changes nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from matrix.errors import UserError
from reports.answers.configuration import configs
from reports.answers.configuration.dialects.recognition import DIALECTS

EXAMPLES = Path(__file__).parent / "configs"
PATH = Path("job.yaml")
TEXT = """\
# how it is launched
distributed_type: FSDP   # not DDP
downcast_bf16: 'no'
fsdp_config:
    fsdp_use_orig_params: False  # as in the example
    fsdp_sharding_strategy: "FULL_SHARD"
mixed_precision: bf16

num_processes: 8
"""


def parse(text: str) -> configs.Config:
    return configs.parse(text, PATH)


def edit(text: str, **changes: Any) -> str:
    return configs.edit(parse(text), {name.replace("__", "."): value for name, value in changes.items()})


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.stem)
def test_every_example_is_recognised_by_its_keys(path: Path) -> None:
    name = {"accelerate": "accelerate", "trl": "TRL", "axolotl": "Axolotl", "llamafactory": "LLaMA-Factory"}
    assert configs.read(path)[0].dialect.name == name[path.stem.partition("_")[0]]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_no_key_marks_two_dialects(dialect: Any) -> None:
    others = set().union(*(other.marks for other in DIALECTS if other is not dialect))
    assert dialect.marks & others == set()


def test_an_edit_changes_one_value_and_nothing_else() -> None:
    new = edit(TEXT, fsdp_config__fsdp_use_orig_params=True)
    assert new == TEXT.replace("params: False", "params: True")


def test_an_edit_keeps_quotes() -> None:
    new = edit(TEXT, fsdp_config__fsdp_sharding_strategy="NO_SHARD", downcast_bf16="yes")
    assert new == TEXT.replace('"FULL_SHARD"', '"NO_SHARD"').replace("'no'", "'yes'")


def test_a_new_key_has_the_indentation_of_its_neighbours() -> None:
    new = edit(TEXT, fsdp_config__fsdp_version=2)
    assert new == TEXT.replace('"FULL_SHARD"\n', '"FULL_SHARD"\n    fsdp_version: 2\n')


def test_a_missing_mapping_is_added() -> None:
    new = edit("base_model: x\nadapter: qlora\n", bnb_config_kwargs__bnb_4bit_quant_storage="bfloat16")
    assert new == "base_model: x\nadapter: qlora\nbnb_config_kwargs:\n  bnb_4bit_quant_storage: bfloat16\n"


def test_an_empty_mapping_is_filled() -> None:
    new = edit("distributed_type: FSDP\nfsdp_config:\nnum_machines: 1\n", fsdp_config__fsdp_version=2)
    assert new == "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nnum_machines: 1\n"


def test_a_file_in_json_is_edited_as_json() -> None:
    new = edit('{"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 1}}', fsdp_config__fsdp_version=2)
    assert new == '{"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2}}'
    assert edit('{"use_peft": true}', load_in_4bit=True) == '{"use_peft": true, "load_in_4bit": true}'


def test_an_edited_json_file_is_valid_json() -> None:
    assert edit('{"use_peft": true, "dtype": null}', dtype="bfloat16") == '{"use_peft": true, "dtype": "bfloat16"}'
    assert edit('{"use_peft": true, "dtype": "auto"}', dtype=None) == '{"use_peft": true, "dtype": null}'
    new = edit('{"base_model": "x"}', bnb_config_kwargs__bnb_4bit_quant_storage="bfloat16")
    assert json.loads(new)["bnb_config_kwargs"] == {"bnb_4bit_quant_storage": "bfloat16"}


def test_a_new_key_does_not_become_the_value_of_an_empty_one() -> None:
    text = "base_model: x\nspecial_tokens:\nfsdp_config:\n  fsdp_version: 2\n"
    assert edit(text, adapter="lora") == text.replace("tokens:\n", "tokens:\nadapter: lora\n")


def test_an_empty_value_is_set_behind_its_colon() -> None:
    assert edit("base_model: x\nadapter:   # none yet\nbf16: true\n", adapter="lora") == (
        "base_model: x\nadapter: lora   # none yet\nbf16: true\n"
    )


def test_an_edit_keeps_line_endings() -> None:
    windows = TEXT.replace("\n", "\r\n")
    new = edit(windows, fsdp_config__fsdp_use_orig_params=True, fsdp_config__fsdp_version=2)
    assert "\n" not in new.replace("\r\n", "")
    assert "    fsdp_version: 2\r\n" in new


def test_none_empties_a_value() -> None:
    assert edit("use_peft: true\nbnb_4bit_quant_storage: uint8\n", bnb_4bit_quant_storage=None) == (
        "use_peft: true\nbnb_4bit_quant_storage: \n"
    )


def test_an_edited_value_is_read_back() -> None:
    again = parse(edit(TEXT, fsdp_config__fsdp_use_orig_params=True, mixed_precision="no"))
    assert again.values["fsdp_config.fsdp_use_orig_params"] is True
    assert again.values["mixed_precision"] == "no" or again.values["mixed_precision"] is False


def test_a_written_file_keeps_its_byte_order_mark_mode_and_links(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_bytes(b"\xef\xbb\xbfuse_peft: true\r\n")
    real.chmod(0o640)
    link.symlink_to(real)
    (config,) = configs.read(link)
    assert configs.write({config: configs.edit(config, {"use_peft": False})}) == (real,)
    assert (real.read_bytes(), link.is_symlink()) == (b"\xef\xbb\xbfuse_peft: false\r\n", True)
    assert oct(real.stat().st_mode)[-3:] == "640"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


BAD = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\n", "is empty"),
    "binary": (bytes(range(256)), "not text"),
    "zeros": (b"use_peft: true\n\0", "not text"),
    "tabs": (b"distributed_type: FSDP\nfsdp_config:\n\tfsdp_version: 2\n", ":3: not valid YAML: a tab"),
    "a list": (b"- a\n- b\n", "expected keys and values"),
    "a word": (b"hello\n", "expected keys and values"),
    "only a comment": (b"# nothing\n", "expected keys and values"),
    "another dialect": (b"trainer:\n  max_epochs: 3\n", "contains no keys of accelerate, Axolotl, LLaMA-Factory, TRL"),
    "not closed": (b"a: [1, 2\n", "not valid YAML"),
    "two documents": (b"use_peft: true\n---\nuse_peft: false\n", "not valid YAML"),
    "a key twice": (b"use_peft: true\nuse_peft: false\n", ":2: duplicate key use_peft"),
    "a key that is a mapping": (b"? use_peft: true\n: 1\n", ":1: the key is not a single word"),
    "an anchor": (b"use_peft: &yes true\nload_in_4bit: *yes\n", ":1: anchors and aliases"),
    "nested": (b"a: " + b"[" * 30_000, ":1: more than 20 nested brackets"),
    "large": (b"# " + b"x" * 110_000, "larger than 100 kB"),
}


@pytest.mark.parametrize(("raw", "message"), BAD.values(), ids=BAD)
def test_input_that_is_not_a_configuration_is_refused_in_one_line(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(raw)
    with pytest.raises(UserError) as error:
        configs.read(path)
    assert message in str(error.value)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_an_unreadable_path_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be read \(No such file"):
        configs.read(tmp_path / "job.yaml")
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory"):
        configs.read(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("use_peft: true\n")
    path.chmod(0)
    with pytest.raises(UserError, match="Permission denied"):
        configs.read(path)
