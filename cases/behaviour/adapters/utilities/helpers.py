"""PEFT's helpers around an adapted model: targets by condition numbers, dtypes, signatures and intruder dimensions.

https://huggingface.co/docs/peft/package_reference/helpers
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Utilities of PEFT"
SAME = 1e-4
KAPPAS = {"one": 8.0, "two": 2.0, "three": 64.0, "four": 16.0, "five": 4.0}
EXPERTS = {"experts.gate_up_proj": (3.0, 5.0), "experts.down_proj": (2.0, 4.0), "more.up_proj": (1.5, 90.0)}


def of_condition(kappa: float, rows: int, columns: int, name: str) -> Any:
    """A matrix whose largest singular value is so many times the smallest one."""
    import torch

    left, _, right = torch.linalg.svd(tiny.values(name, (rows, columns)).double(), full_matrices=False)
    values = torch.logspace(0, 1, min(rows, columns), base=1 / kappa, dtype=torch.float64)
    return (left * values @ right).float()


def conditioned() -> Any:
    """Linear layers and stacked experts with the condition numbers above, beside an embedding."""
    import torch

    made = torch.nn.Module()
    made.add_module("words", torch.nn.Embedding(4, 4))
    for number, (name, kappa) in enumerate(KAPPAS.items()):
        layer = torch.nn.Linear(6 + number, 5)
        layer.weight.data.copy_(of_condition(kappa, 5, 6 + number, name))
        made.add_module(name, layer)
    for place in ("experts", "more"):
        made.add_module(place, torch.nn.Module())
    for name, kappas in EXPERTS.items():
        place, part = name.split(".")
        stacked = torch.stack([of_condition(kappa, 4, 6, f"{name} {kappa}") for kappa in kappas])
        made.get_submodule(place).register_parameter(part, torch.nn.Parameter(stacked))
    return made


def in_order(numbers: Mapping[str, float]) -> list[str]:
    return sorted(numbers, key=lambda name: numbers[name])


@call(GROUP, phase=Phase.ADAPT, requires=("kappa_targets",))
def targets_by_condition(_ctx: Context) -> Iterator[Check]:
    """KappaTuneSelector names linear layers and stacked experts by their condition numbers, the least first.

    A share, a number or a bound chooses how many; experts count by the mean of their condition numbers.
    """
    from peft.helpers import KappaTuneSelector, find_kappa_target_modules

    means = {name: sum(kappas) / len(kappas) for name, kappas in EXPERTS.items()}
    selector = KappaTuneSelector(conditioned(), show_progress=False)
    for title, numbers, chosen in (
        ("modules", KAPPAS, selector.get_best_targets),
        ("parameters", means, selector.get_best_target_parameters),
    ):
        ordered = in_order(numbers)
        yield equal(f"all {title}", str(chosen()), str(ordered))
        for share in (0.1, 0.5, 0.7, 1.0):
            count = max(1, int(len(ordered) * share))
            yield equal(f"{title}, {share} of them", str(chosen(top_p=share)), str(ordered[:count]))
        for number in (2, 9):
            yield equal(f"{title}, {number} of them", str(chosen(num_modules=number)), str(ordered[:number]))
        for bound in (3.5, 10.0):
            wanted = [name for name in ordered if numbers[name] <= bound]
            yield equal(f"{title}, of at most {bound}", str(chosen(threshold=bound)), str(wanted))
    found = find_kappa_target_modules(conditioned(), top_p=0.4, show_progress=False)
    both = {"target_modules": in_order(KAPPAS)[:2], "target_parameters": in_order(means)[:1]}
    yield equal("both at once", str(found), str(both))
    small = KappaTuneSelector(conditioned(), max_dim_size_to_analyze=7, show_progress=False)
    yield equal("modules without larger ones", str(small.get_best_targets()), str(in_order({"one": 8.0, "two": 2.0})))
    plain = find_kappa_target_modules(adapted_layers.base(), top_p=1.0, show_progress=False)
    yield equal("parameters of a model without experts", str(plain["target_parameters"]), "None")


@call(GROUP, phase=Phase.ADAPT, requires=("cast_mixed_precision",))
def cast_for_mixed_precision(_ctx: Context) -> Iterator[Check]:
    """cast_mixed_precision_params casts frozen parameters to the dtype and trained ones to float32, values kept."""
    import torch
    from peft.utils.other import cast_mixed_precision_params

    for begin in (torch.float32, torch.bfloat16):
        for dtype in (torch.bfloat16, torch.float16):
            model = adapted_layers.adapted(adapted_layers.base(), adapted_layers.lora()).to(begin)  # adapters too
            before = {name: each.detach().clone() for name, each in model.named_parameters()}
            cast_mixed_precision_params(model, dtype)
            kinds: dict[bool, set[str]] = {each.requires_grad: set() for each in model.parameters()}
            off = 0
            for name, each in model.named_parameters():
                kinds[each.requires_grad].add(str(each.dtype))
                off += not each.equal(before[name].to(each.dtype))
            title = f"{begin} to {dtype}"
            yield equal(f"dtypes of frozen weights, {title}", " ".join(kinds[False]), str(dtype))
            yield equal(f"dtypes of trained weights, {title}", " ".join(kinds[True]), str(torch.float32))
            yield equal(f"weights with other values, {title}", off, 0)


@call(GROUP, phase=Phase.ADAPT)
def signatures_of_the_base(_ctx: Context) -> Iterator[Check]:
    """update_forward_signature and its like give an adapted model the base's signature, and change no result."""
    import peft
    import torch
    from peft import helpers
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = torch.arange(5)[None]
    for title, changed in {"forward": ("forward",), "generate": ("generate",), "all": ("forward", "generate")}.items():
        torch.manual_seed(0)
        base = LlamaForCausalLM(LlamaConfig(vocab_size=40, **sizes)).eval()
        wanted = {name: [*inspect.signature(getattr(base, name)).parameters] for name in ("forward", "generate")}
        model = peft.get_peft_model(
            base, peft.LoraConfig(target_modules=["q_proj"])
        ).eval()  # no task, so it hides both
        own = {name: [*inspect.signature(getattr(model, name)).parameters] for name in wanted if hasattr(model, name)}
        with torch.no_grad():
            before = model(input_ids=ids).logits
        if title == "all":
            helpers.update_signature(model, method="all")
        else:
            getattr(helpers, f"update_{title}_signature")(model)
        for name, names in wanted.items():
            found = [*inspect.signature(getattr(model, name)).parameters]
            expected = names if name in changed else own[name]
            yield equal(f"parameters of {name}, after {title}", " ".join(found), " ".join(expected))
        with torch.no_grad():
            yield equal(f"logits are the same, after {title}", model(input_ids=ids).logits.equal(before), bound=True)
            drawn = model.generate(input_ids=ids, max_new_tokens=2, do_sample=False)
        yield equal(f"generated tokens, after {title}", drawn.shape[1], 7)


