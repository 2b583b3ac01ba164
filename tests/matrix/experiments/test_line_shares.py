"""Lines inside functions count by the part of the stack that they belong to."""

from __future__ import annotations

from matrix.experiments.line_shares import LineShare, lines_of_functions, shares
from matrix.experiments.mutants import StackFile

SOURCE = b"""
import os

CONSTANT = 1


class Layer:
    size = 2

    def forward(self, x):
        def inner(y):
            return y + 1

        return inner(x)


def unused():
    return 3
"""
FORWARD = {11, 12, 14}


def test_lines_of_modules_classes_and_signatures_do_not_count() -> None:
    assert lines_of_functions(SOURCE) == FORWARD | {18}


def test_a_file_counts_for_the_first_part_that_it_is_in() -> None:
    names = ("peft/tuners/a.py", "peft/b.py", "elsewhere/c.py")
    found = shares([StackFile(name, SOURCE) for name in names], {"peft/tuners/a.py": [2, *FORWARD]})
    assert found == [
        LineShare(part="peft's tuners", executed=3, lines=4),
        LineShare(part="peft, the rest", executed=0, lines=4),
    ]
