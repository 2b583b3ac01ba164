"""Which modules an adapter is put on, and with which rank and scaling, as the fields of LoraConfig select them.

The expected layers are named by hand, after the documentation of the fields
(https://huggingface.co/docs/peft/package_reference/lora#peft.LoraConfig).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import NEAR, Adapter
from cases.model import architectures, tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

SELECTING = "Choosing an adapter's modules"
RANK, ALPHA = 4, 12
USUAL = (RANK, ALPHA / RANK)
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")


def attention(number: int, *parts: str) -> list[str]:
    return [f"model.layers.{number}.self_attn.{part}" for part in parts]


def feed_forward(number: int, *parts: str) -> list[str]:
    return [f"model.layers.{number}.mlp.{part}" for part in parts]


def ranks(model: Any, name: str = "first") -> dict[str, int]:
    """The rank of each layer with an adapter, by the shapes of its A and B."""
    found: dict[str, list[int]] = {}
    for parameter, value in tiny.named(model):
        layer, mark, side = parameter.partition(".lora_")
        if mark and name in side.split("."):
            found.setdefault(layer, []).append(value.shape[0 if "A." in side else 1])
    return {layer: sizes[0] if len(set(sizes)) == 1 else -1 for layer, sizes in found.items()}


def selected(
    ctx: Context, placed: Mapping[str, tuple[int, float]], model: str = "llama", *, tied: bool = False, **more: Any
) -> Iterator[Check]:
    """Compare the adapted layers, their ranks, and the logits of the adapted model."""
    adapter = Adapter(name="first", rank=RANK, alpha=ALPHA, more=more)
    made = reference.adapted(ctx, adapter, model=model, tied=tied).eval()
    yield from as_placed(made, placed, reference.read(ctx, model, tied=tied))


def as_placed(model: Any, placed: Mapping[str, tuple[int, float]], base: reference.Base) -> Iterator[Check]:
    found = ranks(model)
    yield equal("layers adapted or left out by mistake", reference.written(found.keys() ^ placed.keys()), "none")
    yield equal(
        "layers of another rank", reference.written(n for n in found if placed.get(n, (0,))[0] != found[n]), "none"
    )
    yield at_most("logits off", relative(reference.logits(model), base.logits(base.update("first", placed))), NEAR)


@call(SELECTING, phase=Phase.ADAPT)
def target_by_names(ctx: Context) -> Iterator[Check]:
    """target_modules as a list selects modules by whole last names, or by a full name."""
    placed = [*attention(0, "k_proj"), *attention(1, "k_proj", "q_proj"), *feed_forward(0, "down_proj")]
    targets = ["k_proj", "layers.1.self_attn.q_proj", "model.layers.0.mlp.down_proj", "up", "v_proj.weight"]
    yield from selected(ctx, dict.fromkeys(placed, USUAL), target_modules=targets)


@call(SELECTING, phase=Phase.ADAPT)
def target_by_expression(ctx: Context) -> Iterator[Check]:
    """target_modules as a string is a regular expression that matches a module's whole name."""
    placed = [*attention(1, "q_proj", "v_proj"), *feed_forward(0, "up_proj")]
    expression = r".*\.1\.self_attn\.[qv]_proj|model\.layers\.0\.mlp\.up_proj|.*\.k_pro|layers\.0\.mlp\.gate_proj"
    yield from selected(ctx, dict.fromkeys(placed, USUAL), target_modules=expression)


def every_linear() -> list[str]:
    """The linear layers of the model but its head."""
    return [name for n in range(tiny.LAYERS) for name in (*attention(n, *ATTENTION), *feed_forward(n, *FEED_FORWARD))]


@call(SELECTING, phase=Phase.ADAPT)
def target_all_linear(ctx: Context) -> Iterator[Check]:
    """target_modules="all-linear" selects every linear layer but the head."""
    yield from selected(ctx, dict.fromkeys(every_linear(), USUAL), target_modules="all-linear")


@call(SELECTING, phase=Phase.ADAPT)
def target_all_transposed(ctx: Context) -> Iterator[Check]:
    """target_modules="all-linear" selects every Conv1D layer of GPT-2, and not its head."""
    yield from all_transposed(ctx, tied=False)


def all_transposed(ctx: Context, *, tied: bool) -> Iterator[Check]:
    parts = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    placed = [f"transformer.h.{number}.{part}" for number in range(tiny.LAYERS) for part in parts]
    more: dict[str, Any] = {"target_modules": "all-linear", "fan_in_fan_out": True}
    yield from selected(ctx, dict.fromkeys(placed, USUAL), "gpt2", tied=tied, **more)


@call(SELECTING, phase=Phase.ADAPT)
def target_all_linear_tied(ctx: Context) -> Iterator[Check]:
    """target_modules="all-linear" leaves out a head that shares its matrix with the embeddings, of Llama."""
    yield from selected(ctx, dict.fromkeys(every_linear(), USUAL), tied=True, target_modules="all-linear")


