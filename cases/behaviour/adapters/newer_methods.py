"""Methods that PEFT has since 2025: their formulas, the settings of two adapters, and their frozen numbers.

A formula gets the frozen weight (out, in), the bias, and the parts of the adapter by their names in PEFT, as those in
``cases.behaviour.adapters.methods.formulas`` do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.behaviour.adapters.methods.formulas import Pair, Parts


def randlora(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W plus alpha / r times a sum of B diag(l) A diag(g), or its transpose (https://arxiv.org/abs/2502.00987).

    A has as many columns as the layer's smaller side, each B as many rows as its larger one. PEFT takes the columns of
    all B, which are independent random ones, in another order.
    """
    import torch

    small, large = sorted(weight.shape)
    scales, widths = parts["randlora_lambda"], parts["randlora_gamma"]  # (r, number of B), (number of B, columns)
    columns = parts["randlora_B"][:large, : len(widths)].reshape(large, *scales.shape)
    added = torch.einsum("orn,rn,rc,nc->oc", columns, scales, parts["randlora_A"][:, 0, :small], widths)
    added = added if weight.shape[0] == large else added.T
    return weight + arguments["randlora_alpha"] / arguments["r"] * added, bias


def hira(weight: Any, bias: Any, parts: Parts, _arguments: Mapping[str, Any]) -> Pair:
    """W plus W times B A, number by number (https://openreview.net/forum?id=TwJrTz9cRS)."""
    return weight + weight * (parts["hira_B"] @ parts["hira_A"]), bias


def glora(weight: Any, bias: Any, parts: Parts, _arguments: Mapping[str, Any]) -> Pair:
    """W + W A + B and b + b D + E + W C, where A to E are products, vectors or numbers (arXiv 2306.07967)."""

    def path(side: str) -> Any:
        name = f"glora_{side}_X"
        return parts[f"{name}d"] @ parts[f"{name}u"] if f"{name}d" in parts else parts[name]

    shifted = (weight @ path("C")).flatten()
    return weight + weight * path("A") + path("B"), bias + bias * path("D") + path("E") + shifted


