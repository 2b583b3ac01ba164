"""The adapters of the reference: each implemented from its paper.

An adapted layer computes its whole weight from the frozen weight and the trained parts in every forward pass. Prompt
tuning and prefix tuning do not change layers and put virtual tokens before the real ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.model import adapters, architectures, tiny
from cases.reference.attention import head_width
from cases.space.options import DECOMPOSED, PROMPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cases.reference.network import Network
    from cases.space.options import Options

    Parts = dict[str, Any]
    Weight = Callable[[Any, Parts, float], Any]  # (weight, parts, scaling) -> weight


def put_on(network: Network, options: Options) -> dict[str, Any]:
    """Add an adapter to a network, and return the trained tensors by their names in PEFT; the others are frozen."""
    if options.method in PROMPTS:
        return {PROMPT: trainable(adapters.value(PROMPT, (adapters.VIRTUAL_TOKENS, prompt_width(network, options))))}
    trained: dict[str, Any] = {}
    embeddings = architectures.spec(options).embedding.removesuffix(".weight")
    for name in [name.removesuffix(".weight") for name in network.tensors if name.endswith(".weight")]:
        looked_up = name == embeddings and options.target_embeddings
        if looked_up or architectures.is_target(name, options):
            parts = adapt(network, name, options, looked_up=looked_up)
            trained.update({f"{name}.{part}": value for part, value in parts.items()})
    if options.modules_to_save == "lm_head":
        trained["lm_head.weight"] = network.tensors["lm_head.weight"].requires_grad_()
    return trained


def adapt(network: Network, name: str, options: Options, *, looked_up: bool) -> Parts:
    """Let a layer compute its weight from the frozen one and the trained parts, which are returned."""
    matrix = network.tensors[f"{name}.weight"] if looked_up else network.matrix(name)
    weight, parts = parts_of(name, matrix, options, looked_up=looked_up)
    parts = {part: trainable(value) for part, value in parts.items()}
    held = {part.removesuffix(".weight"): value for part, value in parts.items()}
    compute, strength = COMPUTE[options.method], adapters.scaling(options)

    def layer(x: Any) -> Any:
        if looked_up:  # its weight is (vocabulary, hidden): the transpose of a linear layer's
            return compute(weight.T, held, strength).T[x]
        product = x @ compute(weight, held, strength).T
        bias = network.tensors.get(f"{name}.bias")
        return product if bias is None else product + bias

    network.layers[name] = layer
    return parts


def trainable(value: Any) -> Any:
    return value.detach().double().clone().requires_grad_()


def parts_of(name: str, weight: Any, options: Options, *, looked_up: bool) -> tuple[Any, Parts]:
    """The frozen weight and the trained parts that a layer starts from, by their names in PEFT."""
    if options.method in DECOMPOSED:
        return decomposed(weight, options)
    out_features, in_features = weight.T.shape if looked_up else weight.shape
    shapes = SHAPES[options.method](out_features, in_features, name)
    if looked_up:
        shapes = {f"lora_embedding_{part[5]}": shape for part, shape in shapes.items()}  # lora_A.weight
    parts = {part: adapters.value(f"{name}.{part}", shape) for part, shape in shapes.items()}
    if options.method == "dora":
        parts["lora_magnitude_vector"] = weight.norm(dim=0 if looked_up else 1)
    return weight, parts


def low_rank(out_features: int, in_features: int, _name: str) -> dict[str, tuple[int, ...]]:
    return {"lora_A.weight": (tiny.RANK, in_features), "lora_B.weight": (out_features, tiny.RANK)}


def hadamard(out_features: int, in_features: int, _name: str) -> dict[str, tuple[int, ...]]:
    left, right = (out_features, tiny.RANK), (tiny.RANK, in_features)
    return {"hada_w1_a": left, "hada_w1_b": right, "hada_w2_a": left, "hada_w2_b": right}


def kronecker(out_features: int, in_features: int, _name: str) -> dict[str, tuple[int, ...]]:
    (first_out, second_out), (first_in, second_in) = factors(out_features), factors(in_features)
    return {
        "lokr_w1": (first_out, first_in),
        "lokr_w2_a": (second_out, adapters.LOKR_RANK),
        "lokr_w2_b": (adapters.LOKR_RANK, second_in),
    }


def factors(size: int) -> tuple[int, int]:
    """The two closest factors of a dimension, the smaller first."""
    smaller = max(each for each in range(1, int(size**0.5) + 1) if size % each == 0)
    return smaller, size // smaller


def rescaling(out_features: int, in_features: int, name: str) -> dict[str, tuple[int, ...]]:
    incoming = name.rpartition(".")[2] in adapters.FEEDFORWARD
    return {"ia3_l": (1, in_features) if incoming else (out_features, 1)}


def singular(out_features: int, in_features: int, _name: str) -> dict[str, tuple[int, ...]]:
    return {"lora_A": (tiny.RANK, in_features), "lora_B": (out_features, tiny.RANK), "lora_E": (tiny.RANK, 1)}


def vectors(out_features: int, _in_features: int, _name: str) -> dict[str, tuple[int, ...]]:
    return {"vera_lambda_b": (out_features,), "vera_lambda_d": (tiny.RANK,)}


SHAPES: Mapping[str, Callable[[int, int, str], dict[str, tuple[int, ...]]]] = {
    **dict.fromkeys(("lora", "rslora", "dora"), low_rank),
    "loha": hadamard,
    "lokr": kronecker,
    "ia3": rescaling,
    "adalora": singular,
    "vera": vectors,
}


def lora(weight: Any, parts: Parts, scaling: float) -> Any:
    """Low-rank adaptation, https://arxiv.org/abs/2106.09685: W + s B A."""
    a, b = low_rank_parts(parts)
    return weight + scaling * b @ a


