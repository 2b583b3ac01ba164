"""The adapters of the reference: each implemented from its paper, on plain float32 layers.

An adapted layer computes its whole weight from the frozen weight and the trained parts in every forward pass. Prompt
tuning and prefix tuning do not change layers and put virtual tokens before the real ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.model import adapters, architectures, tiny
from cases.space.options import DECOMPOSED, PROMPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cases.space.options import Options

    Parts = dict[str, Any]
    Weight = Callable[[Any, Parts, float], Any]  # (weight, parts, scaling) -> weight


def put_on(model: Any, options: Options) -> Any:
    """Freeze the model and add an adapter and the other trained parts."""
    model.requires_grad_(requires_grad=False)
    if options.method in PROMPTS:
        return prompted(model, prefix=options.method == "prefix")
    embeddings = architectures.spec(options).embedding.removesuffix(".weight")
    for name, layer in list(model.named_modules()):
        parent, _, child = name.rpartition(".")
        if architectures.is_target(name, options):
            setattr(model.get_submodule(parent), child, adapted(name, architectures.as_linear(layer), options))
        elif name == embeddings and options.target_embeddings:
            setattr(model.get_submodule(parent), child, adapted(name, layer, options))
    if options.modules_to_save == "lm_head":
        model.lm_head.weight.requires_grad_(requires_grad=True)
    return model


def adapted(name: str, base: Any, options: Options) -> Any:
    """A linear layer, or an embedding, whose weight is computed from the frozen one and the trained parts."""
    from torch import nn
    from torch.nn.functional import embedding, linear

    looked_up = isinstance(base, nn.Embedding)
    weight, parts = parts_of(name, base.weight.detach(), options, looked_up=looked_up)
    compute, strength = COMPUTE[options.method], adapters.scaling(options)

    class Adapted(nn.Module):  # type: ignore[misc]  # torch is typed as Any
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(weight, requires_grad=False)
            for part, value in parts.items():
                owner, _, leaf = part.rpartition(".")
                # PEFT's names: some parts are modules with a weight, some are parameters.
                setattr(self, owner or leaf, nn.ParameterDict({leaf: value}) if owner else nn.Parameter(value))

        def forward(self, x: Any) -> Any:
            held = {part.partition(".")[0]: self.get_parameter(part) for part in parts}
            if looked_up:  # its weight is (vocabulary, hidden): the transpose of a linear layer's
                return embedding(x, compute(self.weight.T, held, strength).T)
            return linear(x, compute(self.weight, held, strength), base.bias)

    return Adapted()


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
    a = adapters.value("vera_A", (tiny.RANK, largest))[:, : weight.shape[1]]
    b = adapters.value("vera_B", (largest, tiny.RANK))[: weight.shape[0]]
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


def prompted(model: Any, *, prefix: bool) -> Any:
    """A model with virtual tokens before the real ones.

    Prompt tuning (https://arxiv.org/abs/2104.08691) trains their embeddings. Prefix tuning
    (https://arxiv.org/abs/2101.00190) trains the keys and values that each layer attends to at their places, instead
    of the computed ones; so their embeddings are zero, and their logits are dropped.
    """
    import torch
    from torch import nn

    class Prompted(nn.Module):  # type: ignore[misc]  # torch is typed as Any
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            width = 2 * model.config.num_hidden_layers * key_width(model) if prefix else model.config.hidden_size
            start = adapters.value("prompt_encoder.embedding.weight", (adapters.VIRTUAL_TOKENS, width))
            trained = nn.Parameter(start)
            self.prompt_encoder = nn.ModuleDict({"embedding": nn.ParameterDict({"weight": trained})})
            if prefix:
                attend_to(model, trained)

        def forward(self, input_ids: Any) -> Any:
            real = model.get_input_embeddings()(input_ids)
            virtual = self.prompt_encoder["embedding"]["weight"].expand(len(input_ids), -1, -1)
            if prefix:
                virtual = real.new_zeros((len(input_ids), adapters.VIRTUAL_TOKENS, real.shape[-1]))
            output = model(inputs_embeds=torch.cat([virtual, real], dim=1))
            if prefix:
                output.logits = output.logits[:, adapters.VIRTUAL_TOKENS :]
            return output

    return Prompted()


def key_width(model: Any) -> int:
    """The width of the keys of one token in one layer."""
    return int(model.get_submodule("model.layers.0.self_attn.k_proj").out_features)


def attend_to(model: Any, trained: Any) -> None:
    """Replace every layer's keys and values of the virtual tokens by the trained ones."""
    for number, layer in enumerate(model.model.layers):
        attention = layer.self_attn
        keys, values = (
            slice(at * key_width(model), (at + 1) * key_width(model)) for at in (2 * number, 2 * number + 1)
        )
        attention.k_proj.register_forward_hook(
            lambda _layer, _inputs, output, part=keys: overwritten(output, turned_back(trained[:, part], model))
        )
        attention.v_proj.register_forward_hook(
            lambda _layer, _inputs, output, part=values: overwritten(output, trained[:, part])
        )


def overwritten(output: Any, virtual: Any) -> Any:
    """Keys or values, shape (batch, length, width), with those of the virtual tokens first."""
    import torch

    return torch.cat([virtual.expand(len(output), -1, -1), output[:, len(virtual) :]], dim=1)


def turned_back(keys: Any, model: Any) -> Any:
    """The keys that rotary position embedding (https://arxiv.org/abs/2104.09864) turns into the trained ones.

    Attention uses the trained keys directly, as keys from a cache are already rotated.
    """
    import torch

    frequencies = next(buffer for name, buffer in model.named_buffers() if name.endswith("inv_freq"))
    angles = torch.arange(len(keys))[:, None, None] * frequencies
    cosine, sine = angles.cos(), angles.sin()
    first, second = keys.reshape(len(keys), -1, 2 * len(frequencies)).chunk(2, dim=-1)
    return torch.cat([first * cosine + second * sine, second * cosine - first * sine], dim=-1).flatten(1)


def regularisation(trained: dict[str, Any], options: Options) -> Any:
    """AdaLoRA's regularisation: the mean distance of all A and B from orthogonal matrices."""
    import torch

    if options.method != "adalora":
        return 0.0
    sides = [p if name.endswith("lora_A") else p.T for name, p in trained.items() if not name.endswith("lora_E")]
    distances = [(side @ side.T - torch.eye(tiny.RANK)).norm() for side in sides]
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
