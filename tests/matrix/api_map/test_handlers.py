"""Errors of missing names that code handles."""

from __future__ import annotations

import ast

import pytest

from matrix.api_map.reading.handlers import handled_errors, suppressed_errors

EVERY = {"ImportError", "AttributeError", "TypeError"}


@pytest.mark.parametrize(
    ("handlers", "expected"),
    [
        ("except ImportError:\n    x = None", {"ImportError"}),
        ("except (ValueError, ModuleNotFoundError):\n    x = None", {"ImportError"}),
        ("except AttributeError:\n    x = None", {"AttributeError"}),
        ("except (ImportError, AttributeError):\n    x = None", {"ImportError", "AttributeError"}),
        ("except builtins.TypeError:\n    x = None", {"TypeError"}),
        ("except Exception:\n    x = None", EVERY),
        ("except:\n    x = None", EVERY),
        ("except RuntimeError:\n    x = None", set()),
        ("except ValueError:\n    x = None", set()),
        ("except ImportError as error:\n    raise ValueError from error", set()),
        ("except ImportError:\n    raise\nexcept Exception:\n    x = None", EVERY - {"ImportError"}),
    ],
)
def test_a_try_handles_an_error_if_the_code_behind_it_goes_on(handlers: str, expected: set[str]) -> None:
    (statement,) = ast.parse(f"try:\n    import x\n{handlers}\n").body
    assert isinstance(statement, ast.Try)
    assert handled_errors(statement) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("contextlib.suppress(ImportError)", {"ImportError"}),
        ("suppress(KeyError, AttributeError)", {"AttributeError"}),
        ("suppress(Exception)", EVERY),
        ("suppress_warnings(ImportError)", set()),
        ("open(path)", set()),
    ],
)
def test_suppress_handles_the_errors_that_it_names(expression: str, expected: set[str]) -> None:
    (statement,) = ast.parse(f"with {expression}:\n    import x\n").body
    assert isinstance(statement, ast.With)
    assert suppressed_errors(statement) == expected
