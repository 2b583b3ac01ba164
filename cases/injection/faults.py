"""Faults to plant in a working stack, so that the checks can be checked: each is a small patch that raises nothing.

A fault is planted in a rank before its case runs, in the libraries or in what a user's code does with them. What it
breaks is what such a bug would break; it says in which cases it is planted. The rank ends with it.
"""

from __future__ import annotations

import functools
import sys
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.model import architectures, tiny

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.space.options import Options

    Plant = Callable[["Ground"], None]


@dataclass(frozen=True)
class Ground:
    """Where a fault is planted."""

    rank: int
    act: int
    options: Options


@dataclass(frozen=True)
class Fault:
    """``loud``: the stack itself may notice and raise; any other fault is caught by a check or not at all."""

    name: str
    what: str
    plant: Plant
    cases: tuple[str, ...]
    loud: bool = False


FAULTS: dict[str, Fault] = {}


def fault(*cases: str, loud: bool = False) -> Callable[[Plant], Plant]:
    """Register a fault; the first line of its docstring says what goes wrong."""

    def register(plant: Plant) -> Plant:
        what = (plant.__doc__ or "").strip().splitlines()[0].rstrip(".")
        FAULTS[plant.__name__] = Fault(plant.__name__, what, plant, cases, loud)
        return plant

    return register


