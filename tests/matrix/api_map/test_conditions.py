"""Conditions under which a statement runs, as they are read from its test."""

from __future__ import annotations

import ast

import pytest

from matrix.api_map.reading.conditions import conditions_of, handles_imports


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
        ("typing.TYPE_CHECKING", ["typing"]),
        ("transformers.utils.flag", ["ref:transformers.utils.flag"]),
        ("is_peft_available() and is_trl_available()", ["has:peft", "has:trl"]),
        ("is_peft_available() or is_trl_available()", ["if"]),
        ("not (is_peft_available() and is_trl_available())", ["if"]),
        ("sys.version_info >= (3, 11)", ["if"]),
        ("torch.cuda.is_initialized()", ["if"]),
        ("3 < x < 5", ["if"]),
    ],
)
def test_a_condition_is_read_or_unknown(test: str, expected: list[str]) -> None:
    assert conditions_of(ast.parse(test, mode="eval").body, dotted) == expected


@pytest.mark.parametrize(
    ("handler", "handled"),
    [
        ("except ImportError:\n    x = None", True),
        ("except (ValueError, ModuleNotFoundError):\n    x = None", True),
        ("except Exception:\n    x = None", True),
        ("except:\n    x = None", True),
        ("except ValueError:\n    x = None", False),
        ("except ImportError as error:\n    raise ValueError from error", False),
    ],
)
def test_an_import_is_handled_if_the_module_goes_on_without_it(handler: str, *, handled: bool) -> None:
    (statement,) = ast.parse(f"try:\n    import x\n{handler}\n").body
    assert isinstance(statement, ast.Try)
    assert handles_imports(statement) is handled