def dora(weight: Any, parts: Parts, scaling: float) -> Any:
    """Weight-decomposed, https://arxiv.org/abs/2402.09353: a trained norm of each row of W + s B A.

    Section 4.3: the gradient treats the dividing norm as a constant.
    """
    direction = lora(weight, parts, scaling)
    return parts["lora_magnitude_vector"][:, None] * direction / direction.norm(dim=1, keepdim=True).detach()


def low_rank_parts(parts: Parts) -> tuple[Any, Any]:
    if "lora_A" in parts:
        return parts["lora_A"], parts["lora_B"]
    return parts["lora_embedding_A"], parts["lora_embedding_B"]


def loha(weight: Any, parts: Parts, scaling: float) -> Any:
    """Hadamard product of two low-rank matrices, https://arxiv.org/abs/2108.06098."""
    return weight + scaling * (parts["hada_w1_a"] @ parts["hada_w1_b"]) * (parts["hada_w2_a"] @ parts["hada_w2_b"])


def lokr(weight: Any, parts: Parts, scaling: float) -> Any:
    """Kronecker product of a matrix and a low-rank one, https://arxiv.org/abs/2309.14859."""
    import torch

    return weight + scaling * torch.kron(parts["lokr_w1"], parts["lokr_w2_a"] @ parts["lokr_w2_b"])


def ia3(weight: Any, parts: Parts, _scaling: float) -> Any:
    """Activations scaled by a trained vector, https://arxiv.org/abs/2205.05638: outputs, or a feed-forward's inputs."""
    return weight * parts["ia3_l"]


def adalora(weight: Any, parts: Parts, scaling: float) -> Any:
    """Adaptation in the form of a singular value decomposition, https://arxiv.org/abs/2303.10512: W + s B diag(E) A."""
    return weight + scaling * parts["lora_B"] @ (parts["lora_E"] * parts["lora_A"])


def vera(weight: Any, parts: Parts, _scaling: float) -> Any:
    """Trained vectors between frozen projections that all layers share, https://arxiv.org/abs/2310.11454.

    The projections fit the largest layer; a layer uses the first columns of one and the first rows of the other.
    """
    largest = 2 * tiny.HIDDEN
    a = adapters.value("vera_A", (tiny.RANK, largest))[:, : weight.shape[1]].double()
    b = adapters.value("vera_B", (largest, tiny.RANK))[: weight.shape[0]].double()
    return weight + (parts["vera_lambda_b"][:, None] * b) @ (parts["vera_lambda_d"][:, None] * a)


COMPUTE: Mapping[str, Weight] = {
    **dict.fromkeys(("lora", "rslora", *DECOMPOSED), lora),
    "dora": dora,
    "loha": loha,
    "lokr": lokr,
    "ia3": ia3,
    "adalora": adalora,
    "vera": vera,
}


def decomposed(weight: Any, options: Options) -> tuple[Any, Parts]:
    """The residual of a weight and the update that a decomposition took from it, computed in float64."""
    strength = adapters.scaling(options)
    kept, a, b = {"pissa": pissa, "olora": olora, "loftq": loftq}[options.method](weight.double(), strength)
    return kept.float(), {"lora_A.weight": a.float(), "lora_B.weight": b.float()}