@call(SELECTING, phase=Phase.ADAPT)
def target_all_transposed_tied(ctx: Context) -> Iterator[Check]:
    """target_modules="all-linear" leaves out a head that shares its matrix with the embeddings, of GPT-2."""
    yield from all_transposed(ctx, tied=True)


@call(SELECTING, phase=Phase.ADAPT)
def target_all_linear_classifier(ctx: Context) -> Iterator[Check]:
    """target_modules="all-linear" leaves out the head of a classifier of sequences, which trains as a whole.

    Only names are compared; no outputs are.
    """
    from peft import get_peft_model
    from transformers import AutoModelForSequenceClassification

    folder = architectures.plain_checkpoint(ctx.cache)
    base = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3)
    more = {"task_type": "SEQ_CLS", "target_modules": "all-linear"}
    config = Adapter(name="first", rank=RANK, alpha=ALPHA, more=more).config()
    model = get_peft_model(base, config, adapter_name="first")
    wrong = ranks(model).keys() ^ {*every_linear()}
    yield equal("layers adapted or left out by mistake", reference.written(wrong), "none")
    heads = {name for name in reference.trained(model) if ".lora_" not in name}
    yield equal("other weights that train", reference.written(heads), "score.first.weight")  # the adapter's copy of it


@call(SELECTING, phase=Phase.ADAPT)
def target_all_linear_twice(ctx: Context) -> Iterator[Check]:
    """A second adapter with target_modules="all-linear" selects the layers of the base, not those of the first."""
    base = reference.read(ctx)
    first = Adapter(name="other", rank=2, alpha=2, targets=("q_proj",))
    model = reference.adapted(
        ctx, first, Adapter(name="first", rank=RANK, alpha=ALPHA, more={"target_modules": "all-linear"})
    )
    model.set_adapter("first")
    yield from as_placed(model.eval(), dict.fromkeys(every_linear(), USUAL), base)


@call(SELECTING, phase=Phase.ADAPT, requires=("exclude_modules",))
def exclude_by_names(ctx: Context) -> Iterator[Check]:
    """exclude_modules as a list leaves out modules by their last names, or by a full name."""
    placed = [*attention(0, "q_proj"), *attention(1, "q_proj", "o_proj")]
    more: dict[str, Any] = {
        "target_modules": list(ATTENTION),
        "exclude_modules": ["k_proj", "v_proj", "model.layers.0.self_attn.o_proj"],
    }
    yield from selected(ctx, dict.fromkeys(placed, USUAL), **more)


@call(SELECTING, phase=Phase.ADAPT, requires=("exclude_modules",))
def exclude_by_expression(ctx: Context) -> Iterator[Check]:
    """exclude_modules as a string is a regular expression that matches a module's whole name, even for all-linear."""
    placed = [*attention(0, *ATTENTION), *feed_forward(0, "down_proj"), *feed_forward(1, "down_proj")]
    more: dict[str, Any] = {
        "target_modules": "all-linear",
        "exclude_modules": r".*\.1\.self_attn\..*|.*\.(gate|up)_proj|.*down",
    }
    yield from selected(ctx, dict.fromkeys(placed, USUAL), **more)


@call(SELECTING, phase=Phase.ADAPT)
def transform_one_layer(ctx: Context) -> Iterator[Check]:
    """layers_to_transform as a number adapts the modules of that layer only."""
    placed = [*attention(1, "q_proj"), *feed_forward(1, "down_proj")]
    more: dict[str, Any] = {"target_modules": ["q_proj", "down_proj"], "layers_to_transform": 1}
    yield from selected(ctx, dict.fromkeys(placed, USUAL), **more)


@call(SELECTING, phase=Phase.ADAPT)
def transform_first_layer(ctx: Context) -> Iterator[Check]:
    """layers_to_transform with layers_pattern adapts the listed layers, the one with number 0 too."""
    placed = [*attention(0, "q_proj"), *feed_forward(0, "down_proj")]
    more: dict[str, Any] = {
        "target_modules": ["q_proj", "down_proj"],
        "layers_to_transform": [0, 5],
        "layers_pattern": "layers",
    }
    yield from selected(ctx, dict.fromkeys(placed, USUAL), **more)


def experts() -> Any:
    """Two layers of three experts, each expert a linear layer."""
    import torch

    def layer() -> Any:
        layers = (torch.nn.ModuleDict({"w1": torch.nn.Linear(8, 8)}) for _ in range(3))
        return torch.nn.ModuleDict({"experts": torch.nn.ModuleList(layers)})

    return torch.nn.ModuleDict({"model": torch.nn.ModuleDict({"layers": torch.nn.ModuleList([layer(), layer()])})})


