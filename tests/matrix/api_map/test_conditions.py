"""Conditions under which a statement runs, as they are read from its test."""

from __future__ import annotations

import ast

import pytest

from matrix.api_map.reading.conditions import conditions_after, conditions_of, opposite_of


def dotted(node: ast.expr) -> str:
    return ast.unparse(node)


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("is_peft_available()", ["has:peft"]),
        ("not is_peft_available()", ["!has:peft"]),
        ("is_bnb_available()", ["has:bitsandbytes"]),
        ("is_accelerate_available('0.26.0')", ["has:accelerate>=0.26.0"]),
        ("_is_package_available('weave')", ["has:weave"]),
        ("is_torch_version('>=', '2.1')", ["ver:torch>=2.1"]),
        ("is_torch_greater_or_equal('2.4')", ["ver:torch>=2.4"]),
        ("version.parse(torch.__version__) >= version.parse('2.1')", ["ver:torch>=2.1"]),
        ("version.parse('2.1') > version.parse(torch.__version__)", ["ver:torch<2.1"]),
        ("Version(importlib.metadata.version('trl')) < Version('0.9')", ["ver:trl<0.9"]),
        ("compare_versions('transformers', '<', '4.46')", ["ver:transformers<4.46"]),
        ("compare_versions(torch_version, '>=', '2.6')", ["ver:torch>=2.6"]),
        ("compare_versions('torch', operator, '2.6')", ["if"]),
        ("compare_versions(number, '>=', '2.6')", ["if"]),
        ("_accelerate_version >= version.parse('0.26')", ["ver:accelerate>=0.26"]),
        ("parsed_torch_version_base < version.parse('2.1')", ["ver:torch<2.1"]),
        ("config.PYARROW_VERSION >= version.parse('14')", ["ver:pyarrow>=14"]),
        ("pytorch_version >= version.parse('2.9.0')", ["ver:torch>=2.9.0"]),
        ("version.parse(get_torch_version()) >= version.parse('2.5')", ["ver:torch>=2.5"]),
        ("fsdp_version == '2'", ["if"]),
        ("torch_version_of(x) >= '2'", ["if"]),
        ("typing.TYPE_CHECKING", ["typing"]),
        ("not typing.TYPE_CHECKING", []),
        ("transformers.utils.flag", ["ref:transformers.utils.flag"]),
        ("is_peft_available() and is_trl_available()", ["has:peft", "has:trl"]),
        ("is_peft_available() or is_trl_available()", ["if"]),
        ("not (is_peft_available() and is_trl_available())", ["if"]),
        ("not (is_peft_available() or is_trl_available())", ["!has:peft", "!has:trl"]),
        ("not (flag or is_trl_available())", ["if", "!has:trl"]),
        ("not not is_peft_available()", ["has:peft"]),
        ("sys.version_info >= (3, 11)", ["if"]),
        ("torch.cuda.is_initialized()", ["if"]),
        ("3 < x < 5", ["if"]),
    ],
)
def test_a_condition_is_read_or_unknown(test: str, expected: list[str]) -> None:
    assert conditions_of(ast.parse(test, mode="eval").body, dotted) == expected


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("is_peft_available()", ["!has:peft"]),
        ("not is_peft_available()", ["has:peft"]),
        ("is_peft_available() or is_trl_available()", ["!has:peft", "!has:trl"]),
        ("is_peft_available() and is_trl_available()", ["if"]),
        ("typing.TYPE_CHECKING", []),
        ("x > 3", ["if"]),
    ],
)
def test_what_holds_in_an_else_branch(test: str, expected: list[str]) -> None:
    assert opposite_of(ast.parse(test, mode="eval").body, dotted) == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("if not is_peft_available():\n    raise ImportError", ["has:peft"]),
        ("if is_torch_version('<', '2.1') or not is_trl_available():\n    raise X", ["!ver:torch<2.1", "has:trl"]),
        ("if not is_peft_available():\n    warn()", []),
        ("if not is_peft_available():\n    raise ImportError\nelse:\n    x = 1", ["has:peft"]),
        ("if is_peft_available():\n    x = 1\nelse:\n    raise ImportError", ["has:peft"]),
        ("if is_peft_available():\n    return\nelif is_trl_available():\n    return", ["!has:peft", "!has:trl"]),
        ("if is_peft_available():\n    x = 1\nelif y:\n    return", []),
        ("if value is None:\n    raise ValueError", []),
        ("x = 1", []),
    ],
)
def test_a_check_that_leaves_the_block_holds_behind_it(statement: str, expected: list[str]) -> None:
    assert conditions_after(ast.parse(statement).body[0], dotted) == expected