def gralora(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W plus a product of rank r / k in each of k times k blocks, and one of all (https://arxiv.org/abs/2505.20355)."""
    import torch

    count, both = arguments["gralora_k"], arguments.get("hybrid_r", 0)
    rank = arguments["r"] // count
    rows = []
    for place, below in enumerate(parts["gralora_B"]):  # (r, out / k) of each block of outputs
        blocks = [
            below[rank * number : rank * (number + 1)].T @ above[:, rank * place : rank * (place + 1)].T
            for number, above in enumerate(parts["gralora_A"])  # (in / k, r) of each block of inputs
        ]
        rows.append(torch.cat(blocks, dim=1))
    added = torch.cat(rows)
    if both:
        added = added + parts["gralora_B_general"] @ parts["gralora_A_general"]
    return weight + arguments["alpha"] / (arguments["r"] + both) * added, bias


def beft(weight: Any, bias: Any, parts: Parts, _arguments: Mapping[str, Any]) -> Pair:
    """W and b + c, where c alone trains (https://huggingface.co/docs/peft/package_reference/beft)."""
    return weight, bias + parts["beft_bias"].flatten()


def peanut(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W plus a network of its columns, whose decoders add what the encoders got (https://arxiv.org/abs/2410.01870)."""
    import torch

    hidden = torch.relu(weight.T @ parts["peanut_A"].T)
    given = []
    for place in range(arguments["depth"]):
        given.append(hidden)
        hidden = torch.relu(hidden @ parts[f"peanut_encoders_{place}"].T)
    for place in range(arguments["depth"]):
        hidden = torch.relu(hidden @ parts[f"peanut_decoders_{place}"].T) + given.pop()
    return weight + arguments["scaling"] * (hidden @ parts["peanut_B"].T).T, bias


def pvera(weight: Any, bias: Any, parts: Parts, _arguments: Mapping[str, Any]) -> Pair:
    """VeRA whose first ranks are the mean, which it applies in evaluation; the others are logarithms of variances.

    https://huggingface.co/docs/peft/package_reference/pvera
    """
    (outer, inner), rank = weight.shape, len(parts["pvera_lambda_d"]) // 2
    left = parts["pvera_lambda_b"][:, None] * parts["pvera_B"][:outer]
    return weight + left @ (parts["pvera_lambda_d"][:rank, None] * parts["pvera_A"][:rank, :inner]), bias


def unilora(weight: Any, bias: Any, parts: Parts, _arguments: Mapping[str, Any]) -> Pair:
    """W + B A, whose numbers are those of one vector over the root of how often each is used (arXiv 2506.00799)."""
    a, b = (parts["unilora_vector"][parts[f"indices_{side}"]] for side in "AB")
    return weight + b @ a, bias


def psoft(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W plus U S (b R a - 1) V, of its largest singular values, R a rotation (openreview.net/forum?id=FSHrinMArK).

    A rotation mixes singular vectors, whose signs are those of a decomposition in float32.
    """
    import torch

    rank, rows = arguments["r"], parts["psoft_R"]
    left, values, right = (each.to(weight.dtype) for each in torch.linalg.svd(weight.float(), full_matrices=False))
    one, upper = torch.eye(rank, dtype=rows.dtype), torch.triu_indices(rank, rank, 1).tolist()
    skew = torch.zeros_like(one).index_put((torch.tensor(upper[0]), torch.tensor(upper[1])), rows)
    skew = skew - skew.T
    rotation = (one + skew) @ torch.linalg.inv(one - skew)
    scaled = parts["psoft_R_vector_b"][:, None] * rotation * parts["psoft_R_vector_a"]
    return weight + left[:, :rank] * values[:rank] @ (scaled - one) @ right[:rank], bias


def deft(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W without what lies along the columns of P, which get R instead, as PEFT documents it.

    https://huggingface.co/docs/peft/package_reference/deft
    """
    import torch

    given, rank = parts["deft_P"], arguments["r"]
    if arguments.get("decomposition_method") == "qr":
        given = along = torch.linalg.qr(given).Q
    else:
        along = torch.relu(given)
    scaling = arguments["alpha"] / rank if "alpha" in arguments else 1.0
    return weight + given @ (scaling * parts["deft_R"] - along.T @ weight), bias


def waveft(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W plus few coefficients, also of Haar's wavelets: sums and differences of four numbers (arXiv 2505.12532)."""
    import torch

    coefficients = torch.zeros_like(weight).index_put(tuple(parts["waveft_indices"]), parts["waveft_spectrum"])
    if not arguments.get("use_idwt", True):
        return weight + arguments["scaling"] * coefficients, bias
    (top, bottom), added = coefficients.chunk(2), torch.zeros_like(weight)
    (mean, rows), (columns, both) = top.chunk(2, dim=1), bottom.chunk(2, dim=1)
    for down, across in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        corner = (mean + down * rows + across * columns + down * across * both) / 2
        added[(1 - down) // 2 :: 2, (1 - across) // 2 :: 2] = corner
    return weight + arguments["scaling"] * added, bias


def supertuning(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W with numbers added where it is largest or smallest, and with ``r`` alpha / r B A (arXiv 2607.09287)."""
    places = parts["supertuning_indices"].long()
    added = weight.flatten().scatter_add(0, places, parts["supertuning_values"]).view_as(weight)
    if "r" in arguments:
        product = parts["supertuning_lora_B"] @ parts["supertuning_lora_A"]
        added = added + arguments["lora_alpha"] / arguments["r"] * product
    return added, bias


def osf(weight: Any, bias: Any, parts: Parts, arguments: Mapping[str, Any]) -> Pair:
    """W whose smallest singular values and their vectors are trained (https://arxiv.org/abs/2504.07097).

    The decomposition is one in float32, as singular values lie close to each other.
    """
    import torch

    kept = arguments["effective_rank"]
    left, values, right = (each.to(weight.dtype) for each in torch.linalg.svd(weight.float(), full_matrices=False))
    before = left[:, kept:] * values[kept:] @ right[kept:]
    u, s, v = (parts[f"osf_svd_params_{name}_low"] for name in "USV")
    return weight + u * s @ v - before, bias


def tinylora(weight: Any, bias: Any, parts: Parts, _arguments: Mapping[str, Any]) -> Pair:
    """W + B R A of its largest singular values, where a vector weighs fixed matrices to R (arXiv 2602.04118)."""
    import torch

    mixed = torch.einsum("n,nij->ij", parts["tinylora_vector"], parts["tinylora_P"])
    return weight + parts["tinylora_B"] @ mixed @ parts["tinylora_A"], bias


# By method: the fields of ``Method`` in ``cases.behaviour.adapters.methods.layers``.
NEWER: Mapping[str, dict[str, Any]] = {
    "randlora": {
        "config": "RandLoraConfig",
        "formula": randlora,
        "marks": ("randlora_lambda", "randlora_gamma"),
        "both": {"r": 10},
        "first": {"randlora_alpha": 6},
        "second": {"randlora_alpha": 4},
        "times": 4.0,
    },
    "hira": {
        "config": "HiraConfig",
        "formula": hira,
        "marks": ("hira_",),
        "first": {"r": 4},
        "second": {"r": 6},
        "times": 4.0,
        "together": False,  # each multiplies the weight of the base
    },
    "glora": {
        "config": "GloraConfig",
        "formula": glora,
        "marks": ("glora_",),
        "first": {"r": 4, "config_A_B": "lora", "config_C": "lora", "config_D_E": "vector"},
        "second": {"r": 3, "config_A_B": "vector", "config_C": "vector", "config_D_E": "constant"},
        "together": False,  # as HiRA's
    },
    "gralora": {
        "config": "GraloraConfig",
        "formula": gralora,
        "marks": ("gralora_",),
        "first": {"r": 8, "alpha": 6, "gralora_k": 4, "hybrid_r": 3},
        "second": {"r": 4, "alpha": 4, "gralora_k": 2},
        "times": 2.0,
    },
    "beft": {"config": "BeftConfig", "formula": beft, "marks": ("beft_bias",)},
    "peanut": {
        "config": "PeanutConfig",
        "formula": peanut,
        "marks": ("peanut_",),
        "first": {"r": 6, "depth": 2, "scaling": 0.5},
        "second": {"r": 4, "depth": 1, "scaling": 2.0},
        "times": 2.0,
        "together": False,  # each reads the weight of the base
    },
    "psoft": {
        "config": "PsoftConfig",
        "formula": psoft,
        "marks": ("psoft_R",),
        "first": {"r": 6, "psoft_alpha": 8},
        "second": {"r": 4, "psoft_alpha": 4},
        "around": {"vector_": 1.25},
        "times": 2.0,
        "together": False,  # each decomposes the weight of the base
    },
    "deft": {
        "config": "DeftConfig",
        "formula": deft,
        "marks": ("deft_P", "deft_R"),
        "first": {"r": 4, "alpha": 6},
        "second": {"r": 6, "decomposition_method": "qr"},
        "together": False,  # as HiRA's
    },
    "waveft": {
        "config": "WaveFTConfig",
        "formula": waveft,
        "marks": ("waveft_spectrum",),
        "first": {"n_frequency": 300, "scaling": 5.0},
        "second": {"n_frequency": 100, "scaling": 7.0, "use_idwt": False, "random_loc_seed": 5},
    },
    "supertuning": {
        "config": "SupertuningConfig",
        "formula": supertuning,
        "marks": ("supertuning_values", "supertuning_lora_"),
        "first": {"sparsity": 0.98, "r": 4, "lora_alpha": 6},
        "second": {"sparsity": 0.99, "select_top": False},
    },
    "pvera": {
        "config": "PveraConfig",
        "formula": pvera,
        "marks": ("pvera_lambda_",),
        "both": {"r": 8, "d_initial": 0.5},
        "times": 4.0,
    },
}
# The vector belongs to the model, and every layer has it as its own.
UNILORA: Mapping[str, Any] = {
    "config": "UniLoraConfig",
    "formula": unilora,
    "marks": ("unilora_theta_d",),
    "first": {"r": 4, "theta_d_length": 200},
    "second": {"r": 6, "theta_d_length": 150, "proj_seed": 7},
    "times": 40.0,
}
OSF: Mapping[str, Any] = {  # PEFT cannot unmerge it
    "config": "OSFConfig",
    "formula": osf,
    "marks": ("osf_svd_params",),
    "first": {"effective_rank": 90},
    "second": {"effective_rank": 80},
}
TINYLORA: Mapping[str, Any] = {
    "config": "TinyLoraConfig",
    "formula": tinylora,
    "marks": ("tinylora_v",),
    "first": {"r": 4, "u": 13, "weight_tying": 1.0},
    "second": {"r": 3, "u": 7, "projection_seed": 9},
    "times": 4.0,
}


def frozen(tuner: Any, layer: Any, adapter: str) -> dict[str, Any]:
    """The numbers of an adapter that a formula needs beside the layer's trained parts."""
    for key in ("randlora", "pvera"):
        if hasattr(tuner, f"{key}_A"):
            return {f"{key}_{side}": getattr(tuner, f"{key}_{side}")[adapter].double() for side in "AB"}
    if hasattr(layer, "tinylora_P"):
        fixed = {f"tinylora_{each}": getattr(layer, f"tinylora_{each}")[adapter].double() for each in "ABP"}
        (vector,) = tuner.tinylora_v[adapter].parameters()  # which the layers of an adapter share
        return {**fixed, "tinylora_vector": vector.detach().double()}
    for key in ("waveft_indices", "supertuning_indices"):
        if hasattr(layer, key):
            return {key: getattr(layer, key)[adapter]}
    if hasattr(tuner, "unilora_theta_d"):
        return of_unilora(tuner, layer, adapter)
    return {}


def uses_of_unilora(tuner: Any, adapter: str) -> Any:
    """How often the layers of an adapter use each number of its vector."""
    import torch

    places = [
        getattr(each, f"unilora_indices_{side}")[adapter].flatten()
        for each in tuner.modules()
        if hasattr(each, "unilora_indices_A")
        for side in "AB"
        if adapter in getattr(each, f"unilora_indices_{side}")
    ]
    return torch.cat(places).bincount(minlength=len(tuner.unilora_theta_d[adapter]))


def of_unilora(tuner: Any, layer: Any, adapter: str) -> dict[str, Any]:
    """The vector over the roots of how often each of its numbers is used, and the places in it of one layer."""
    vector = tuner.unilora_theta_d[adapter].detach().double() / uses_of_unilora(tuner, adapter).clamp_min(1).sqrt()
    return {
        "unilora_vector": vector,
        **{f"indices_{side}": getattr(layer, f"unilora_indices_{side}")[adapter] for side in "AB"},
    }
