"""The network of the reference: named tensors, and the layers that compute with them, in float64.

A network knows nothing of an architecture; the modules of ``cases.reference.models`` call its layers by the names that
a published checkpoint gives them. Adapters replace layers by name. Recorded outputs show where a run first deviates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Layer = Callable[[Any], Any]


@dataclass(kw_only=True)
class Batch:
    """The input of one forward pass.

    Tensors: ``ids``, int64 (batch, length); ``real``, bool (batch, length), False where a row is padded; ``positions``,
    int64 (batch, length), counted from the first token by default; ``documents``, int64 (batch, length), equal for
    tokens of one packed document. An encoder-decoder reads ``ids`` and predicts from ``decoder_ids``. ``embeddings``,
    (batch, virtual, hidden), come before those of ``ids``; ``prefix`` has a pair of keys and values per layer, each
    (batch, heads, virtual, width), which come before the computed ones.
    """

    ids: Any
    real: Any = None
    positions: Any = None
    documents: Any = None
    decoder_ids: Any = None
    embeddings: Any = None
    prefix: Sequence[tuple[Any, Any]] | None = None


@dataclass
class Network:
    """Tensors by the names of a published checkpoint, float64.

    ``config`` has the fields of ``config.json``. ``layers`` are functions that replace the layer of that name, from its
    input to its output. ``transposed``: linear layers store (in, out). ``outputs``: the output of each layer and part
    by name, if they are recorded.
    """

    config: Mapping[str, Any]
    tensors: dict[str, Any]
    transposed: bool = False
    layers: dict[str, Layer] = field(default_factory=dict)
    outputs: dict[str, Any] | None = None

    def matrix(self, name: str) -> Any:
        """The weight of a linear layer: shape (out, in)."""
        weight = self.tensors[f"{name}.weight"]
        return weight.T if self.transposed else weight

    def linear(self, name: str, x: Any) -> Any:
        """Shape (..., in) to (..., out)."""
        self.input(name, x)
        if name in self.layers:
            return self.output(name, self.layers[name](x))
        return self.output(name, self.plain_linear(name, x))

    def plain_linear(self, name: str, x: Any) -> Any:
        """The layer without a replacement."""
        product = x @ self.matrix(name).T
        bias = self.tensors.get(f"{name}.bias")
        return product if bias is None else product + bias

    def embedding(self, name: str, ids: Any) -> Any:
        """Shape (batch, length) to (batch, length, hidden)."""
        found = self.layers[name](ids) if name in self.layers else self.tensors[f"{name}.weight"][ids]
        return self.output(name, found)

    def head(self, x: Any, name: str = "lm_head", tied_to: str = "model.embed_tokens") -> Any:
        """The logits; a tied head multiplies by the matrix of the embeddings. A head is never stored as (in, out)."""
        own = self.tensors.get(f"{name}.weight")
        self.input(name, x)
        return self.output(name, x @ (self.tensors[f"{tied_to}.weight"] if own is None else own).T)

    def input(self, name: str, value: Any) -> None:
        """The input of a module with weights, for a network that records it (see ``cases.reference.recording``)."""

    def output(self, name: str, value: Any) -> Any:
        """Record an output by the name of its module, if outputs are recorded."""
        if self.outputs is not None:
            if value.requires_grad:
                value.retain_grad()
            self.outputs[name] = value
        return value