def around(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace ``owner.name`` by ``wrapper``, which gets the original first."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(*arguments: Any, **named: Any) -> Any:
        return wrapper(original, *arguments, **named)

    setattr(owner, name, replaced)


def after(owner: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Change what ``owner.name`` returns, in place or by returning something else."""

    def changed(original: Any, *arguments: Any, **named: Any) -> Any:
        found = original(*arguments, **named)
        replacement = change(found)
        return found if replacement is None else replacement

    around(owner, name, changed)


def adapted(change: Callable[[Any], Any]) -> None:
    """Change the adapted model before it is wrapped."""
    from cases.apply import build

    after(build, "adapt", change)


def wrapped(change: Callable[[Any], Any]) -> None:
    from cases.apply import build

    after(build, "wrap", change)


def before_each_step(change: Callable[[list[Any]], None]) -> None:
    """Change gradients (or weights) just before the optimiser steps; gets its parameters that have a gradient."""
    from cases.apply import build

    def hooked(optimiser: Any) -> None:
        def change_them(*_: Any) -> None:
            change([p for group in optimiser.param_groups for p in group["params"] if p.grad is not None])

        optimiser.register_step_pre_hook(change_them)

    after(build, "optimiser", hooked)


def parts(model: Any, word: str) -> list[Any]:
    """The parameters whose name contains a word."""
    found = [parameter for name, parameter in tiny.named(model) if word in name]
    if not found:
        raise LookupError(f"nothing is called {word!r}: the fault cannot be planted")
    return found


# --- several ranks


@fault("train-full-ddp-fp32", "train-lora-ddp-bf16", "train-lora-nf4-ddp-bf16")
def gradients_not_reduced(_at: Ground) -> None:
    """DDP leaves every rank its own gradients."""

    def alone(model: Any) -> None:
        model.require_backward_grad_sync = False

    wrapped(alone)


@fault("train-full-ddp-fp32", "train-lora-ddp-bf16", "train-lora-int8-ddp-bf16")
def sum_instead_of_mean(_at: Ground) -> None:
    """Gradients are summed over the ranks."""
    wrapped(lambda model: reduced_by(model, 2.0))


@fault("train-full-ddp-fp32", "train-lora-ddp-fp32-adamw")
def mean_slightly_off(_at: Ground) -> None:
    """The mean over ranks is five per cent too large."""
    wrapped(lambda model: reduced_by(model, 1.05))


def reduced_by(model: Any, factor: float) -> None:
    import torch.distributed as dist

    def hook(bucket: Any) -> Any:
        work = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return work.then(lambda done: done.value()[0] * factor / dist.get_world_size())

    model.register_comm_hook(None, lambda _state, bucket: hook(bucket))  # no annotation: torch would read it


@fault("train-lora-ddp-bf16", "train-lora-fsdp1-fp32", "train-lora-fsdp2-fp32")
def every_rank_the_same_data(_at: Ground) -> None:
    """The sampler gives every rank the first rank's rows."""
    around(tiny, "shard", lambda original, step, _rank, *rest: original(step, 0, *rest))


@fault("train-full-ddp-fp32", "train-lora-ddp-bf16")
def strategy_ignored(_at: Ground) -> None:
    """The model is not wrapped: every rank trains alone."""
    from cases.apply import build

    around(build, "wrap", lambda _original, model, *_: model)


@fault("train-lora-ddp-bf16", "train-full-ddp-fp32")
def one_rank_drifts(at: Ground) -> None:
    """One rank's weights move a little by themselves."""

    def drift(parameters: list[Any]) -> None:
        if at.rank == 1:
            parameters[0].data.mul_(1 + 2**-7)

    before_each_step(drift)


@fault("train-lora-ddp-fp32-adamw", "train-lora-ddp-bf16")
def one_rank_misses_a_step(at: Ground) -> None:
    """One rank's optimiser skips its second step."""
    skip_step(2, only=at.rank == 1)


@fault("train-lora-ddp-bf16", "train-lora-fsdp2-fp32", "train-lora-fsdp1-fp32")
def dropout_on_one_rank(at: Ground) -> None:
    """One rank drops activations of an adapter."""
    if at.rank == 1:
        import torch

        def dropping(model: Any) -> None:
            layer = next(m for name, m in model.named_modules() if name.endswith("lora_A.default"))
            layer.register_forward_pre_hook(lambda _m, inputs: torch.nn.functional.dropout(inputs[0], 0.1))

        adapted(dropping)


@fault("train-full-fsdp1-fp32", "train-full-fsdp1-fp32-adamw")
def fsdp1_not_sharded(_at: Ground) -> None:
    """FSDP1 replicates instead of sharding."""
    from torch.distributed import fsdp

    def replicating(original: Any, *arguments: Any, **named: Any) -> Any:
        return original(*arguments, **{**named, "sharding_strategy": fsdp.ShardingStrategy.NO_SHARD})

    around(fsdp, "FullyShardedDataParallel", replicating)


@fault("train-lora-fsdp2-fp32", "train-full-fsdp2-fp32")
def fsdp2_ignored(_at: Ground) -> None:
    """fully_shard does nothing."""
    from cases.apply import compat

    def nothing(module: Any, **_: Any) -> Any:
        module.set_requires_gradient_sync = lambda _last: None  # which users call when they accumulate
        return module

    around(compat, "fully_shard", lambda _original: nothing)


@fault("train-lora-fsdp2-fp32", "train-full-fsdp2-fp32")
def fsdp2_layers_not_sharded(_at: Ground) -> None:
    """fully_shard reaches the root only: one unit instead of one for each layer."""
    around(architectures, "decoder_layers", lambda _original, *_: [])


@fault("train-full-fsdp2-fp32", "train-lora-fsdp2-fp32", "train-lora-fsdp1-fp32")
def gradients_off_under_fsdp(_at: Ground) -> None:
    """The sharded gradient is five per cent too large."""
    import torch.distributed as dist

    def larger(original: Any, output: Any, *arguments: Any, **named: Any) -> Any:
        found = original(output, *arguments, **named)
        output.mul_(1.05)
        return found

    for name in ("reduce_scatter_tensor", "reduce_scatter_single"):
        if hasattr(dist, name):
            around(dist, name, larger)


def local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


# --- the optimiser and the loop


def skip_step(number: int, *, only: bool = True) -> None:
    from cases.apply import build

    def skipping(optimiser: Any) -> None:
        done = [0]
        step = optimiser.step

        def counted(_self: Any, *arguments: Any, **named: Any) -> Any:
            done[0] += 1
            return None if only and done[0] == number else step(*arguments, **named)

        optimiser.step = types.MethodType(counted, optimiser)  # schedules ask for a method

    after(build, "optimiser", skipping)


@fault("train-full-single-fp32", "train-lora-single-bf16", "train-lora-fsdp2-bf16")
def a_step_is_skipped(_at: Ground) -> None:
    """The optimiser does nothing in the second step."""
    skip_step(2)


@fault("train-lora-single-fp32", "train-lora-ddp-fp32-adamw", "train-lora-fsdp1-fp32")
def learning_rate_off(_at: Ground) -> None:
    """The learning rate is a tenth too large."""
    from cases.apply import build

    def faster(optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["lr"] *= 1.1

    after(build, "optimiser", faster)


@fault("train-lora-single-fp32", "train-full-single-fp32")
def schedule_ignored(_at: Ground) -> None:
    """The learning rate stays what it was."""
    from torch.optim.lr_scheduler import LambdaLR

    LambdaLR.step = lambda *_: None


@fault("train-full-single-fp32", "train-lora-single-bf16")
def momentum_unasked(_at: Ground) -> None:
    """SGD has momentum that nobody asked for."""
    from cases.apply import build

    def heavy(optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["momentum"] = 0.5

    after(build, "optimiser", heavy)


@fault("train-full-single-fp32", "train-lora-single-fp32", "train-lora-fsdp2-fp32")
def clipping_unasked(_at: Ground) -> None:
    """Gradients are clipped though nobody asked."""
    import torch

    def clip(parameters: list[Any]) -> None:
        torch._foreach_mul_([local(p.grad) for p in parameters], 0.5)

    before_each_step(clip)


@fault("train-lora-single-fp32", "train-lora-ddp-bf16", "train-lora-fsdp2-bf16")
def gradients_not_zeroed(_at: Ground) -> None:
    """zero_grad does nothing: each step adds to the last one's gradients."""
    from torch.optim import Optimizer

    Optimizer.zero_grad = lambda *_, **__: None


@fault("train-lora-single-fp32-adamw", "train-lora-ddp-fp32-adamw")
def weight_decay_ignored(_at: Ground) -> None:
    """AdamW decays nothing."""
    set_in_groups(weight_decay=0.0)


@fault("train-lora-single-fp32-adamw", "train-lora-ddp-fp32-adamw")
def second_moment_off(_at: Ground) -> None:
    """AdamW's beta2 is 0.99."""
    set_in_groups(betas=(0.9, 0.99))


@fault("train-lora-single-fp32-adamw", "train-lora-single-bf16-adamw", "train-lora-ddp-fp32-adamw")
def moments_forgotten(_at: Ground) -> None:
    """The optimiser's state is thrown away after every step."""
    from cases.apply import build

    after(build, "optimiser", lambda made: made.register_step_post_hook(lambda o, *_: o.state.clear()) and None)


def set_in_groups(**values: Any) -> None:
    from cases.apply import build

    def change(optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group.update(values)

    after(build, "optimiser", change)


@fault("train-lora-single-fp32", "train-lora-single-bf16", "train-full-single-fp32")
def loss_slightly_off(_at: Ground) -> None:
    """The loss that is reported and differentiated is one per cent too large."""
    from transformers import LlamaForCausalLM

    def larger(output: Any) -> None:
        if output.loss is not None:
            output.loss = output.loss * 1.01

    after(LlamaForCausalLM, "forward", larger)


@fault("train-lora-single-fp32", "train-lora-single-bf16", "train-full-single-fp32")
def one_gradient_is_zero(_at: Ground) -> None:
    """One weight's gradient is lost in the backward pass."""
    adapted(lambda model: trained(model)[2].register_hook(lambda gradient: gradient * 0) and None)


@fault("train-lora-single-fp32", "train-full-single-fp32")
def one_row_of_a_gradient_is_zero(_at: Ground) -> None:
    """One row of one weight's gradient is lost."""

    def without_a_row(gradient: Any) -> Any:
        kept = gradient.clone()
        kept[0] = 0
        return kept

    adapted(lambda model: trained(model)[2].register_hook(without_a_row) and None)


def trained(model: Any) -> list[Any]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


# --- adapters


@fault("train-lora-single-fp32", "train-lora-ddp-bf16", "train-lora-fsdp2-bf16")
def lora_b_frozen(_at: Ground) -> None:
    """One half of every adapter is not trained."""
    adapted(lambda model: [p.requires_grad_(requires_grad=False) for p in parts(model, "lora_B")] and None)


@fault("train-lora-single-fp32", "train-lora-single-bf16")
def base_weight_trained(_at: Ground) -> None:
    """A layer of the base is trained along."""

    def train_along(model: Any) -> None:
        parts(model, "norm")[0].requires_grad_()

    adapted(train_along)


@fault("train-lora-single-fp32", "train-lora-fsdp1-fp32", "train-lora-nf4-single-bf16")
def base_weights_drift(_at: Ground) -> None:
    """A frozen weight changes by its last bit."""

    def drift(model: Any) -> None:
        frozen = next(p for p in model.parameters() if not p.requires_grad and p.is_floating_point())

        def change(*_: Any) -> None:
            frozen.data.view(-1)[:1].mul_(1 + 2**-7)

        model.register_forward_pre_hook(change)

    adapted(drift)


@fault("train-lora-single-bf16", "train-lora-nf4-single-bf16", "train-lora-fsdp2-bf16")
def scaling_off(_at: Ground) -> None:
    """The adapters' scaling is doubled."""
    adapted(lambda model: rescale(model, 2.0))


@fault("train-lora-single-fp32", "train-lora-single-bf16", "train-lora-nf4-single-bf16")
def scaling_slightly_off(_at: Ground) -> None:
    """The adapters' scaling is five per cent too large."""
    adapted(lambda model: rescale(model, 1.05))


def rescale(model: Any, factor: float) -> None:
    for module in model.modules():
        if isinstance(getattr(module, "scaling", None), dict):
            module.scaling = {name: value * factor for name, value in module.scaling.items()}


@fault("train-lora-single-fp32", "train-lora-single-bf16", "train-lora-int8-single-bf16")
def an_adapter_is_skipped(_at: Ground) -> None:
    """One layer's adapter is switched off."""

    def switch_off(model: Any) -> None:
        layer = next(module for module in model.modules() if hasattr(module, "lora_A"))
        layer.enable_adapters(False)  # noqa: FBT003 - PEFT's signature
        layer.lora_A.requires_grad_()
        layer.lora_B.requires_grad_()

    adapted(switch_off)


@fault("train-dora-single-bf16", "train-dora-ddp-bf16", "train-dora-fsdp2-bf16")
def dora_ignored(_at: Ground) -> None:
    """use_dora has no effect: plain LoRA is trained."""
    from peft import LoraConfig

    around(
        LoraConfig,
        "__init__",
        lambda original, self, *a, **named: original(self, *a, **{**named, "use_dora": False}),
    )


@fault("train-dora-single-bf16", "train-dora-ddp-bf16")
def magnitude_frozen(_at: Ground) -> None:
    """DoRA's magnitude is not trained."""
    adapted(lambda model: [p.requires_grad_(requires_grad=False) for p in parts(model, "magnitude")] and None)


@fault("train-dora-single-bf16", "train-dora-nf4-single-bf16")
def magnitude_off(_at: Ground) -> None:
    """DoRA's magnitude starts five per cent too large."""
    adapted(lambda model: [p.data.mul_(1.05) for p in parts(model, "magnitude")] and None)


@fault("train-lora-single-bf16", "train-lora-ddp-bf16", "train-lora-fsdp2-bf16")
def adapter_in_the_wrong_dtype(_at: Ground) -> None:
    """Adapters that should be float32 are trained in bfloat16."""
    import torch

    def lower(model: Any) -> None:
        for parameter in parts(model, "lora_"):
            parameter.data = parameter.data.to(torch.bfloat16)

    adapted(lower)


# --- quantisation


@fault("load-nf4-single-bf16", "train-lora-nf4-single-bf16", "train-lora-nf4-ddp-bf16")
def fp4_for_nf4(_at: Ground) -> None:
    """Another 4-bit code than the one that was asked for."""
    from transformers import BitsAndBytesConfig

    around(
        BitsAndBytesConfig,
        "__init__",
        lambda original, self, *a, **named: original(self, *a, **{**named, "bnb_4bit_quant_type": "fp4"}),
    )


@fault("train-lora-nf4-single-bf16", "train-dora-nf4-single-bf16")
def scales_off_after_loading(_at: Ground) -> None:
    """Once the model is adapted, a quantised layer's scales are one per cent off, as after a lossy move."""

    def spoil(model: Any) -> None:
        layer = next(
            m for m in model.modules() if type(m).__name__ == "Linear4bit" and hasattr(m.weight, "quant_state")
        )
        layer.weight.quant_state.absmax.mul_(1.01)

    adapted(spoil)


@fault("load-nf4-single-bf16", "load-int8-single-bf16", "train-lora-int8-single-bf16")
def a_layer_not_quantised(_at: Ground) -> None:
    """One kind of layer is silently left in full precision."""
    from transformers import BitsAndBytesConfig

    around(
        BitsAndBytesConfig,
        "__init__",
        lambda original, self, *a, **named: original(
            self, *a, **{**named, "llm_int8_skip_modules": ["lm_head", "k_proj"]}
        ),
    )


@fault("load-nf4-single-bf16", "train-lora-nf4-single-bf16")
def double_quantisation_unasked(_at: Ground) -> None:
    """The scales are quantised as well though nobody asked."""
    from transformers import BitsAndBytesConfig

    around(
        BitsAndBytesConfig,
        "__init__",
        lambda original, self, *a, **named: original(self, *a, **{**named, "bnb_4bit_use_double_quant": True}),
    )


# --- the model


@fault("train-full-single-fp32", "train-lora-single-bf16", "load-single-fp32")
def attention_sees_the_future(_at: Ground) -> None:
    """The causal mask is lost."""
    from torch.nn import functional

    around(
        functional,
        "scaled_dot_product_attention",
        lambda original, *a, **named: original(*a[:3], **{**named, "attn_mask": None, "is_causal": False}),
    )


@fault("train-full-single-fp32", "load-single-fp32")
def attention_scaled_wrongly(_at: Ground) -> None:
    """Attention scores are divided by another number."""
    from torch.nn import functional

    around(
        functional,
        "scaled_dot_product_attention",
        lambda original, *a, **named: original(*a, **{**named, "scale": 0.3}),
    )


@fault("train-full-single-fp32-autocast_bf16", "train-full-fsdp2-fp32-autocast_bf16")
def autocast_switched_off(_at: Ground) -> None:
    """Autocast has no effect."""
    import contextlib

    import torch

    torch.autocast = lambda *_, **__: contextlib.nullcontext()


@fault("train-full-single-fp32", "train-lora-single-fp32", "train-lora-fsdp2-fp32")
def autocast_unasked(_at: Ground) -> None:
    """The model computes in bfloat16 though nobody asked."""
    import torch
    from transformers import LlamaForCausalLM

    def lower(original: Any, *arguments: Any, **named: Any) -> Any:
        with torch.autocast("cpu" if not torch.cuda.is_available() else "cuda", dtype=torch.bfloat16):
            return original(*arguments, **named)

    around(LlamaForCausalLM, "forward", lower)


@fault(
    "train-lora-nf4-single-bf16-gradient_checkpointing_non_reentrant",
    "train-lora-ddp-fp32-gradient_checkpointing_non_reentrant",
    "train-lora-fsdp1-fp32-gradient_checkpointing_reentrant",
)
def checkpointing_ignored(_at: Ground) -> None:
    """gradient_checkpointing_enable does nothing."""
    from transformers import PreTrainedModel

    PreTrainedModel.gradient_checkpointing_enable = lambda *_, **__: None


# --- round trips


@fault("save_reload-lora-single-fp32", "save_reload-lora-ddp-fp32", "save_reload-lora-fsdp2-fp32", loud=True)
def an_empty_save(_at: Ground) -> None:
    """The adapter is written with tensors of no size."""
    saved(lambda tensors: {name: tensor[:0] for name, tensor in tensors.items()})


@fault("save_reload-lora-single-fp32", "save_reload-full-single-fp32")
def a_tensor_is_not_saved(_at: Ground) -> None:
    """One tensor is missing in the file."""
    saved(lambda tensors: dict(list(tensors.items())[1:]))


@fault("save_reload-lora-single-fp32", "save_reload-lora-single-bf16", "save_reload-full-single-fp32")
def a_save_that_rounds(_at: Ground) -> None:
    """What is saved was rounded to bfloat16 on the way."""
    import torch

    saved(lambda tensors: {name: tensor.to(torch.bfloat16).to(tensor.dtype) for name, tensor in tensors.items()})


@fault("save_reload-lora-single-fp32", "merge_reload-lora-single-fp32")
def stale_weights_are_saved(_at: Ground) -> None:
    """What is saved is slightly older than what was trained."""
    saved(lambda tensors: {name: tensor * (1 - 2**-6) for name, tensor in tensors.items()})


def saved(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change what safetensors writes, wherever it was imported to."""
    import safetensors.torch

    original = safetensors.torch.save_file

    def changed(tensors: dict[str, Any], *arguments: Any, **named: Any) -> Any:
        kept = {name: tensor.contiguous() for name, tensor in change(tensors).items()}
        return original(kept, *arguments, **named)

    for module in list(sys.modules.values()):
        for name in ("save_file", "safe_save_file"):
            if vars(module).get(name) is original:
                setattr(module, name, changed)


@fault("resume-lora-single-fp32-adamw", "resume-lora-ddp-fp32-adamw", "resume-lora-fsdp2-fp32-adamw")
def optimiser_state_lost(_at: Ground) -> None:
    """A resumed optimiser starts without its moments."""
    from torch.distributed.checkpoint import state_dict
    from torch.optim import Optimizer

    Optimizer.load_state_dict = lambda *_: None
    state_dict.set_optimizer_state_dict = lambda *_, **__: None


@fault("resume-lora-single-fp32-adamw", "resume-lora-fsdp2-fp32-adamw")
def schedule_restarted(_at: Ground) -> None:
    """A resumed schedule begins anew."""
    from torch.optim.lr_scheduler import LambdaLR

    LambdaLR.load_state_dict = lambda *_: None


@fault("merge-lora-single-fp32", "merge-lora-single-bf16", "merge-lora-ddp-fp32")
def merged_with_twice_the_scaling(_at: Ground) -> None:
    """What is merged is twice the update."""
    from peft.tuners.lora import layer

    after(layer.Linear, "get_delta_weight", lambda delta: delta * 2)


@fault("merge-lora-single-fp32", "merge-dora-single-fp32")
def a_merge_that_does_nothing(_at: Ground) -> None:
    """merge_adapter leaves the weights as they are and takes the adapter out."""
    from peft.tuners.lora import layer

    after(layer.Linear, "get_delta_weight", lambda delta: delta * 0)


@fault("merge-lora-single-fp32", "merge-lora-ddp-fp32")
def a_merge_that_is_left_out(_at: Ground) -> None:
    """merge_adapter and unmerge_adapter do nothing at all: the adapter works on beside the weights."""
    from peft.tuners.tuners_utils import BaseTuner

    BaseTuner.merge_adapter = BaseTuner.unmerge_adapter = lambda *_, **__: None


@fault("generate-lora-single-fp32", "generate-lora-ddp-fp32")
def generation_without_the_adapter(_at: Ground) -> None:
    """Generation runs on the bare base model."""
    from peft import PeftModelForCausalLM

    def bare(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
        with self.disable_adapter():
            return original(self, *arguments, **named)

    around(PeftModelForCausalLM, "generate", bare)


@fault("portability-lora-single-fp32")
def scaling_lost_in_the_file(at: Ground) -> None:
    """The adapter's configuration is read with another scaling than it was trained with."""
    from peft import PeftModel

    if at.act == 1:
        after(PeftModel, "from_pretrained", lambda model: rescale(model, 0.5))
