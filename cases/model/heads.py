"""The output head and the embeddings of a model: their sizes, and whether they share one matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.model import architectures, tiny
from cases.space.verdict import equal

if TYPE_CHECKING:
    from cases.space.options import Options
    from cases.space.verdict import Check


def shares_head(model: Any, options: Options) -> bool:
    """Return whether head and embeddings share one parameter, in a wrapped model too."""
    found = {tiny.canonical(n): p for n, p in model.named_parameters(remove_duplicate=False)}
    one, other = found.get(architectures.spec(options).embedding), found.get(architectures.spec(options).head)
    if one is None or other is None:
        return False  # the comparison of weights reports a missing parameter
    return one is other or bool(one.data_ptr() == other.data_ptr() != 0)


def tied_head(options: Options) -> str:
    """The second name of a tied matrix; empty if there is none."""
    return architectures.spec(options).head if architectures.is_tied(options) else ""


def tie_checks(model: Any, options: Options, where: str) -> list[Check]:
    """Check that the head shares the embeddings' matrix exactly if the case ties them."""
    return [equal(f"head shares the embeddings {where}", shares_head(model, options), architectures.is_tied(options))]


def saved_beside(options: Options) -> set[str]:
    """Names of matrices that PEFT saves with an adapter, since they were resized."""
    if options.embeddings != "resized" or options.method == "full":
        return set()
    return {architectures.spec(options).embedding, architectures.spec(options).head}


def rows(model: Any, options: Options) -> str:
    """The rows of the embeddings and of the head, and the config's vocabulary size."""
    found = {tiny.canonical(n): p for n, p in model.named_parameters(remove_duplicate=False)}
    sizes = [found[name].shape[0] for name in (architectures.spec(options).embedding, architectures.spec(options).head)]
    return "+".join(map(str, [*sizes, model.config.vocab_size]))
