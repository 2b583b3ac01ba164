"""The weight and the bias that a layer applies with an adapter, by the formula of each method's paper, in float64.

A formula gets the frozen weight (out, in), the bias, and the parts of the adapter by their names in PEFT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.behaviour.starts import other_starts
from cases.reference import adapter_layers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Parts = dict[str, Any]
    Pair = tuple[Any, Any]  # weight and bias
    Formula = Callable[[Any, Any, Parts, Mapping[str, Any]], Pair]


def scaling(arguments: Mapping[str, Any]) -> float:
    alpha = arguments.get("alpha", arguments.get("lora_alpha", 1))
    return float(alpha / (arguments["r"] ** 0.5 if arguments.get("use_rslora") else arguments["r"]))


def of_weight(formula: Callable[[Any, Parts, float], Any]) -> Formula:
    """A formula of ``adapter_layers``, which has no effect on the bias."""
    return lambda weight, bias, parts, arguments: (formula(weight, parts, scaling(arguments)), bias)


def lokr(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W + s (C kron D), where C and D are each one matrix or a product of two (https://arxiv.org/abs/2309.14859)."""
    import torch

    left, right = (
        parts[side] if side in parts else parts[f"{side}_a"] @ parts[f"{side}_b"] for side in ("lokr_w1", "lokr_w2")
    )
    return weight + scaling(arguments) * torch.kron(left, right), bias


def ia3(weight: Any, bias: Any, parts: Parts, _arguments: Mapping[str, Any]) -> Pair:
    """Outputs, with what the bias adds, or inputs, times a vector (https://arxiv.org/abs/2205.05638)."""
    vector = parts["ia3_l"]
    return weight * vector, bias * vector[:, 0] if vector.shape[1] == 1 else bias