def pissa(weight: Any, strength: float) -> tuple[Any, Any, Any]:
    """Principal singular values and vectors, https://arxiv.org/abs/2404.02948."""
    a, b = principal(weight)
    return weight - b @ a, a / strength**0.5, b / strength**0.5


def principal(weight: Any) -> tuple[Any, Any]:
    """The best approximation of low rank, as B A, each with the root of the singular values."""
    import torch

    u, s, v = torch.linalg.svd(weight, full_matrices=False)
    root = s[: tiny.RANK].sqrt()
    return root[:, None] * v[: tiny.RANK], u[:, : tiny.RANK] * root


def olora(weight: Any, strength: float) -> tuple[Any, Any, Any]:
    """The first columns and rows of a QR decomposition, https://arxiv.org/abs/2406.01775."""
    import torch

    q, r = torch.linalg.qr(weight)
    a, b = r[: tiny.RANK].clone(), q[:, : tiny.RANK].clone()
    return weight - strength * b @ a, a, b


def loftq(weight: Any, _strength: float) -> tuple[Any, Any, Any]:
    """The quantised weight, and the best low-rank approximation of its error, https://arxiv.org/abs/2310.08659."""
    from cases.reference import quantisation

    quantised = quantisation.dequantised(weight.float(), "nf4").double()
    a, b = principal(weight - quantised)
    return quantised, a, b


PROMPT = "prompt_encoder.embedding.weight"


def prompt_width(network: Network, options: Options) -> int:
    """Numbers per virtual token: an embedding, or for prefix tuning a key and a value in each layer."""
    config = network.config
    if options.method == "prompt":
        return int(config["hidden_size"])
    return int(2 * config["num_hidden_layers"] * config["num_key_value_heads"] * head_width(config))


def virtual(network: Network, trained: Parts, options: Options, rows: int) -> dict[str, Any]:
    """The part of a batch that a prompt adds.

    Prompt tuning (https://arxiv.org/abs/2104.08691) trains embeddings of virtual tokens before the real ones. Prefix
    tuning (https://arxiv.org/abs/2101.00190) trains the keys and values that each layer attends to before its own; keys
    are not rotated, like those of a cache.
    """
    if options.method == "prompt":
        return {"embeddings": trained[PROMPT].expand(rows, -1, -1)}
    if options.method != "prefix":
        return {}
    layers, groups = network.config["num_hidden_layers"], network.config["num_key_value_heads"]
    stacked = trained[PROMPT].unflatten(1, (2 * layers, groups, -1)).permute(1, 2, 0, 3)
    pairs = stacked[:, None].expand(-1, rows, -1, -1, -1)
    return {"prefix": [(pairs[2 * number], pairs[2 * number + 1]) for number in range(layers)]}


def regularisation(trained: dict[str, Any], options: Options) -> Any:
    """AdaLoRA's regularisation: the mean distance of all A and B from orthogonal matrices."""
    import torch

    if options.method != "adalora":
        return 0.0
    sides = [p if name.endswith("lora_A") else p.T for name, p in trained.items() if not name.endswith("lora_E")]
    distances = [(side @ side.T - torch.eye(tiny.RANK, dtype=side.dtype)).norm() for side in sides]
    return adapters.ORTHOGONAL * sum(distances) / len(distances)


class Budget:
    """AdaLoRA's allocation: after one step it prunes the least important ranks of all layers for good.

    Importance (section 3.2): a weight's sensitivity ``|w dL/dw|`` times its uncertainty, both smoothed; of a rank, that
    of its singular value plus the means of its vectors'. Seen once, as here, the smoothing is a factor that all share.
    """

    def __init__(self) -> None:
        self.importance: dict[str, Any] = {}
        self.dropped: dict[str, Any] = {}

    def after_step(self, step: int, trained: dict[str, Any], gradients: dict[str, Any]) -> None:
        import torch

        layers = sorted({name.rpartition(".")[0] for name in trained})
        if step < adapters.BUDGET_STEP:
            score = {name: (p * gradients[name]).square() for name, p in trained.items()}
            self.importance = {
                layer: score[f"{layer}.lora_E"][:, 0]
                + score[f"{layer}.lora_A"].mean(dim=1)
                + score[f"{layer}.lora_B"].mean(dim=0)
                for layer in layers
            }
        elif step == adapters.BUDGET_STEP:
            many = len(layers) * (tiny.RANK - adapters.KEPT_RANK)
            threshold = torch.cat(list(self.importance.values())).kthvalue(many).values
            self.dropped = {layer: found <= threshold for layer, found in self.importance.items()}
        for layer, dropped in self.dropped.items():
            trained[f"{layer}.lora_E"][dropped] = 0.0