def transformed_experts(**more: Any) -> Iterator[Check]:
    from peft import LoraConfig, get_peft_model

    names = [f"model.layers.1.experts.{number}.w1" for number in range(3)]
    config = LoraConfig(target_modules=["w1"], layers_to_transform=[1], **more)
    model = get_peft_model(experts(), config)
    found = {
        name.removeprefix("base_model.model.").partition(".lora_")[0]
        for name, p in model.named_parameters()
        if p.requires_grad
    }
    yield equal("layers adapted or left out by mistake", reference.written(found ^ set(names)), "none")


@call(SELECTING, phase=Phase.ADAPT)
def transform_layer_of_experts(ctx: Context) -> Iterator[Check]:
    """layers_to_transform counts layers, not the experts inside them."""
    del ctx
    yield from transformed_experts()


@call(SELECTING, phase=Phase.ADAPT)
def transform_layer_by_pattern(ctx: Context) -> Iterator[Check]:
    """layers_to_transform with layers_pattern counts the layers that it names, not the experts inside them."""
    del ctx
    yield from transformed_experts(layers_pattern="layers")


@call(SELECTING, phase=Phase.ADAPT)
def ranks_and_alphas_by_pattern(ctx: Context) -> Iterator[Check]:
    """rank_pattern and alpha_pattern give modules another rank or alpha; a module may have one, both or none."""
    ordinary, wide = attention(0, "v_proj"), attention(1, "v_proj")
    both = feed_forward(1, "down_proj")
    placed = {
        **dict.fromkeys([*ordinary, *feed_forward(0, "down_proj")], USUAL),
        **dict.fromkeys(attention(0, "q_proj") + attention(1, "q_proj"), (2, ALPHA / 2)),
        **dict.fromkeys(wide, (RANK, 20 / RANK)),
        **dict.fromkeys(both, (8, 24 / 8)),
    }
    full = "model.layers.1.mlp.down_proj"
    more: dict[str, Any] = {
        "target_modules": ["q_proj", "v_proj", "down_proj"],
        "rank_pattern": {"q_proj": 2, full: 8},
        "alpha_pattern": {"layers.1.self_attn.v_proj": 20, full: 24},
    }
    yield from selected(ctx, placed, **more)


@call(SELECTING, phase=Phase.ADAPT)
def alpha_by_another_pattern(ctx: Context) -> Iterator[Check]:
    """alpha_pattern applies to a module that rank_pattern names by another expression."""
    placed = {
        **dict.fromkeys(attention(0, "q_proj"), (2, ALPHA / 2)),
        **dict.fromkeys(attention(1, "q_proj"), (2, 10.0)),
    }
    more: dict[str, Any] = {
        "target_modules": ["q_proj"],
        "rank_pattern": {"q_proj": 2},
        "alpha_pattern": {"1.self_attn.q_proj": 20},
    }
    yield from selected(ctx, placed, **more)


@call(SELECTING, phase=Phase.ADAPT, requires=("anchored_patterns",))
def ranks_by_anchored_pattern(ctx: Context) -> Iterator[Check]:
    """A key of rank_pattern that begins with ^ matches a module's name from its start."""
    placed = {name: USUAL for n in range(tiny.LAYERS) for name in attention(n, "q_proj")}
    placed |= {attention(1, "q_proj")[0]: (8, ALPHA / 8)}
    more: dict[str, Any] = {
        "target_modules": ["q_proj"],
        "rank_pattern": {r"^model.layers.1.self_attn.q_proj": 8, "^q_proj": 2},
    }
    yield from selected(ctx, placed, **more)


@call(SELECTING, phase=Phase.ADAPT)
def ranks_with_rslora(ctx: Context) -> Iterator[Check]:
    """With use_rslora, a rank of rank_pattern divides by its own square root."""
    placed = {
        **dict.fromkeys(attention(0, "q_proj"), (2, ALPHA / 2**0.5)),
        **dict.fromkeys(attention(1, "q_proj"), (4, 6.0)),
    }
    more: dict[str, Any] = {
        "target_modules": ["q_proj"],
        "rank_pattern": {"layers.0.self_attn.q_proj": 2},
        "use_rslora": True,
    }
    yield from selected(ctx, placed, **more)


@call(SELECTING, phase=Phase.ADAPT, requires=("parameter_targets",))
def target_two_parameters(ctx: Context) -> Iterator[Check]:
    """target_parameters adapts exactly the named parameters, with the ranks of rank_pattern."""
    base = reference.read(ctx)
    placed = dict.fromkeys(
        [*attention(0, "q_proj"), *feed_forward(0, "down_proj"), *feed_forward(1, "down_proj")], USUAL
    )
    more: dict[str, Any] = {
        "target_modules": [],
        "target_parameters": ["0.self_attn.q_proj.weight", "down_proj.weight"],
    }
    model = reference.adapted(ctx, Adapter(name="first", rank=RANK, alpha=ALPHA, more=more)).eval()
    yield from as_placed(model, placed, base)
    merged = model.merge_and_unload()
    expected = base.logits(base.update("first", placed))
    yield at_most("merged logits off", relative(reference.logits(merged), expected), reference.MERGED)