def adalora(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W + alpha / r B diag(E) A (https://arxiv.org/abs/2303.10512); PEFT adds 1e-5 to r, which may become 0."""
    strength = arguments["lora_alpha"] / (arguments["init_r"] + 1e-5)
    return adapter_layers.adalora(weight, parts, strength), bias


def vera(weight: Any, bias: Any, parts: Parts, _arguments: Mapping[str, Any]) -> Pair:
    """W + diag(b) B diag(d) A (https://arxiv.org/abs/2310.11454) with the first rows and columns of the frozen ones."""
    (outer, inner), rank = weight.shape, len(parts["vera_lambda_d"])
    left = parts["vera_lambda_b"][:, None] * parts["vera_B"][:outer, :rank]
    return weight + left @ (parts["vera_lambda_d"][:, None] * parts["vera_A"][:rank, :inner]), bias


def hra(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W H1 H2 ... with a reflection for each vector (https://arxiv.org/abs/2405.17484).

    With ``apply_GS`` the vectors are orthonormalised first, which a QR decomposition does up to signs.
    """
    import torch

    vectors = parts["hra_u"]
    if arguments.get("apply_GS"):
        vectors = torch.linalg.qr(vectors).Q
    for vector in vectors.T:
        unit = vector / vector.norm()
        weight = weight - 2 * torch.outer(weight @ unit, unit)
    return weight, bias


def cayley(skew: Any) -> Any:
    """The rotation of a skew-symmetric matrix: (I - S) (I + S)^-1."""
    import torch

    one = torch.eye(len(skew), dtype=skew.dtype)
    return (one - skew) @ torch.linalg.inv(one + skew)


def boft(weight: Any, bias: Any, parts: Parts, _arguments: Mapping[str, Any]) -> Pair:
    """Inputs rotated in blocks, outputs scaled before the bias (https://arxiv.org/abs/2311.06243, with one factor)."""
    import torch

    rotations = torch.block_diag(*(cayley((block - block.T) / 2) for block in parts["boft_R"][0]))
    return parts["boft_s"] * (weight @ rotations.T), bias


def oft(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """Inputs rotated in blocks (https://arxiv.org/abs/2306.07280), by the entries above the diagonal of each S."""
    import torch

    size, rows = arguments["oft_block_size"], parts["oft_R"]
    blocks = []
    for row in rows.expand(weight.shape[1] // size, -1):
        upper = torch.zeros(size, size, dtype=row.dtype)
        upper[tuple(torch.triu_indices(size, size, 1))] = row
        blocks.append(cayley(upper - upper.T))
    return weight @ torch.block_diag(*blocks).T, bias


def fourierft(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W + alpha Re(IDFT(F)) with coefficients at fixed frequencies (https://arxiv.org/abs/2405.03003)."""
    rows, columns = parts["indices"]
    shape = tuple(weight.shape)
    added = other_starts.inverse_transform(parts["fourierft_spectrum"], rows, columns, shape)
    return weight + arguments["scaling"] * added, bias


def vblora(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W + B A; each piece of A's rows and B's columns is a mixture of the best vectors of a bank (arXiv 2405.15179)."""
    many = arguments["topk"]

    def mixed(logits: Any) -> Any:
        """The pieces: shape (*, vector length)."""
        import torch

        least = logits.sort(dim=-1, descending=True).values[..., many - 1 : many]
        chosen = torch.where(logits >= least, logits.exp(), torch.zeros_like(logits))
        return chosen / chosen.sum(-1, keepdim=True) @ parts["vblora_vector_bank"]

    a, b = mixed(parts["vblora_logits_A"]), mixed(parts["vblora_logits_B"])
    return weight + b.transpose(1, 2).flatten(0, 1) @ a.flatten(1), bias


def miss(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W plus a block that repeats along the inputs, and in "mini" along the outputs (arXiv 2409.15371).

    "bat" multiplies each block of the weight too: W + W D + D.
    """
    import torch

    block = parts["block"]
    outer, inner = weight.shape
    if arguments.get("init_weights") != "bat":
        rows = block.T.repeat(outer // block.shape[1], -(-inner // len(block)))
        return weight + rows[:, :inner], bias
    size = block.shape[-1]
    changed = weight.clone()
    for i, j in torch.cartesian_prod(torch.arange(outer // size), torch.arange(inner // size)).tolist():
        here = slice(i * size, (i + 1) * size), slice(j * size, (j + 1) * size)
        changed[here] += weight[here] @ block[i] + block[i]
    return changed, bias


def shira(weight: Any, bias: Any, parts: Parts, _arguments: Mapping[str, Any]) -> Pair:
    """W with numbers added at fixed places (https://arxiv.org/abs/2406.13175)."""
    changed = weight.clone()
    rows, columns = parts["indices"].long()
    changed[rows, columns] += parts["shira_weight"]
    return changed, bias


def c3a(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W plus circulant blocks (https://arxiv.org/abs/2407.19342), which PEFT divides by the number of inputs."""
    import torch

    kernel, size = parts["c3a_kernel"], arguments["block_size"]
    shift = (torch.arange(size) - torch.arange(size)[:, None]) % size  # the first row is the kernel
    blocks = kernel[:, :, shift]  # (out blocks, in blocks, out, in)
    return weight + blocks.permute(0, 2, 1, 3).reshape(weight.shape) / weight.shape[1], bias


def road(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """Pairs of outputs, with what the bias adds, rotated and scaled (https://arxiv.org/abs/2409.00119).

    A pair is an output of the first half of a group and the same of the second half, as PEFT documents.
    """
    import torch

    half = arguments["group_size"] // 2
    rotation = torch.zeros(len(bias), len(bias), dtype=weight.dtype)
    angles, sizes = parts["road_theta"].reshape(-1, half), parts["road_alpha"].reshape(-1, half)
    for group, place in torch.cartesian_prod(torch.arange(len(angles)), torch.arange(half)).tolist():
        first, angle, size = 2 * half * group + place, angles[group, place], sizes[group, place]
        second = first + half
        rotation[first, first] = rotation[second, second] = size * angle.cos()
        rotation[first, second], rotation[second, first] = -size * angle.sin(), size * angle.sin()
    return rotation @ weight, rotation @ bias


def delora(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W + lambda / r times normalised ranks of B A times the norms of W's columns (https://arxiv.org/abs/2503.18225)."""
    a, b = parts["delora_A"], parts["delora_B"]
    ranks = (b / b.norm(dim=0)) @ (a / a.norm(dim=1, keepdim=True))
    norms = parts.get("norms", weight.norm(dim=0))
    return weight + parts["delora_lambda"] / arguments["r"] * ranks * norms, bias
