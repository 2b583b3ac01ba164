"""Faults that repeat, in this stack, errors that two papers collected: TTrace and TrainCheck.

``matrix/known/published_errors.toml`` lists every error of both with its upstream thread. The faults here have the
effect of the published ones, whose originals lie in other packages or in old versions.
TTrace: https://arxiv.org/abs/2506.09280. TrainCheck: https://arxiv.org/abs/2506.14813.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.injection.patching import (
    after,
    around,
    change_adapted_model,
    change_reduced_bucket,
    change_wrapped_model,
    fault,
    local_tensor,
    trainable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.injection.patching import InjectionPoint


@fault("train-full-ddp-fp32", "train-full-tied-ddp-fp32", located="weight gradient *norm*")
def gradients_of_norms_not_reduced(_point: InjectionPoint) -> None:
    """DDP reduces all gradients but those of norms, which stay each rank's own.

    NVIDIA/Megatron-LM#1446 and #599: replicated weights of norms and routers, in a group of tensor-parallel ranks.
    """

    def keep(bucket: Any) -> Callable[[], object]:
        own = [(g, g.clone()) for p, g in zip(bucket.parameters(), bucket.gradients()) if p.dim() == 1]  # noqa: B905 - torch gives lists of one length
        return lambda: [reduced.copy_(kept) for reduced, kept in own]

    change_wrapped_model(lambda model: change_reduced_bucket(model, keep))


@fault("train-full-ddp-fp32", "train-lora-ddp-bf16", located="weight gradient *")
def reduced_data_lost(point: InjectionPoint) -> None:
    """One rank receives zeros instead of the reduced gradients, once.

    pytorch/pytorch#84803, #96600 and baichuan-inc/Baichuan2#86: transfers between GPUs that arrive empty.
    """
    seen: list[int] = []

    def lose(bucket: Any) -> Callable[[], object]:
        seen.append(1)
        lost = point.rank == 1 and len(seen) == 2  # noqa: PLR2004 - the second transfer
        return (lambda: bucket.buffer().zero_()) if lost else (lambda: None)

    change_wrapped_model(lambda model: change_reduced_bucket(model, lose))


@fault("train-full-ddp-fp32", "train-lora-ddp-bf16", located="weight gradient *")
def parameters_replaced_after_wrapping(_point: InjectionPoint) -> None:
    """The model's parameters are new objects after DDP wrapped it, as after a move between devices.

    pytorch/pytorch#104336: DDP's hooks stay with the former parameters.
    """
    import torch

    def replace(model: Any) -> None:
        for module in model.module.modules():
            for name, parameter in [*module.named_parameters(recurse=False)]:
                new = torch.nn.Parameter(parameter.detach().clone(), requires_grad=parameter.requires_grad)
                setattr(module, name, new)

    change_wrapped_model(replace)


@fault("train-full-ddp-fp32", "train-lora-ddp-bf16")
def forward_around_wrapper(_point: InjectionPoint) -> None:
    """The loop calls the model inside DDP instead of the wrapper.

    https://x.com/jxmnop/status/1778520637193240892
    """
    change_wrapped_model(lambda model: setattr(model, "forward", model.module.forward))


@fault("train-full-tied-fsdp1-use_orig_params_false-fp32", "train-lora-fsdp2-fp32", located="weight *")
def optimiser_holds_former_parameters(_point: InjectionPoint) -> None:
    """The optimiser has the parameters from before wrapping, so that its steps change nothing.

    huggingface/accelerate#2665 and #3256; deepspeedai/DeepSpeed#6770.
    """
    from cases.apply import build

    former: list[Any] = []

    def remember(original: Any, model: Any, *arguments: Any) -> Any:
        former.extend(trainable(model))
        return original(model, *arguments)

    around(build, "wrap", remember)
    after(build, "optimiser", lambda optimiser: optimiser.param_groups[0].update(params=former))


@fault("train-lora-ddp-bf16-gradient_accumulation_steps_2-clip_grad_norm", "api-clip_ddp_gradients")
def clipping_on_one_rank(point: InjectionPoint) -> None:
    """Only rank 0 clips its gradients; the others only measure them.

    deepspeedai/DeepSpeed#1801, which let the norms' weights of BLOOM-176B drift apart.
    """
    import torch

    if point.rank > 0:
        around(
            torch.nn.utils,
            "clip_grad_norm_",
            lambda original, parameters, _norm, *a, **named: original(parameters, float("inf"), *a, **named),
        )


@fault("train-lora-fsdp2-fp32-autocast_fp16-clip_grad_norm", "train-full-fsdp2-fp32-clip_grad_norm")
def clipping_by_norm_of_shards(_point: InjectionPoint) -> None:
    """Each rank clips by the norm of its own shards instead of the norm over all ranks.

    deepspeedai/DeepSpeed#1801, for shards.
    """
    import torch

    def clip(_original: Any, parameters: Any, max_norm: float, *_: Any, **__: Any) -> Any:
        held = [local_tensor(p.grad) for p in parameters if p.grad is not None]
        norm = torch.stack([each.norm() for each in held]).norm()
        torch._foreach_mul_(held, float(min(max_norm / (norm + 1e-6), 1.0)))
        return norm

    around(torch.nn.utils, "clip_grad_norm_", clip)


@fault("train-full-single-fp32", "train-full-fsdp2-fp32", "train-lora-ddp-bf16", located="weight *")
def forward_uses_weights_of_last_step(_point: InjectionPoint) -> None:
    """The second forward pass still uses the weights from before the first step; the third has the new ones.

    NVIDIA/Megatron-LM#663: a gather that overlaps the forward pass reads too early.
    """
    from cases.apply import build

    updates: list[tuple[Any, Any]] = []

    def delay(optimiser: Any) -> None:
        parameters = [local_tensor(p.detach()) for group in optimiser.param_groups for p in group["params"]]
        old: list[Any] = []

        def before(*_: Any) -> None:
            for parameter, new in updates:
                parameter.copy_(new)
            updates.clear()
            if not old:
                old.extend(parameter.clone() for parameter in parameters)

        def afterwards(*_: Any) -> None:
            if old and old[0] is not None:
                updates.extend((parameter, parameter.clone()) for parameter in parameters)
                for parameter, kept in zip(parameters, old):  # noqa: B905 - one length
                    parameter.copy_(kept)
                old[:] = [None]

        optimiser.register_step_pre_hook(before)
        optimiser.register_step_post_hook(afterwards)

    after(build, "optimiser", delay)


@fault("train-full-tied-single-fp32", "train-full-tied-ddp-fp32", "train-full-tied-fsdp2-fp32")
def tied_head_comes_apart(_point: InjectionPoint) -> None:
    """The head trains a copy of the embeddings that it should share.

    NVIDIA/Megatron-LM#656
    """
    import torch

    def untie(model: Any) -> None:
        head = model.get_output_embeddings()
        head.weight = torch.nn.Parameter(head.weight.detach().clone())

    change_adapted_model(untie)


@fault("train-full-tied-single-fp32", "train-full-tied-ddp-fp32", "train-full-tied-fsdp2-fp32")
def tied_gradient_lacks_a_part(_point: InjectionPoint) -> None:
    """The gradient of tied embeddings has the head's part only.

    NVIDIA/Megatron-LM#844, where the parts of two pipeline stages are added in the wrong order.
    """

    def cut(model: Any) -> None:
        embeddings = model.get_input_embeddings()
        embeddings.register_forward_hook(lambda _module, _inputs, output: output.detach().requires_grad_())

    change_adapted_model(cut)


@fault("train-full-ddp-fp32-gradient_accumulation_steps_2-trainer", "api-trainer_tokens_of_all_ranks")
def loss_multiplied_by_ranks(_point: InjectionPoint) -> None:
    """The Trainer multiplies the loss by the number of ranks once more than its mean needs.

    NVIDIA/Megatron-LM#673 and #906, with the ranks of a context-parallel group.
    """
    import torch.distributed as dist
    from transformers import Trainer

    def larger(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
        return original(self, *arguments, **named) * (dist.get_world_size() if self.model.training else 1)

    around(Trainer, "compute_loss", larger)


@fault(
    "train-full-single-fp32",
    "train-lora-ddp-bf16",
    "train-lora-fsdp2-fp32",
    located="gradient model.layers.1.self_attn*",
)
def attention_backward_off(_point: InjectionPoint) -> None:
    """Attention computes the right output and a gradient of its keys that is half too large.

    NVIDIA/Megatron-LM#1464, #1503 and NVIDIA/TransformerEngine#1557, where gradients are off by half or more. Keys'
    gradients that are only a tenth too large lie within the tolerance of LoRA in bfloat16.
    """
    from torch.nn import functional

    around(
        functional,
        "scaled_dot_product_attention",
        lambda original, query, key, *a, **named: original(query, key * 1.5 - key.detach() * 0.5, *a, **named),
    )


@fault("train-lora-ddp-fp32-gradient_checkpointing_reentrant", "train-lora-fsdp2-fp32-gradient_checkpointing_reentrant")
def recomputed_from_other_inputs(_point: InjectionPoint) -> None:
    """Reentrant checkpointing recomputes each layer from inputs that are five per cent too large.

    NVIDIA/TransformerEngine#1190, where a layer is recomputed with other scales than it had.
    """
    from torch.utils import checkpoint

    after(
        checkpoint,
        "detach_variable",
        lambda inputs: tuple(
            (each.detach() * 1.05).requires_grad_() if getattr(each, "requires_grad", False) else each
            for each in inputs
        ),
    )


@fault("api-checkpointed_dropout", "api-checkpointed_dropout_reentrant")
def recomputed_with_other_masks(_point: InjectionPoint) -> None:
    """gradient_checkpointing_enable recomputes layers without the random state of their forward pass.

    NVIDIA/TransformerEngine#1190
    """
    from transformers import modeling_utils

    around(
        modeling_utils,
        "checkpoint",
        lambda original, *a, **named: original(*a, **{**named, "preserve_rng_state": False}),
    )


@fault("train-full-single-fp32-autocast_bf16", "train-full-fsdp2-fp32-autocast_bf16")
def autocast_misses_projections(_point: InjectionPoint) -> None:
    """Autocast leaves linear layers in float32; attention computes in bfloat16.

    Lightning-AI/lightning-thunder#725
    """
    import torch
    from torch.nn import functional

    def exact(original: Any, inputs: Any, weight: Any, bias: Any = None) -> Any:
        with torch.autocast(inputs.device.type, enabled=False):
            return original(inputs.float(), weight, bias)

    around(functional, "linear", exact)


@fault("train-lora-single-fp32-adamw", "train-lora-ddp-fp32-adamw", located="weight *")
def step_count_of_adam_stays(_point: InjectionPoint) -> None:
    """AdamW's count of steps stays at 1, so that it corrects its moments wrongly.

    pytorch/pytorch#115607: a compiled step that stops counting.
    """
    from cases.apply import build

    def stay(optimiser: Any) -> None:
        def reset(*_: Any) -> None:
            for state in optimiser.state.values():
                state["step"].fill_(0)

        optimiser.register_step_pre_hook(reset)

    after(build, "optimiser", stay)


@fault("train-full-single-fp32", "train-full-fsdp2-fp32")
def only_norms_trained(_point: InjectionPoint) -> None:
    """Full fine-tuning leaves every layer but the norms frozen.

    https://discuss.pytorch.org/t/obtaining-abnormal-changes-in-loss-and-accuracy/84911
    """
    change_adapted_model(lambda model: [p.requires_grad_(p.dim() == 1) for p in model.parameters()] and None)


@fault("api-trainer_worker_randomness")
def workers_draw_the_same(_point: InjectionPoint) -> None:
    """All workers of a DataLoader draw the same random numbers.

    pytorch/pytorch#56488 is the repair of workers whose numpy draws the same.
    """
    from transformers import Trainer, trainer_utils

    def same(*_: Any, **__: Any) -> None:
        trainer_utils.set_seed(1)

    around(Trainer, "get_train_dataloader", lambda original, self: with_worker_init(original(self), same))


def with_worker_init(loader: Any, function: Callable[..., None]) -> Any:
    getattr(loader, "base_dataloader", loader).__dict__["worker_init_fn"] = function
    loader.__dict__["worker_init_fn"] = function
    return loader


@fault("api-attention_dropout_sdpa", "api-attention_dropout_eager")
def attention_drops_in_evaluation(_point: InjectionPoint) -> None:
    """Attention drops weights in evaluation as in training.

    huggingface/transformers#33844
    """
    from transformers.models.llama.modeling_llama import LlamaAttention

    around(LlamaAttention, "train", lambda original, self, *_: original(self))


@fault("api-trainer_uneven_accumulation")
def last_steps_not_counted(_point: InjectionPoint) -> None:
    """The Trainer counts no step for the last, fewer batches of an epoch, and stops that much earlier.

    huggingface/transformers#33455
    """
    from transformers import DefaultFlowCallback

    def early(original: Any, self: Any, args: Any, state: Any, *arguments: Any, **named: Any) -> Any:
        whole = len(named["train_dataloader"]) // args.gradient_accumulation_steps
        state.max_steps = whole * state.num_train_epochs
        return original(self, args, state, *arguments, **named)

    around(DefaultFlowCallback, "on_step_end", early)


@fault("merge_reload-lora-single-fp32", "merge_reload-lora-tied-single-fp32")
def frozen_weights_not_saved(_point: InjectionPoint) -> None:
    """Weights that training kept frozen, here the norms, are missing from the saved model.

    deepspeedai/DeepSpeed#5489 and #6771
    """
    from peft import LoraModel

    def forget(model: Any) -> None:
        kept = {name: each for name, each in model.state_dict().items() if "norm" not in name}
        around(model, "save_pretrained", lambda original, *a, **named: original(*a, **{**named, "state_dict": kept}))

    after(LoraModel, "merge_and_unload", forget)


@fault("generate-lora-single-fp32", "generate-lora-ddp-fp32")
def one_token_too_many(_point: InjectionPoint) -> None:
    """Generation appends one token more than max_new_tokens.

    huggingface/transformers#23723
    """
    from transformers import GenerationMixin

    def longer(original: Any, self: Any, *arguments: Any, max_new_tokens: int, **named: Any) -> Any:
        longest = {**named, "max_new_tokens": max_new_tokens + 1}
        return original(self, *arguments, **{**longest, "min_new_tokens": max_new_tokens + 1})

    around(GenerationMixin, "generate", longer)
