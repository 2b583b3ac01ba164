"""PEFT's adapter configurations, start values, and the parameters that each adapter trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.model import architectures, tiny
from cases.space.options import DECOMPOSED, PROMPTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.space.options import Options

VIRTUAL_TOKENS = 4
LOKR_RANK = 2  # a Kronecker factor is 8 x 8: a rank of 8 would be no decomposition
# AdaLoRA drops a quarter of its ranks after the second of three steps, so that the third one trains what is left. The
# regularisation's default weight.
KEPT_RANK, BUDGET_STEP, ORTHOGONAL = 6, 1, 0.5
FEEDFORWARD = ("down_proj",)  # where (IA)^3 scales what goes in instead of what comes out
# Others have lora_alpha = 2 r. With rsLoRA's square root that would triple every weight; LoftQ's start takes alpha = r.
ALPHA = {"rslora": tiny.RANK, "loftq": tiny.RANK}

LORA: Mapping[str, Any] = {"r": tiny.RANK, "lora_dropout": 0.0}
CONFIGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "lora": ("LoraConfig", LORA),
    "rslora": ("LoraConfig", {**LORA, "use_rslora": True}),
    "dora": ("LoraConfig", {**LORA, "use_dora": True}),
    "pissa": ("LoraConfig", {**LORA, "init_lora_weights": "pissa"}),
    "olora": ("LoraConfig", {**LORA, "init_lora_weights": "olora"}),
    "loftq": ("LoraConfig", {**LORA, "init_lora_weights": "loftq", "loftq_config": {"loftq_bits": 4, "loftq_iter": 1}}),
    "loha": ("LoHaConfig", {"r": tiny.RANK, "alpha": int(tiny.SCALING * tiny.RANK)}),
    "lokr": ("LoKrConfig", {"r": LOKR_RANK, "alpha": int(tiny.SCALING * LOKR_RANK)}),
    "ia3": ("IA3Config", {"feedforward_modules": list(FEEDFORWARD)}),
    "adalora": (
        "AdaLoraConfig",
        {
            "init_r": tiny.RANK,
            "target_r": KEPT_RANK,
            "tinit": 0,
            "tfinal": tiny.STEPS - BUDGET_STEP,
            "total_step": tiny.STEPS,
            "orth_reg_weight": ORTHOGONAL,
        },
    ),
    "vera": ("VeraConfig", {"r": tiny.RANK}),
    "prompt": ("PromptTuningConfig", {"num_virtual_tokens": VIRTUAL_TOKENS}),
    "prefix": ("PrefixTuningConfig", {"num_virtual_tokens": VIRTUAL_TOKENS}),
}

# The parameters that an adapter trains in each layer; for prompts, all there are.
PARTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("lora", "rslora", *DECOMPOSED), ("lora_A", "lora_B")),
    "dora": ("lora_A", "lora_B", "lora_magnitude_vector"),
    "loha": ("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b"),
    "lokr": ("lokr_w1", "lokr_w2_a", "lokr_w2_b"),
    "ia3": ("ia3_l",),
    "adalora": ("lora_A", "lora_B", "lora_E"),
    "vera": ("vera_lambda_b", "vera_lambda_d"),
    **dict.fromkeys(PROMPTS, ("prompt_encoder",)),
}
MODULES_TO_SAVE = {"none": (), "lm_head": ("lm_head.weight",)}
EMBEDDING_PARAMETERS = ("model.embed_tokens.lora_embedding_A", "model.embed_tokens.lora_embedding_B")


def config(options: Options) -> Any:
    """PEFT's configuration of the method."""
    import peft

    name, arguments = CONFIGS[options.method]
    of_model = architectures.adapter_arguments(options)
    if options.method in PROMPTS:
        return getattr(peft, name)(task_type=of_model["task_type"], **arguments)
    return getattr(peft, name)(**{**of_model, **arguments, **placed(options)})


def placed(options: Options) -> dict[str, Any]:
    """The target modules, modules to save, and alpha of a configuration."""
    targets = [
        *architectures.spec(options).targets,
        *(["embed_tokens"] if options.target_embeddings else []),
    ]
    head = {"modules_to_save": ["lm_head"]} if options.modules_to_save == "lm_head" else {}
    return {"target_modules": targets, **head, **alpha(options)}


def alpha(options: Options) -> dict[str, Any]:
    lora = CONFIGS[options.method][0] in ("LoraConfig", "AdaLoraConfig")
    return {"lora_alpha": ALPHA.get(options.method, int(tiny.SCALING * tiny.RANK))} if lora else {}


def scaling(options: Options) -> float:
    """The scaling of an adapter's update: alpha / r, for rsLoRA (https://arxiv.org/abs/2312.03732) alpha / √r."""
    strength = ALPHA.get(options.method, tiny.SCALING * tiny.RANK)
    if options.method == "adalora":
        return strength / (tiny.RANK + 1e-5)  # PEFT guards against a rank of 0
    return float(strength / (tiny.RANK**0.5 if options.method == "rslora" else tiny.RANK))


def value(name: str, shape: tuple[int, ...]) -> Any:
    """The start value of a part of an adapter: about as large as LoRA's effect, and exact in every dtype."""
    import torch

    found = tiny.values(name, shape)
    part = name.removesuffix(".weight").rpartition(".")[2]
    if part in ("ia3_l", "lora_E"):  # near 1
        found = (1 + found).to(torch.bfloat16).float()
    if name.endswith((".lora_A", ".lora_B", ".lora_E")):  # AdaLoRA's: no doubt which ranks are least
        narrow = found if shape[0] == tiny.RANK else found.T
        narrow[KEPT_RANK:] /= 8
    return found * FACTORS.get(part, 1)


FACTORS = {
    **dict.fromkeys((*PARTS["loha"], *PARTS["lokr"]), 2),
    **dict.fromkeys((*PARTS["vera"], "vera_B"), 4),
    **dict.fromkeys(("lora_embedding_A", "lora_embedding_B"), 0.25),
}


def after_step(model: Any, options: Options, step: int) -> None:
    """Call what PEFT requires between an optimiser's step and ``zero_grad``."""
    if options.method == "adalora":
        model.base_model.update_and_allocate(step)


def expected_on_disk(tensors: dict[str, Any], options: Options) -> dict[str, Any]:
    """The trained tensors that a checkpoint must hold: all, for AdaLoRA only the remaining ranks."""
    if options.method != "adalora":
        return tensors
    left = {
        name.rpartition(".")[0]: (tensor != 0).reshape(-1)
        for name, tensor in tensors.items()
        if name.endswith(".lora_E")
    }
    return {name: ranks_of(tensor, left[name.rpartition(".")[0]], name) for name, tensor in tensors.items()}


def ranks_of(tensor: Any, left: Any, name: str) -> Any:
    return tensor[:, left] if name.endswith(".lora_B") else tensor[left]


def promised_on_disk(options: Options) -> set[str]:
    """Untrained tensors that PEFT saves by documentation: VeRA's projections, and adapted embeddings."""
    if options.method == "vera":
        return {"vera_A", "vera_B"}
    return {"model.embed_tokens.weight"} if options.target_embeddings else set()