@call(GROUP, phase=Phase.ADAPT)
def signatures_of_other_models(_ctx: Context) -> Iterator[Check]:
    """update_forward_signature and update_generate_signature change the given model, and no other adapted model."""
    import peft
    import torch
    from peft import helpers
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    base = LlamaForCausalLM(LlamaConfig(vocab_size=40, **sizes))
    model = peft.get_peft_model(base, peft.LoraConfig(target_modules=["q_proj"]))
    layers = torch.nn.Sequential(torch.nn.Linear(3, 3))
    other = peft.get_peft_model(layers, peft.LoraConfig(target_modules=["0"]))
    methods = {name: getattr(other, name) for name in ("forward", "generate") if hasattr(other, name)}
    before = {name: [*inspect.signature(method).parameters] for name, method in methods.items()}
    helpers.update_forward_signature(model)
    helpers.update_generate_signature(model)
    for name, method in methods.items():
        found = [*inspect.signature(method).parameters]
        yield equal(f"parameters of {name} of another model", " ".join(found), " ".join(before[name]))


@call(GROUP, phase=Phase.ADAPT, requires=("intruders",))
def intruders_reduced(_ctx: Context) -> Iterator[Check]:
    """reduce_intruder_dimension scales the merged weight's directions that the base lacks, in a new active adapter.

    https://arxiv.org/abs/2410.21228: directions among the first whose cosine with each of the base's is small. The
    result is cut to the adapter's rank. The old adapter keeps its weights.
    """
    import torch
    from peft.tuners.lora.intruders import reduce_intruder_dimension

    for kept, first, bound in ((0.75, 10, 0.5), (0.25, 3, 0.5), (0.75, 10, 0.0)):
        model = adapted_layers.fill(adapted_layers.adapted(adapted_layers.with_spectrum(), adapted_layers.lora()))
        scaling = adapted_layers.ALPHA / adapted_layers.RANK
        old = {name: adapted_layers.update(model, name, scaling) for name in adapted_layers.TARGETS}
        settings = {"top_k": first, "threshold_epsilon": bound, "mitigation_lambda": kept, "logging_sink": None}
        reduce_intruder_dimension(model, **settings)
        title = f"lambda {kept}, the first {first}, below {bound}"
        yield equal(f"active adapters, {title}", " ".join(model.active_adapters), "intruder_reduced")
        found = adapted_layers.applied(model)
        for name, base in adapted_layers.bases(model).items():
            left, values, right = torch.linalg.svd(base + old[name], full_matrices=False)
            own = torch.linalg.svd(base, full_matrices=False)[0]
            intruders = [n for n in range(first) if float((left[:, n] @ own).abs().max()) < bound]
            change = old[name].clone()
            for n in intruders:
                change = change - (1 - kept) * values[n] * left[:, n : n + 1] @ right[n : n + 1]
            side, sizes, other = torch.linalg.svd(change, full_matrices=False)
            rank = adapted_layers.RANK
            wanted = base + (side[:, :rank] * sizes[:rank]) @ other[:rank]
            yield at_most(f"weights off, {name}, {title}", relative(found[name], wanted), SAME)
            yield equal(f"intruders, {name}, {title}", bool(intruders), bound > 0)
        model.set_adapter("default")
        again = adapted_layers.applied(model)
        for name, base in adapted_layers.bases(model).items():
            yield at_most(
                f"weights of the old adapter off, {name}, {title}", relative(again[name], base + old[name]), SAME
            )
