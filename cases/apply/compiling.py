"""Counts what torch.compile did in this process: created graphs, their runs, and graph breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

FEWEST_CALLS = 30  # of operations, in a graph that holds a layer of the tiny model


@dataclass
class Graphs:
    """Counts of this process, which compiles one model."""

    made: int = 0
    largest: int = 0  # operations in the largest
    runs: int = 0


GRAPHS = Graphs()


def counting_backend(backend: str) -> Callable[[Any, list[Any]], Callable[..., Any]]:
    """A backend of ``torch.compile`` by name, whose graphs are counted when they are made and when they run."""

    def make(graph: Any, examples: list[Any]) -> Callable[..., Any]:
        from torch._dynamo.backends.registry import lookup_backend

        GRAPHS.made += 1
        GRAPHS.largest = max(GRAPHS.largest, sum(node.op.startswith("call") for node in graph.graph.nodes))
        compiled = lookup_backend(backend)(graph, examples)

        def run(*inputs: Any) -> Any:
            GRAPHS.runs += 1
            return compiled(*inputs)

        return run

    return make


def breaks() -> int:
    """The number of graph breaks."""
    from torch._dynamo.utils import counters

    return sum(counters["graph_break"].values())
